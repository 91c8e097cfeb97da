package check

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/forecast"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// Limiter decides by one rule. Its methods are safe for concurrent use and do not wait. For all
// that Check does not do, pass it to [Checker.Do] or [Checker.Wait].
type Limiter struct {
	// What a check without the lock reads stands together, and apart from what is written
	// meanwhile.
	checker *Checker
	limits  atomic.Pointer[limits] // what it decides by at present
	salt    uint64                 // sets this limiter's keys apart in the map of counters
	strict  *strict                // nil unless it spends only permits
	after   time.Duration          // how long after its end a bucket still counts
	hashes  bool                   // keys are hashed
	shape   window.Shape

	ruleID     ruleID // of its rule, whatever else that says
	name       string // the same
	id         uint64 // grows from limiter to limiter: the order in which counters are locked
	live       int    // buckets that a window can touch, and of what drains some more
	fullRounds int64  // see forecast.FullIntervals

	cells   atomic.Int64 // live ones
	retired atomic.Bool  // its rule is not in force
	away    atomic.Bool  // it has been let go, see retired.go
	refunds atomic.Bool  // there may be refunds to ask for
	settles atomic.Bool  // a receipt of its hits may have been made here
	// The numbers of the installs at which it was last in force, and its counters had last to be
	// adjusted.
	installed, changed uint64

	tallies   [stripes]tally
	overflow  atomic.Int64 // hits admitted without a counter
	cancelled atomic.Int64 // hits of reservations that were given back
	queues    queues
	late      atomic.Int64 // hits that left every window pending, to be reported so

	badCosts atomic.Int64 // hits whose own cost was none

	falseDenials atomic.Int64 // decisions, see forecast.FalseDenials

	owed reportState
}

func newLimiter(c *Checker, id uint64, r *rules.Rule) *Limiter {
	return &Limiter{
		checker: c, hashes: c.o.KeyHash != nil, ruleID: ruleIDOf(r, c.o.Link), id: id, name: r.Name, shape: r.Window, live: bucketsOf(r.Window), salt: rand.Uint64(),
		after:  time.Duration(r.Window.Live()-1) * r.Window.BucketSize(),
		strict: newStrict(r, c.o.Link), fullRounds: forecast.FullIntervals(time.Duration(r.Window.Length)),
	}
}

// Rule returns the rule that this limiter decides by. It must not be changed.
func (l *Limiter) Rule() *rules.Rule { return l.limits.Load().rule }

// Check decides for one hit of this cost against key, and charges it if it may pass. A cost below 1
// counts as 1. It allocates nothing for a key that has been seen lately.
func (l *Limiter) Check(key string, cost int64) (d Decision) {
	if t := l.limits.Load(); l.isPlain(t, key) {
		l.checkAt(&d, t, l.now(), key, cost)
	} else {
		l.checkBy(&d, t, l.now(), key, cost)
	}
	return d
}

// isPlain says whether a hit is decided by nothing but a limit, and about the key as it is: by
// checkAt then. It is what checkBy would find, one call earlier.
func (l *Limiter) isPlain(t *limits, key string) bool {
	return t.plain && len(key) <= identity.MaxKey
}

// checkBy decides under these limits, about a key as the caller has it, and writes its decision to
// d, which is zero.
func (l *Limiter) checkBy(d *Decision, t *limits, now int64, key string, cost int64) {
	if t.blocks != nil && l.checkBlocked(d, t, now, key, cost) {
		return
	}
	switch {
	case t.clauses != nil:
		l.checkAlone(d, t, now, key, cost)
	case l.hashes:
		l.checkHashed(d, t, now, key, cost)
	default:
		l.checkAt(d, t, now, identity.Bound(key), cost)
	}
}

// checkAt decides under these limits, about a key as counters have it, and writes its decision to
// d, which is zero.
func (l *Limiter) checkAt(d *Decision, t *limits, now int64, key string, cost int64) {
	f := Freshness(l.checker.freshness.Load())
	c := l.checker.table.load(l, key)
	if c != nil && cost <= 1 && l.inTouch(f) && c.checkUnlocked(d, t, now, f) {
		return
	}
	l.checkLocked(d, t, c, now, key, max(cost, 1))
}

// inTouch says whether allowances and blocks hold: not on the ladder's lower steps, where something
// else decides than what they were reckoned from. Permits hold on all of them.
func (l *Limiter) inTouch(f Freshness) bool { return f < LocalShare || l.strict != nil }

// checkUnlocked decides for a hit of cost 1 by the counter's allowance or block; false if it
// cannot.
func (c *counter) checkUnlocked(d *Decision, t *limits, now int64, f Freshness) bool {
	l := c.limiter
	v, left, until := c.take(t.stamp, now)
	switch v {
	case allowed:
		d.Allowed = true
		// An allowance ends with its bucket; the bucket leaves the window later.
		d.Reset = l.resetAfter(t, time.Duration(until-now))
	case denied, refused:
		c.touch(now)
		l.tallies[c.stripe].denied.Add(1)
		if v == denied {
			l.noteDenied(c.key(), 1)
		}
		d.RetryAfter = time.Duration(until - now)
		d.Reset = l.reset(t, now)
		d.deny(t.rule)
		if p := c.permits(); p != nil {
			c.denyUnlocked(d, p, now)
		}
	default:
		return false
	}
	l.fillAt(d, t, left, f)
	return true
}

// checkLocked decides with the counter's lock, and leaves an allowance or a block for the next
// checks. c is the key's counter if it has been found.
func (l *Limiter) checkLocked(d *Decision, t *limits, c *counter, now int64, key string, cost int64) {
	for ; ; c = nil {
		if c == nil {
			c = l.find(now, key)
		}
		if c == nil {
			l.checkOverflow(d, t, now, key, cost)
			return
		}
		c.mu.Lock()
		if c.is(dead) { // it left between find and here; the next find will not meet it
			c.mu.Unlock()
			continue
		}
		c.decide(d, t, now, cost)
		c.mu.Unlock()
		return
	}
}

// decide decides for a hit. The lock is held.
func (c *counter) decide(d *Decision, t *limits, now, cost int64) {
	q := ruleDecision{limiter: c.limiter, limits: t, cell: c, cost: cost}
	q.decide(d, now)
	q.conclude(q.passes, false, now)
}

// refuse makes the decision for a hit that does not fit. The lock is held and the counter current
// .
func (c *counter) refuse(d *Decision, t *limits, now, at, cost, room int64) {
	if p := c.permits(); p != nil {
		c.refusePermits(d, t, p, now, at, cost, room)
		return
	}
	c.refuseByCounts(d, t, now, at, cost, room)
}

// refuseByCounts is refuse, whatever permits there are.
func (c *counter) refuseByCounts(d *Decision, t *limits, now, at, cost, room int64) {
	c.limiter.fill(d, t, room)
	d.Reset = c.limiter.reset(t, now)
	d.deny(t.rule)
	d.RetryAfter = Never
	if after, ok := c.retryIn(t, cost, at); ok {
		d.RetryAfter = after + time.Duration(at-now)
	}
}

// allow makes the decision for a hit that has been charged to a bucket which ends after so long.
func (l *Limiter) allow(d *Decision, t *limits, end time.Duration, left int64) {
	l.fill(d, t, left)
	d.Allowed = true
	d.Reset = l.resetAfter(t, end)
}

// checkOverflow decides for a key for which there is no room: the live map is full of keys that may
// not be forgotten. Hits that pass are counted as overflow, and against no key.
func (l *Limiter) checkOverflow(d *Decision, t *limits, now int64, key string, cost int64) {
	l.peekOverflow(d, t, now, key, cost)
	if !d.Allowed {
		l.tallies[0].denied.Add(1)
		l.noteDenied(key, 1)
		return
	}
	l.tallies[0].admit(1, cost)
	l.overflow.Add(cost)
	l.noteRevived()
}

// peekOverflow is that decision without the charge: what is remembered of the key counts against
// it, otherwise the rule's OnOutage decides.
func (l *Limiter) peekOverflow(d *Decision, t *limits, now int64, key string, cost int64) {
	if old := l.recall(key); old != nil && l.strict == nil {
		c := newCell(l, key, now)
		c.learn(old)
		if room, at := c.room(t, now); cost > room {
			c.refuse(d, t, now, at, cost, room)
			return
		}
	}
	l.fill(d, t, 0)
	d.Reset = l.reset(t, now)
	d.deny(t.rule)
	switch {
	case cost > t.capacity:
		d.RetryAfter = Never
	case t.rule.OnOutage == rules.Closed:
		d.RetryAfter = l.checker.o.FlushEvery
	default:
		d.allow()
	}
}

// fill writes what every decision of this rule says. Field by field: a copy of a whole Decision
// waits for the stores of its parts, and on the common path that took half of the time.
func (l *Limiter) fill(d *Decision, t *limits, left int64) {
	l.fillAt(d, t, left, l.freshness(t))
}

func (l *Limiter) fillAt(d *Decision, t *limits, left int64, f Freshness) {
	d.Freshness = f
	d.Rule = t.name
	d.Limit = t.says
	d.Remaining = left
}

// reset returns how long after now the bucket of now has left every window, or a full one that
// drains is empty.
func (l *Limiter) reset(t *limits, now int64) time.Duration {
	return l.resetAfter(t, time.Duration(l.shape.End(l.shape.Bucket(now))-now))
}

// resetAfter is reset, when the bucket ends after so long.
func (l *Limiter) resetAfter(t *limits, end time.Duration) time.Duration {
	if t.fill > 0 {
		return t.fill
	}
	return end + l.after
}

// tally are one stripe of a limiter's counts.
type tally struct {
	allowed, denied atomic.Int64 // decisions
	// Hits charged beyond one for each decision that allowed, which most cost.
	further atomic.Int64
	_       [40]byte // keep the next stripe on another cache line
}

func (c *tally) admit(decisions, hits int64) {
	if decisions == 0 {
		return
	}
	c.allowed.Add(decisions)
	if hits != decisions {
		c.further.Add(hits - decisions)
	}
}

// addLate notes pending hits that have left every window: they are reported as late, by rule.
func (l *Limiter) addLate(hits int64) {
	if l.late.Add(hits) == hits { // or else it has been seen
		l.checker.reporter.lates.add(l)
	}
}
