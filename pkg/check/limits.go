package check

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// limits are what a limiter decides by while one set of rules is in force. They never change: a new
// set brings new limits. A decision takes them once, in the beginning, and hands them on, so it
// never mixes two sets; and what one decision leaves in a counter for the next ones, an allowance
// or a block, carries the stamp of its limits, so that those who decide by other limits do not take
// it for theirs. That is what makes a change of rules hold at once, in every counter, without a
// lock in a check: the walk over the counters that follows (reload.go) only tidies up.
type limits struct {
	says    int64 // the limit that decisions name: how many hits there is room for, as capacity
	name    string
	fill    time.Duration // how long a token or leaky bucket takes to drain when it is full, else 0
	clauses *clauses      // nil if the limit is all that the rule says
	rule    *rules.Rule
	plain   bool // a hit is decided by the limit alone, and about the key as it is
	counter.Limits

	full   *limits          // of a class with a share of the limit: those of who has all of it; else nil
	blocks map[string]int64 // when blocks end, by key; nil if there are none, see blocks.go
}

func newLimits(r *rules.Rule, revision uint64) *limits {
	t := &limits{
		says: r.Capacity(), name: r.Name, rule: r, Limits: counter.Limits{Limit: r.Limit, Capacity: r.Capacity(), Wire: r.WireLimit(-1), OnOutage: r.OnOutage, Revision: revision,
			Burst: r.Burst, Loose: r.Loose() || isInline(r.Name)},
	}
	if r.Window.Drains() {
		t.Drain = r.Drain()
		t.fill = t.drainsIn(r.Burst)
	}
	return t
}

// scale lets a part of the hits in at once that there was room for, or more than these; what drains
// does so as before.
func (t *limits) scale(by float64) {
	t.Capacity = rules.Part(t.Capacity, by)
	t.says = t.Capacity
	if t.rule.Window.Drains() {
		t.Drain.Burst = t.Capacity
		t.fill = max(t.fill, t.drainsIn(t.Capacity)) // a class's share may be full of others' hits
	} else {
		t.Limit = t.Capacity
	}
}

// drainsIn is how long so many hits take to drain, at most.
func (t *limits) drainsIn(hits int64) time.Duration {
	shape := t.rule.Window
	span := float64(hits) / float64(t.Limit) * float64(shape.Length)
	return time.Duration(min(span, float64(window.MaxLength))) + shape.BucketSize()
}

// next are the limits by which a limiter decides after these, from a time of the fleet on.
func (t *limits) next(r *rules.Rule, revision uint64, at int64) *limits {
	n := newLimits(r, revision)
	if r.Window.Drains() {
		n.Drain.Past = t.Drain.After(r.Limit, at)
	}
	n.Stamp = t.Stamp
	if t.rule != r && !t.rule.Equal(r) {
		n.Stamp = (t.Stamp + counter.OneStamp) & counter.StampMask
	}
	return n
}

func ruleIDOf(r *rules.Rule, h *counter.Host) counter.ID {
	return counter.ID{Name: r.Name, Shape: r.Window, Strict: isStrict(r, h)}
}

// isStrict says whether a rule's limiter is to spend permits. A local limiter knows everything
// anyway.
func isStrict(r *rules.Rule, h *counter.Host) bool {
	return r.Enforcement == rules.Strict && !h.Config.Local
}

// clauses are what a rule says beyond its limit and that a decision has to mind: what may pass
// beyond the limit, who has only a share of it, whether denials hold, and whether they count.
// Limiters whose rules have none never look at any of it.
//
// What depends on the request makes other limits of the rule's, which are all made beforehand: the
// limit is higher while elastic has room, and lower for a class with a share. They carry the same
// stamp, so the same allowances; which are only ever left for the hits that fit the limit itself,
// and by those whom all of it is for.
type clauses struct {
	plain   *limits            // the limit itself
	shadow  bool               // never denies
	all     bool               // denied hits count, too
	elastic *elastic           // nil unless it is
	classes map[string]*limits // by class, of those with a share below 1
	other   *limits            // of all other classes; nil if they have all of the limit
}

// elastic is where to look for room, and what holds if there is some.
type elastic struct {
	roomy *limits
	below float64
	while *entry
}

// entry is one rule of a ruleset.
type entry struct {
	limiter *Limiter
	limits  *limits
	rule    *rules.Rule // the limits'
	bare    bool        // the rule has nothing that depends on the request but its key
	key     int         // rules of the same number have the same key of a request
	over    []*entry    // by override, those with a limit of their own; else nil
}

// Limiter decides by one rule. Its methods are safe for concurrent use and do not wait. For all
// that Check does not do, pass it to [Checker.Do] or [Checker.Wait].
type Limiter struct {
	// What a check without the lock reads stands together, and apart from what is written
	// meanwhile.
	limits atomic.Pointer[limits] // what it decides by at present
	after  time.Duration          // how long after its end a bucket still counts
	hashes bool                   // keys are hashed
	group  counter.Group

	id        uint64       // grows from limiter to limiter: the order in which counters are locked
	installed uint64       // the number of the install at which it was last in force
	overflow  atomic.Int64 // hits admitted without a counter
	badCosts  atomic.Int64 // hits whose own cost was none
	queues    queues
	told      RuleStats // what has been put down as past; the reporter's lock guards it
}

func newLimiter(h *counter.Host, id uint64, r *rules.Rule) *Limiter {
	l := &Limiter{
		hashes: h.Config.KeyHash != nil, id: id,
		after: time.Duration(r.Window.Live()-1) * r.Window.BucketSize(),
	}
	l.group.Init(h, r.Name, r.Window, isStrict(r, h))
	return l
}

// setLimits lets the limiter decide by these limits from now on.
func (l *Limiter) setLimits(t *limits) {
	l.group.Limits.Store(&t.Limits)
	l.limits.Store(t)
}

// Rule returns the rule that this limiter decides by. It must not be changed.
func (l *Limiter) Rule() *rules.Rule { return l.limits.Load().rule }

// class are the limits for a request's class.
func (t *limits) class(attrs identity.Attributes) *limits {
	if t.clauses == nil || t.clauses.classes == nil {
		return t
	}
	if class, ok := attrs.Get(t.rule.Priority.By); ok {
		if of, ok := t.clauses.classes[class]; ok {
			return of
		}
	}
	return t.clauses.other
}

// whole are the limits of those who have all of the limit.
func (t *limits) whole() *limits {
	if t.full != nil {
		return t.full
	}
	return t
}

// isInline says whether a counter is of limits that requests bring along.
func isInline(counter string) bool { return strings.HasPrefix(counter, inlinePrefix) }

// inlinePrefix begins the names of inline limits' counters.
const inlinePrefix = "own "
