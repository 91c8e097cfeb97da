package check

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/offpath-io/offpath/pkg/window"
)

// A counter is what this checker knows of one key under one rule.
//
// Per bucket it has two numbers: the *total*, which is base + in flight + pending, and the part of
// it that is *pending*. That is enough, because a checker has one report in flight per shard: when
// an answer says that the fleet's total is T, everything this counter ever took out of pending is
// in T, so the new total is max(old total, T + pending). For an alarm, which may or may not contain
// the report in flight, the same formula gives a floor. Own hits are in the total from the moment
// they are admitted and no message takes them out.
//
// Most checks do not take the lock: a check that does leaves behind an *allowance*, the number of
// hits that may still pass in this bucket, already added to total and pending; the next checks only
// take hits off it. The estimate falls as time passes and rises only by a merge, so an allowance
// stays right until the bucket ends or a merge withdraws it. Whoever takes the lock first withdraws
// the allowance (withdraw) and so sees exact numbers.
type counter struct {
	allowance atomic.Uint64 // see allowance
	until     atomic.Int64  // when the allowance ends, or the block; fleet time
	limiter   *Limiter
	long      *byte         // the key's text, if it is longer than short; never changes
	beyond    atomic.Uint32 // how many hits there was room for beyond the allowance; raised, if its limits were
	length    uint16        // of the key's text
	short     [18]byte
	mu        sync.Mutex

	// The first cache line ends here: a check that passes without the lock reads nothing below.

	next       *counter      // in a dirty stack
	newest     int64         // bucket of totals()[0] and pending()[0]
	active     atomic.Uint32 // when last reported or denied, in ticks
	generation uint8         // which of the shard's generations the base is of
	state      uint8         // see the state constants
	stripe     uint8         // which dirty stack and counters it uses; never changes
	overflow   bool          // the store has no room for the key, and nobody but this checker counts its hits
	more       *more         // nil for most
	inline     [4]int64
}

// more is what few counters have.
type more struct {
	counts []int64      // totals, newest first, then pending, where inline is too short
	ahead  *keyForecast // of a key near its limit
	// What was given back per bucket, newest first, and memory for net; nil for most.
	refunded, net []int64
	asks          bool // for refunds, with the next report

	drained *levelState // of a key that has a level
}

// keyForecast returns the counter's forecast, nil if it has none. The lock is held.
func (c *counter) keyForecast() *keyForecast {
	if c.more == nil {
		return nil
	}
	return c.more.ahead
}

// setForecast gives the counter a forecast, or takes it away. The lock is held.
func (c *counter) setForecast(a *keyForecast) {
	switch {
	case c.more != nil:
		c.more.ahead = a
	case a != nil:
		c.more = &more{ahead: a}
	}
}

// A counter's states, a bit each.
const (
	queued      uint8 = 1 << iota // in a dirty stack or waiting for its report
	inFlight                      // in the report that is not answered yet
	ageing                        // waiting in the queue of counters that may leave
	dead                          // has left the live map; nothing may be charged to it
	deferred                      // queued, but its key is quiet: its hits wait
	notDeferred                   // they may not wait any longer
	viewed                        // a copy to look at, see view
	informed                      // a message has said what others have admitted
)

// The allowance is one word, so that a check can take a hit off it and count itself by one atomic
// operation: hits left in the lower 24 bits, hits taken in the next 24, then the stamp of the
// limits that it was reckoned from, without which it is worth nothing (limits.go). With the top bit
// set it is the other way round: so many hits are turned away, and if that is none, all are: a
// block, which lets no hit pass until the time in until, however many come.

// raised is the bit of beyond that says that an elastic rule had room.
const raised = uint32(1) << 31

// newCell returns a counter of no hits for a key, whose text it copies.
func newCell(l *Limiter, key string, now int64) *counter {
	c := l.blankCell()
	c.limiter, c.newest = l, l.shape.Bucket(now)
	if len(key) > len(c.short) {
		key = strings.Clone(key)
	}
	c.setKey(key)
	if n := 2 * l.live; n > len(c.inline) {
		c.more = &more{counts: make([]int64, n)}
	}
	if l.shape.Drains() { // its counts are too many to be inline
		none := window.Level{Bucket: c.newest - int64(l.live)}
		c.more.drained = &levelState{level: none, own: none}
	}
	return c
}

// setKey gives a new counter its key's text, which it keeps if it is long.
func (c *counter) setKey(key string) {
	c.length, c.long = uint16(len(key)), nil
	if copy(c.short[:], key) < len(key) {
		c.long = unsafe.StringData(key)
	}
}

// key returns the key's text. It lies inside the counter if it is short, so that finding a counter
// and comparing its key is one access to memory.
func (c *counter) key() string {
	if c.long != nil {
		return unsafe.String(c.long, c.length)
	}
	return unsafe.String(&c.short[0], c.length)
}

// totals returns the totals per bucket, newest first, and pending how much of each is pending. The
// lock is held.
func (c *counter) totals() []int64 {
	if c.more != nil && c.more.counts != nil {
		return c.more.counts[:c.limiter.live]
	}
	return c.inline[:c.limiter.live]
}

func (c *counter) pending() []int64 {
	if c.more != nil && c.more.counts != nil {
		return c.more.counts[c.limiter.live:]
	}
	return c.inline[c.limiter.live : 2*c.limiter.live]
}

func (c *counter) is(state uint8) bool { return c.state&state != 0 }

// A verdict is what a check without the lock came to.
type verdict uint8

const (
	unknown verdict = iota // the lock is needed
	allowed
	denied  // by a block
	refused // and noted as such in the word
)

// take is the common check, of a hit of cost 1: one hit off the allowance that limits of this stamp
// have left behind, without the lock. left is how many more may pass, until when the allowance or
// the block ends.
func (c *counter) take(stamp uint64, now int64) (v verdict, left, until int64) {
	until = c.until.Load()
	if now >= until {
		return unknown, 0, 0
	}
	beyond := int64(c.beyond.Load() &^ raised) // before the swap, which waits for nothing then
	for {
		word := c.allowance.Load()
		if word&leftMask == 0 || word&stampMask != stamp {
			if word == blocked|stamp {
				return denied, 0, until
			}
			return unknown, 0, 0
		}
		if c.allowance.CompareAndSwap(word, word+oneAllowed) {
			if word&blocked != 0 {
				return refused, 0, until
			}
			return allowed, int64(word&leftMask) - 1 + beyond, until
		}
	}
}

// add puts own hits into the newest bucket. The lock is held.
func (c *counter) add(hits int64) {
	c.totals()[0] += hits
	c.pending()[0] += hits
}

// withdraw withdraws the allowance or block: what was left of it is not charged. The lock is held.
func (c *counter) withdraw(now int64) {
	if c.allowance.Load() == 0 { // which only a holder of the lock changes, and a swap takes as long as a lock
		return
	}
	word := c.allowance.Swap(0)
	left, taken := int64(word&leftMask), int64(word/oneTaken&leftMask)
	if left|taken == 0 { // nothing, or a block
		return
	}
	if word&blocked != 0 { // only counters with a forecast turn hits away so, and each is counted when it is
		c.limiter.noteDenied(c.key(), taken)
		c.keyForecast().Denied(c.keyForecast().part, taken)
		c.keyForecast().note(c.within(now), 0, taken)
		c.doubt(c.limiter.limits.Load(), c.within(now), 1, taken)
		return
	}
	c.record(taken)
	if a := c.keyForecast(); a != nil {
		a.counted = 0
	}
	c.add(-left)
	c.date(c.limiter.limits.Load(), min(now, c.until.Load()), taken)
	if c.keyForecast() != nil {
		c.keyForecast().note(c.within(now), taken, 0)
	}
	if p := c.permits(); p != nil {
		p.Spend(c.newest, -left)
	}
}

// putDown counts how many hits have been taken off the allowance, which stays where it is. The lock
// is held.
func (c *counter) putDown() {
	for {
		word := c.allowance.Load()
		taken := int64(word / oneTaken & leftMask)
		if word&blocked != 0 { // they have been counted
			return
		}
		// A forecast is to hear of all of them when the allowance ends, so it remembers how many
		// have been counted.
		if taken == 0 || c.keyForecast() != nil || c.allowance.CompareAndSwap(word, word&^(leftMask*oneTaken)) {
			c.record(taken)
			return
		}
	}
}

// record counts hits that were taken off an allowance, but for those that have been. The lock is
// held.
func (c *counter) record(taken int64) {
	if a := c.keyForecast(); a != nil {
		taken, a.counted = taken-int64(a.counted), uint32(taken)
	}
	c.limiter.tallies[c.stripe].admit(taken, taken)
}

// rotate makes newest the bucket of now, and returns the time that the counter's buckets are to be
// read at. That is now, or, if another goroutine has read the clock a moment later, in the next
// bucket, the beginning of that. Pending hits that leave every window become late. The lock is held
// and the allowance withdrawn.
func (c *counter) rotate(now int64) int64 {
	shape := c.limiter.shape
	by := shape.Bucket(now) - c.newest
	switch {
	case by < -1: // somebody had the time from before the clock was corrected
		c.pullBack(-by)
		return now
	case by <= 0:
		return max(now, shape.End(c.newest-1))
	}
	c.advance(by)
	c.foreseeLeaving(by)
	totals, pending := c.totals(), c.pending()
	keep := max(int64(len(totals))-by, 0)
	var late int64
	for _, n := range pending[keep:] {
		late += n
	}
	if late > 0 && !c.is(viewed) {
		c.limiter.addLate(late)
	}
	shift(totals, keep)
	shift(pending, keep)
	if c.keyForecast() != nil {
		shift(c.keyForecast().inFlight, keep)
	}
	if r := c.refunded(); r != nil {
		shift(r, keep)
	}
	if c.newest += by; c.overflow {
		c.overflow = c.limiter.slice(c.newest) == c.limiter.slice(c.newest-by)
	}
	return now
}

// pullBack makes newest an earlier bucket, which takes the hits of those after it. The lock is held
// and the allowance withdrawn.
func (c *counter) pullBack(by int64) {
	c.newest -= by
	all := [...][]int64{c.totals(), c.pending(), c.refunded(), nil}
	if a := c.keyForecast(); a != nil {
		all[3] = a.inFlight
	}
	for _, counts := range all {
		later := counts[:min(by, int64(len(counts)))]
		var sum int64
		for _, n := range later {
			sum += n
		}
		clear(later)
		if int64(len(counts)) > by {
			copy(counts, counts[by:])
			clear(counts[int64(len(counts))-by:])
		}
		if sum != 0 {
			counts[0] += sum
		}
	}
	if d := c.levelState(); d != nil {
		d.dates.Clear()
	}
	c.holdLevel()
}

// shift moves the first keep counts to the end and clears those before them.
func shift(counts []int64, keep int64) {
	copy(counts[int64(len(counts))-keep:], counts[:keep])
	clear(counts[:int64(len(counts))-keep])
}

// room settles and rotates, and returns how many hits still fit under these limits. The lock is
// held.
func (c *counter) room(t *limits, now int64) (room, at int64) {
	c.withdraw(now)
	at = c.rotate(now)
	if p := c.permits(); p != nil {
		return c.permitted(p, at), at
	}
	return c.remaining(t, at), at
}

// charge admits a hit. The lock is held and the counter current.
func (c *counter) charge(cost int64) {
	c.add(cost)
	if p := c.permits(); p != nil {
		p.Spend(c.newest, cost)
	}
	c.limiter.tallies[c.stripe].admit(1, cost)
	c.queue()
}

// queue lets the next flush see the counter. The lock is held.
func (c *counter) queue() {
	if !c.is(queued) {
		c.state |= queued
		c.limiter.checker.dirty[c.stripe].push(c)
	}
}

// arm leaves an allowance of hits behind, of the so many more that may pass. Only a queued counter
// may have one: the flush that takes the counter off its queue settles it, so no hit can be taken
// that no flush will see. The lock is held.
func (c *counter) arm(t *limits, at, hits, room int64) {
	if p := c.permits(); p != nil {
		c.armPermits(t, p, hits)
		return
	}
	c.armUntil(t, hits, room, c.datable(t, at))
}

// armUntil is arm with an end of the allowance's own.
func (c *counter) armUntil(t *limits, hits, room, until int64) {
	if hits <= 0 || t.restless || c.overflow || !c.is(queued) || c.limiter.shape.Kind == window.Leaky {
		return
	}
	hits = min(hits, mostLeft)
	c.add(hits)
	c.endAt(until)
	beyond := uint32(min(room-hits, int64(raised-1)))
	if t.raised {
		beyond |= raised
	}
	if c.beyond.Load() != beyond {
		c.beyond.Store(beyond)
	}
	c.allowance.Store(t.stamp | uint64(hits))
}

// endAt notes when the next allowance or block ends. Usually it is when the last one did, and an
// atomic store takes as long as a lock. The lock is held.
func (c *counter) endAt(until int64) {
	if c.until.Load() != until {
		c.until.Store(until)
	}
}

// end is when the newest bucket ends. The lock is held.
func (c *counter) end() int64 { return c.limiter.shape.End(c.newest) }

// block lets further checks be denied without the lock, until a hit of cost 1 fits again. The lock
// is held.
func (c *counter) block(t *limits, at int64) {
	if t.restless || c.overflow {
		return
	}
	if p := c.permits(); p != nil {
		c.blockPermits(t, p, at)
		return
	}
	after, ok := c.retryIn(t, 1, at)
	if !ok {
		after = time.Hour // a limit below 1: look again some time
	}
	c.endAt(at + int64(after))
	c.allowance.Store(blocked | t.stamp)
}

// merge raises the totals to what a message says, and returns by how much: hits of others that were
// not known of. The lock is held and the counter current.
func (c *counter) merge(bucket, total int64) (news int64) {
	i := c.newest - bucket
	totals := c.totals()
	if i < 0 || i >= int64(len(totals)) {
		return 0
	}
	if d := c.levelState(); d != nil && bucket <= d.level.Bucket { // it is in the level
		return 0
	}
	news = max(total+c.pending()[i]-totals[i], 0)
	totals[i] += news
	return news
}

// forgetBase leaves only the pending hits: the store has lost data, and its new totals replace the
// old ones. The lock is held and the allowance withdrawn.
func (c *counter) forgetBase() {
	copy(c.totals(), c.pending())
	clear(c.refunded())
	if d := c.levelState(); d != nil {
		d.level, d.slack = window.Level{Bucket: c.newest - int64(c.limiter.live)}, 0
		d.dates.Clear()
	}
}

// hasPending says whether any hit is pending. The lock is held and the allowance withdrawn.
func (c *counter) hasPending() bool { return anyNonZero(c.pending()) }

// isEmpty says whether the counter knows of no hit in its window. The lock is held, the counter
// rotated.
func (c *counter) isEmpty() bool {
	d := c.levelState()
	return !anyNonZero(c.totals()) && (d == nil || d.level.Parts == 0)
}

func anyNonZero(counts []int64) bool {
	for _, n := range counts {
		if n != 0 {
			return true
		}
	}
	return false
}

// A counter's activity is measured in ticks of 268 ms, so that it fits 32 bits (for 36 years; only
// differences are used) and is written seldom.
const tickBits = 28

func tick(now int64) uint32 { return uint32(now >> tickBits) }

func ticks(d time.Duration) uint32 { return uint32(int64(d) >> tickBits) }

// touch notes that the key is in use.
func (c *counter) touch(now int64) {
	if t := tick(now); c.active.Load() != t {
		c.active.Store(t)
	}
}

// silent returns for how many ticks the key has not been in use.
func (c *counter) silent(now int64) uint32 {
	// A difference that is negative, because clocks were read in another order, counts as none.
	if d := tick(now) - c.active.Load(); d < 1<<31 {
		return d
	}
	return 0
}
