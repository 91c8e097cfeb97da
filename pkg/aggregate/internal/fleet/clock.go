// Package fleet is an aggregator's knowledge of the fleet, its time and its live checkers, and its
// own time.
package fleet

import (
	"sync"
	"time"
)

// Clock tells the fleet's time. It does not step when the store's clock is set.
//
// The fleet's time is the store's clock plus an offset that the store keeps on record. One
// aggregator, the *keeper*, sees to it; all follow the store and the keeper, where these agree with
// their own time. When the store's clock is set, or another node with another clock takes over, the
// keeper goes on by its own clock and changes the offset on record. So the next keeper, and an
// aggregator that starts alone, go on as well: if the fleet's time stepped, hits would be late or
// refused until every checker had followed.
//
// The keeper then lets the offset return to 0, by trimShare: in the long run the store's clock is
// the right one, and calendar windows and blocks that end at a time of day go by real time. At this
// pace it is a small part of the drift of crystals that all errors allow for.
//
// Each comparison of two clocks is off by at most half its round trip. A good one takes precedence,
// until it is so old that the clocks may have drifted apart by more than a newer one is off. Where
// two clocks contradict each other, a third one says which of them is right.
//
// The zero value is a clock that knows nothing. Its methods are safe for concurrent use; times are
// in ns.
type Clock struct {
	mu      sync.Mutex
	store   look  // at the store's clock, without the offset on record
	kept    int64 // the offset on record
	first   look  // at the fleet's time by the store, before it is known: as first seen or recorded
	peer    look  // at another aggregator's fleet time: the best
	witness look  // the newest at the time of one that is not the keeper
	looked  int64 // own time of the last look at the store's clock
	doubted int64 // own time since which looks have contradicted; 0 if they do not

	heard   look  // at the fleet's time by another one's last message, as if that had taken no time
	asked   int64 // own time of the last Start
	unknown int64 // for how long it has not been known while this process ran
	waited  int64 // the same, since it last stood still
	known   bool
	offset  int64 // the fleet's time less our own
	slewed  int64 // own time at which offset was right
	target  look  // where offset is going
	rough   int64 // how far off the offset may be because of the first look, or a better one since
}

// look is one comparison: a clock less our own, right to ± half. It was begun at own time sent, and
// ended at own time at.
type look struct {
	offset, half, sent, at int64
	taken                  bool
}

const (
	// slewShare is the part of the elapsed time by which the fleet's time slews at most. Checkers
	// can follow at twice that pace.
	slewShare = 40
	// trimShare is the part of the elapsed time by which the offset on record returns to 0.
	trimShare = 50_000
	// maxTrim is for how long it returns at most from one look at the store's clock to the next.
	maxTrim = int64(10 * time.Second)
	// driftShare bounds how fast two clocks drift apart: by 220 ppm, as crystals are good to 100
	// ppm, and the offset returns to 0 by 20.
	driftShare = 4545
	// allowed is the age of a look up to which Error leaves out drift: checkers allow for 1 ms of
	// it.
	allowed = driftShare * int64(time.Millisecond)
	// slack is by how much looks may contradict without a cause.
	slack = int64(5 * time.Millisecond)
	// delay is how long a message from another aggregator takes at most, as a rule.
	delay = int64(time.Second / 2)
	// still is how much time has passed at least from one Start to the next if this process stood
	// still, and how long such a message takes at most.
	still = int64(time.Second)
	// good is the largest error of a look that sets anything at once; patience is how long to wait
	// for such a look.
	good     = int64(5 * time.Millisecond)
	patience = int64(3 * time.Second)
	// recorded is the largest error of a look that may change the offset on record before
	// believeStore is over.
	recorded = int64(50 * time.Millisecond)
	// believeStore is after how long an aggregator believes a store that contradicts it, or what it
	// hears, if it is not the keeper, and can measure none: as where NATS is away, or forbids
	// aggregators to hear each other.
	believeStore = int64(time.Minute)
)

// halfAt is how far off a look is at an own time.
func (l look) halfAt(now int64) int64 { return l.half + max(now-l.at, 0)/driftShare }

// agrees says whether two looks can both be right.
func (l look) agrees(o look, now int64) bool {
	return abs(l.offset-o.offset) <= l.halfAt(now)+o.halfAt(now)+slack
}

// take replaces a look by a newer one that is better, or shows that one of the clocks was set.
func (l *look) take(n look) {
	if !l.taken || n.half <= l.halfAt(n.at) || !l.agrees(n, n.at) {
		*l = n
	}
}

// ObserveStore takes in that the store's clock showed theirs at some moment between own times sent
// and got, with an offset on record; keeper says whether this aggregator is the keeper, and hears
// the others, if there are any. It returns the offset that the store is to keep from now on.
func (c *Clock) ObserveStore(sent, got, theirs, kept int64, keeper bool) (keep int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	half := max(got-sent, 0) / 2
	c.store.take(look{theirs - (sent + half), half, sent, got, true})
	found := abs(kept-c.kept) > slack // a keeper has found that the store's clock was set
	c.kept = kept
	since := min(got-c.looked, maxTrim)
	c.looked = got
	by := c.byStoreLocked()
	switch {
	case !c.known:
		if !c.first.taken || found || by.half < c.first.half && by.agrees(c.first, got) {
			c.first = by
		}
	case c.followLocked(by, got):
		if keeper {
			most := since / trimShare
			c.kept -= min(max(kept, -most), most)
		}
	default:
		own, other, waited := c.judgeLocked(by, got)
		longer := got-c.doubted >= believeStore
		switch {
		case other, longer && !keeper: // our own clock was suspended
			c.setLocked(by, got)
		case !keeper, by.halfAt(got) > recorded && !longer:
		case own, waited: // the store's clock was set
			c.doubted = 0
			c.kept = c.target.offset - c.store.offset
		}
	}
	return c.kept
}

// byStoreLocked is the fleet's time as the store tells it.
func (c *Clock) byStoreLocked() look {
	by := c.store
	by.offset += c.kept
	return by
}

// ObservePeer takes in that another aggregator's fleet time was theirs at own time got, right to ±
// half, in an exchange of messages begun at own time sent; keeper says that the other one is the
// keeper. One that is not only testifies, or is followed in place of a bad first look that the store
// contradicts.
func (c *Clock) ObservePeer(sent, got, theirs, half int64, keeper bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	by := look{theirs - got, half, sent, got, true}
	c.peer.take(by)
	if !keeper {
		c.witness = by
	}
	switch {
	case !c.known:
		return
	case !keeper:
		if doubted := c.doubted; doubted != 0 && c.rough > good && by.half < c.rough {
			c.followLocked(by, got)
			c.doubted = doubted // a better time puts off nothing
		}
		return
	case c.followLocked(by, got):
		return
	}
	own, other, waited := c.judgeLocked(by, got)
	switch {
	case own: // it is the keeper whose clock is wrong
		c.doubted = 0
	case other, c.looked > c.doubted && (waited || by.half <= good): // the store contradicts, too
		c.setLocked(by, got)
	}
}

// judgeLocked says whether own time is right, or a look that contradicts it: what a third clock
// agrees with, and only that. The third one must have been looked at since they contradict: a
// machine that was suspended does not know it, and what it has seen before is out of date. If
// neither is known to be right, waited says whether it has waited long enough for that.
func (c *Clock) judgeLocked(by look, now int64) (own, other, waited bool) {
	if c.doubted == 0 {
		c.doubted = now
	}
	waited = now-c.doubted >= patience
	if by.half > good && !waited { // a better one may come
		return false, false, false
	}
	third := c.witness
	if third.sent < c.doubted {
		return false, false, waited
	}
	own, other = third.agrees(c.target, now), third.agrees(by, now)
	return own && !other, other && !own, waited
}

// followLocked has the fleet's time slew to a look, if that is better than the one that it is
// slewing to. It returns false if these two contradict each other.
func (c *Clock) followLocked(by look, now int64) bool {
	c.slewLocked(now)
	if !by.agrees(c.target, now) {
		return false
	}
	c.doubted = 0
	if by.halfAt(now) > c.target.halfAt(now) {
		return true
	}
	c.target = by
	off := abs(by.offset - c.offset)
	if c.rough > good && by.half < c.rough/2 && off > slack { // the first look was a bad one
		c.offset = by.offset
	}
	c.rough = min(c.rough, by.half)
	return true
}

func (c *Clock) setLocked(by look, now int64) {
	c.known, c.offset, c.slewed, c.target, c.rough = true, by.offset, now, by, by.half
	c.doubted = 0
}

// Hear takes in that another aggregator, which may not hear this one, has told the fleet's time,
// right to ± err, in a message that came at own time now.
func (c *Clock) Hear(now, theirs, err int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = look{theirs - now, err, now, now, true}
}

// Start sets the fleet's time if it is not known and can be, at own time now: by an aggregator that
// knows it, else, once this one has listened for others, by the store. It waits for a good look,
// for at most 3 s since its first call, or since this process last stood still; told says that an
// aggregator that knows the time is heard. If that one contradicts the store, or the store this
// one's first look at it, the store's clock was set: then it waits until the two can be measured,
// or the keeper has changed the offset on record. All in all it waits for up to a minute.
func (c *Clock) Start(now int64, listened, told bool) (known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked != 0 {
		took := max(now-c.asked, 0)
		c.unknown += min(took, still)
		if c.waited += took; took > still { // what it has heard and seen may be out of date
			c.waited = 0
		}
	}
	c.asked = now
	waits := c.waited < patience && c.unknown < believeStore
	switch {
	case c.known:
	case c.peer.taken:
		if !waits || c.peer.half <= good {
			c.setLocked(c.peer, now)
		}
	case waits && (told || !listened):
	case c.store.taken:
		by := c.byStoreLocked()
		wasSet := !c.isToldLocked(by, delay, now) ||
			c.isToldLocked(c.first, still, now) && !by.agrees(c.first, now)
		if told && wasSet && c.unknown < believeStore {
			break
		}
		if !waits || by.half <= good {
			c.setLocked(by, now)
		}
	}
	return c.known
}

// isToldLocked says whether a look may be right by another aggregator's last message, if that took
// at most that long.
func (c *Clock) isToldLocked(l look, took, now int64) bool {
	ahead, most := l.offset-c.heard.offset, c.heard.half+l.halfAt(now)+slack
	return !c.heard.taken || ahead >= -most && ahead <= took+most
}

// Wants says whether another look at the store's clock is wanted soon: the last one was too bad to
// set anything, or it was good while the time is known badly, as when this keeper has just put such
// a time on record.
func (c *Clock) Wants() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.known:
		return c.store.half > good
	case c.doubted != 0:
		return c.looked-c.doubted < patience
	}
	return c.target.half > good && c.store.half <= good
}

// Known says whether the fleet's time is known.
func (c *Clock) Known() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known
}

// Time converts own time to the fleet's. While that is not known, it is what the store says.
func (c *Clock) Time(now int64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		return now + c.byStoreLocked().offset
	}
	c.slewLocked(now)
	return now + c.offset
}

// Earliest is the earliest that the fleet's time may be at own time now.
func (c *Clock) Earliest(now int64) int64 { return c.Time(now) - c.Error(now) }

func (c *Clock) slewLocked(now int64) {
	if most := (now - c.slewed) / slewShare; most > 0 {
		c.offset += min(max(c.target.offset-c.offset, -most), most)
		c.slewed = now
	}
}

// Tell is what to tell another aggregator at own time now: the fleet's time as this one knows it,
// though it may still be on its way there, and how far off that may be.
func (c *Clock) Tell(now int64) (time, err int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return now + c.target.offset, c.target.halfAt(now)
}

// Error is how far off the fleet's time may be at own time now: by the look that it follows, by
// what it has not slewed yet, and by what the clocks have drifted apart since, beyond the 1 ms that
// checkers allow for. Until it is known, that is any time.
func (c *Clock) Error(now int64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slewLocked(now)
	return c.target.halfAt(now-allowed) + abs(c.target.offset-c.offset)
}

func abs(n int64) int64 {
	if n < 0 {
		return -n
	}
	return n
}
