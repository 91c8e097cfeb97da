// Package permit keeps what one checker holds of one key under strict enforcement.
//
// A permit is the right to one hit of one key in one bucket. The store grants permits, and never
// more than the limit lets a window hold. So however wrong a checker's counts are, the limit holds
// as long as the checker spends only what it was granted, in the bucket that it was granted for,
// and once.
//
// The permits of one bucket are a lease: growing numbers of those granted, spent and returned. What
// is left may be spent until the bucket ends by the store's clock. A checker knows that time only
// within an error, and stops spending that much earlier. Then it returns what is left.
//
// An [Account] holds a key's leases, an estimate of how many permits the key will need, and the
// places of callers who wait for some. It decides what to ask for and when. It knows no messages:
// its owner sends requests and hands over the answers.
package permit

import (
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/offpath-io/offpath/pkg/window"
)

// Account is what one checker holds of one key. The zero value holds nothing. All methods need the
// owner's lock, but for FreeAt and RefusedUnlocked, which may be called at any time.
type Account struct {
	leases    []lease // in the order of their buckets; few, as finished ones are forgotten
	forgotten int64   // the newest bucket of which a lease has been forgotten
	spent     int64   // in all leases, ever
	places    []*Place
	waiting   int64 // how many permits the callers in places need
	reserved  int64 // how many are kept for callers who have been woken
	turn      bool  // one of these decides now
	asked     int64 // the limit when the last request was made
	limit     int64 // the highest limit within which what is held or requested may be granted

	demand  demand
	unseen  atomic.Int64  // hits refused without the lock, since demand was measured
	freeAt  atomic.Int64  // fleet time at which a permit can be free, by the last answer; 0: then
	askAt   int64         // fleet time before which asking is in vain
	backOff time.Duration // the last one between requests that were in vain
	looked  int64         // fleet time at which a check last asked for room

	named      int64 // the bucket that requests name, until one is answered
	unanswered bool  // a request for permits may have been granted, and was not answered
	asking     bool  // the owner is making a request, or has sent one
	scheduled  bool  // a review is
	lastSpent  int64 // what spent was at the last review
}

// lease is the permits of one bucket.
type lease struct {
	bucket                   int64
	granted, spent, returned int64 // growing
	sent, acked              int64 // of returned: as in the last request, and what surely arrived
	closed                   bool  // nothing may be spent any more
}

// Moment is a time of the fleet's at which an account is used.
type Moment struct {
	Shape  *window.Shape
	Now    int64 // fleet time
	Bucket int64 // the key's newest: that of Now, or a later one if another caller's Now was later
	Error  int64 // how far Now may be off, in ns
}

// expiry is until when permits of a bucket may be spent.
func (m *Moment) expiry(bucket int64) int64 { return m.Shape.End(bucket) - m.Error }

// Permits are returned that have been idle for a tenth of their bucket, within these bounds.
const (
	leastIdle = 20 * time.Millisecond
	mostIdle  = time.Second
)

// idleAfter is how long permits may lie idle.
func (m *Moment) idleAfter() time.Duration {
	return min(max(m.Shape.BucketSize()/10, leastIdle), mostIdle)
}

// Forget makes the account one whose leases up to a bucket have been forgotten: how many of their
// permits were spent is unknown, and all are taken to be.
func (a *Account) Forget(bucket int64) { a.forgotten = bucket }

// Newest returns the newest bucket of which the account has, or had, a lease.
func (a *Account) Newest() int64 {
	newest := a.forgotten
	for _, l := range a.leases {
		newest = max(newest, l.bucket)
	}
	return newest
}

// Copy makes a a copy of another account, to see what that would decide. The memory of a is reused.
// The copy never asks.
func (a *Account) Copy(of *Account) {
	a.Reset()
	a.leases = append(a.leases, of.leases...)
	a.forgotten, a.spent = of.forgotten, of.spent
	a.places, a.waiting, a.reserved = of.places, of.waiting, of.reserved
	a.demand, a.askAt = of.demand, of.askAt
	a.freeAt.Store(of.freeAt.Load())
}

// Reset makes a an account that holds nothing and never asks.
func (a *Account) Reset() { *a = Account{leases: a.leases[:0], asking: true} }

// left is how many permits of a lease may be spent.
func (l *lease) left() int64 {
	if l.closed {
		return 0
	}
	return max(l.granted-l.spent-l.returned, 0)
}

// giveBack returns what is left of a lease.
func (l *lease) giveBack() { l.returned = max(l.returned, l.granted-l.spent) }

// lease returns a bucket's lease, or nil.
func (a *Account) lease(bucket int64) *lease {
	for i := range a.leases {
		if a.leases[i].bucket == bucket {
			return &a.leases[i]
		}
	}
	return nil
}

// Room returns how many hits may pass: none while callers wait whose turn comes first.
func (a *Account) Room(m Moment) int64 {
	a.looked = m.Now
	if len(a.places) > 0 && !a.turn {
		return 0
	}
	return a.unspent(&m)
}

// unspent is how many permits may be spent, beside those that are kept for a caller.
func (a *Account) unspent(m *Moment) int64 {
	if m.Now >= m.expiry(m.Bucket) {
		return 0
	}
	return a.left(m.Bucket)
}

// left is how many permits of a bucket may be spent, beside those that are kept for a caller.
func (a *Account) left(bucket int64) int64 {
	if l := a.lease(bucket); l != nil {
		return max(l.left()-a.reserved, 0)
	}
	return 0
}

// Allowance returns how many hits checks may take without the lock, when there is room for some. A
// few are kept back, so that a check takes the lock before the last permit is gone. It also says
// whether that is to ask for more now.
func (a *Account) Allowance(room int64) (hits int64, ask bool) {
	switch hits = room - a.demand.low; {
	case len(a.places) > 0:
		return 0, false
	case hits > 0:
		return hits, false
	}
	return room, a.demand.hot() && a.looked >= a.askAt
}

// Spend charges hits to a bucket's lease, or takes them off again if they are negative.
func (a *Account) Spend(bucket, hits int64) {
	if l := a.lease(bucket); l != nil {
		l.spent += hits
		a.spent += hits
		a.demand.asked += hits
	}
}

// Refused takes in that a hit was refused for lack of permits.
func (a *Account) Refused(now, cost int64) {
	a.demand.asked += cost
	a.demand.refused, a.demand.refusal = max(a.demand.refused, cost), now
}

// RefusedUnlocked is Refused for a hit of cost 1 while asking is in vain.
func (a *Account) RefusedUnlocked() { a.unseen.Add(1) }

// FreeAt returns the fleet time at which a permit can be free by the last answer; 0 if it says
// then.
func (a *Account) FreeAt() int64 { return a.freeAt.Load() }

// InVainUntil returns the fleet time before which asking is in vain.
func (a *Account) InVainUntil() int64 { return a.askAt }

// learn takes in how many permits of a bucket were granted in all. If its lease has been forgotten,
// all of them are taken to be spent.
func (a *Account) learn(bucket, granted int64) {
	l := a.lease(bucket)
	if l == nil {
		if granted == 0 && bucket > a.forgotten {
			return
		}
		at, _ := slices.BinarySearchFunc(a.leases, bucket,
			func(l lease, b int64) int { return int(min(max(l.bucket-b, -1), 1)) })
		a.leases = slices.Insert(a.leases, at, lease{bucket: bucket})
		l = &a.leases[at]
		if bucket <= a.forgotten {
			l.spent = granted
		}
	}
	l.granted = max(l.granted, granted)
	if l.closed {
		l.giveBack()
	}
}

// known is how many permits of a bucket this checker knows to have been granted to it; ok is false
// if it has forgotten.
func (a *Account) known(bucket int64) (granted int64, ok bool) {
	if l := a.lease(bucket); l != nil {
		return l.granted, true
	}
	return 0, bucket > a.forgotten
}

// close ends the leases that have expired, and returns what is left of them.
func (a *Account) close(m *Moment) {
	for i := range a.leases {
		if l := &a.leases[i]; !l.closed && m.Now >= m.expiry(l.bucket) {
			l.closed = true
			l.giveBack()
		}
	}
}

// End ends all leases, and returns what is left of them.
func (a *Account) End() {
	for i := range a.leases {
		a.leases[i].closed = true
	}
	a.giveBack()
}

// giveBack returns what is left of all leases. More of their permits may be granted, and spent.
func (a *Account) giveBack() {
	for i := range a.leases {
		a.leases[i].giveBack()
	}
}

// forget drops the leases of ended buckets of which nothing has to be said any more.
func (a *Account) forget(m *Moment) {
	s, now := m.Shape, m.Now
	if a.unanswered && s.Gone(a.named, now) {
		a.unanswered = false
	}
	a.leases = slices.DeleteFunc(a.leases, func(l lease) bool {
		over := s.Gone(l.bucket, now) || l.closed && l.acked >= l.returned &&
			l.bucket < s.Bucket(now) && (!a.unanswered || a.named != l.bucket)
		if over {
			a.forgotten = max(a.forgotten, l.bucket)
		}
		return over
	})
}

// Owes says whether permits have been returned that the store may not know of.
func (a *Account) Owes() bool {
	return slices.ContainsFunc(a.leases, func(l lease) bool { return l.returned > l.acked })
}

// IsOpen says whether the store may hold permits granted that it has not got back.
func (a *Account) IsOpen() bool { return a.asking || a.unanswered || a.Owes() }

// IsIdle says whether the account may go: it has nothing to say, to hear, or to spend.
func (a *Account) IsIdle(m Moment) bool {
	a.forget(&m)
	return !a.IsOpen() && len(a.places) == 0 && a.reserved == 0 &&
		!slices.ContainsFunc(a.leases, func(l lease) bool { return l.left() > 0 })
}

// Review is to be called at the time that [Account.Schedule] gave. It returns the permits that have
// expired, and those that no hit has used since the last review. trip and share are as for
// [Account.Request].
func (a *Account) Review(m Moment, trip time.Duration, share int64) {
	a.scheduled = false
	a.close(&m)
	if a.spent == a.lastSpent && a.reserved == 0 {
		a.giveBack()
	}
	a.lastSpent = a.spent
	a.forget(&m)
	a.measure(&m, trip, share)
}

// Schedule returns when to review the account; ok is false if there is no reason to, or if a review
// is scheduled.
func (a *Account) Schedule(m Moment) (due int64, ok bool) {
	if a.scheduled {
		return 0, false
	}
	due = math.MaxInt64
	for i := range a.leases {
		if l := &a.leases[i]; !l.closed {
			due = min(due, m.expiry(l.bucket), m.Now+int64(m.idleAfter()))
		}
	}
	if m.Now >= m.expiry(m.Bucket) && (a.demand.hot() || a.waiting > 0) {
		due = min(due, m.Shape.End(m.Bucket)) // to ask as soon as the next bucket begins
	}
	if due == math.MaxInt64 {
		return 0, false
	}
	a.scheduled = true
	return max(due, m.Now+1), true // not again at once, whatever the error has become
}

// measure brings the expectation up to date. trip and share are as for Request.
func (a *Account) measure(m *Moment, trip time.Duration, share int64) {
	a.demand.measure(m.Now, a.unseen.Swap(0), trip, m.idleAfter(), share)
}

// Waiter is a caller who waits for permits, of one account or of several.
type Waiter interface {
	// Wake lets the caller decide: with permits reserved for it, or since there are none to be had.
	// It is called with the owner's lock, once for each place, and must not block.
	Wake(reserved bool)
}

// Place is a caller's place among those who wait for an account's permits.
type Place struct {
	waiter Waiter
	cost   int64
	// woken: it does not wait here any more; reserved: because permits are kept for it.
	woken, reserved bool
}
