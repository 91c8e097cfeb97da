// Package permit keeps the permits that one checker has of one key under strict enforcement.
//
// A permit is the right to one hit of one key in one bucket. The store grants permits, and never
// more than the limit lets a window hold. So even if a checker's counts are wrong, the limit holds
// as long as the checker spends only the permits that it was granted, in their bucket, and each of
// them once.
//
// The permits of one bucket are a lease: the numbers of permits granted, spent and returned, which
// only grow. The rest may be spent until the bucket ends by the store's clock. A checker knows that
// time only within an error, and stops spending earlier by that error. Then it returns the rest.
//
// An [Account] holds a key's leases, an estimate of how many permits the key will need, and the
// places of callers that wait for some. It decides when to ask for how many permits. It does not
// send messages: its owner, the counter, sends requests and passes the answers on.
package permit

import (
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/offpath-io/offpath/pkg/window"
)

// Account is the permits that one checker has of one key, and the callers that wait for some. The
// zero value has none. All methods need the owner's lock, except FreeAt and RefusedUnlocked, which
// may be called at any time.
type Account struct {
	leases    []lease // in the order of their buckets; few, as finished ones are forgotten
	forgotten int64   // the newest bucket of which a lease has been forgotten
	spent     int64   // in all leases, ever
	places    []*Place
	waiting   int64 // how many permits the callers in places need
	reserved  int64 // how many are reserved for callers that have been woken
	deciding  bool  // a caller that was woken decides now
	asked     int64 // the limit when the last request was made
	limit     int64 // the highest limit within which held or requested permits may have been granted

	demand  demand
	unseen  atomic.Int64  // hits refused without the lock, since demand was measured
	freeAt  atomic.Int64  // fleet time at which a permit can be free, by the last answer; 0: some were free then
	askAt   int64         // fleet time before which asking is in vain
	backOff time.Duration // the last wait between requests that were in vain
	looked  int64         // fleet time at which a check last asked for room

	named      int64 // the bucket that requests name, until one is answered
	unanswered bool  // a request for permits may have been granted, and was not answered
	asking     bool  // the owner is making a request, or has sent one
	scheduled  bool  // a review is scheduled
	lastSpent  int64 // spent at the last review
}

// lease is the permits of one bucket.
type lease struct {
	bucket                   int64
	granted, spent, returned int64 // growing
	sent, acked              int64 // of returned: in the last request, and known to have arrived
	closed                   bool  // nothing may be spent any more
}

// Moment is a fleet time at which an account is used.
type Moment struct {
	Shape  *window.Shape
	Now    int64 // fleet time
	Bucket int64 // the key's newest bucket: that of Now, or a later one if another caller's Now was later
	Error  int64 // how far Now may be off, in ns
}

// expiry returns until when permits of a bucket may be spent.
func (m *Moment) expiry(bucket int64) int64 { return m.Shape.End(bucket) - m.Error }

// Permits that have been idle for a tenth of their bucket, within these bounds, are returned.
const (
	leastIdle = 20 * time.Millisecond
	mostIdle  = time.Second
)

// idleAfter returns how long permits may be idle.
func (m *Moment) idleAfter() time.Duration {
	return min(max(m.Shape.BucketSize()/10, leastIdle), mostIdle)
}

// Forget marks all leases up to a bucket as forgotten: it is unknown how many of their permits were
// spent, so all count as spent.
func (a *Account) Forget(bucket int64) { a.forgotten = bucket }

// Newest returns the newest bucket of which the account has, or had, a lease.
func (a *Account) Newest() int64 {
	newest := a.forgotten
	for _, l := range a.leases {
		newest = max(newest, l.bucket)
	}
	return newest
}

// Copy makes the account a copy of another one, for a peek. It reuses its memory. The copy never
// asks.
func (a *Account) Copy(of *Account) {
	a.Reset()
	a.leases = append(a.leases, of.leases...)
	a.forgotten, a.spent = of.forgotten, of.spent
	a.places, a.waiting, a.reserved = of.places, of.waiting, of.reserved
	a.demand, a.askAt = of.demand, of.askAt
	a.freeAt.Store(of.freeAt.Load())
}

// Reset makes the account one that has no permits and never asks.
func (a *Account) Reset() { *a = Account{leases: a.leases[:0], asking: true} }

// left returns how many permits of a lease may be spent.
func (l *lease) left() int64 {
	if l.closed {
		return 0
	}
	return max(l.granted-l.spent-l.returned, 0)
}

// giveBack returns the rest of a lease's permits.
func (l *lease) giveBack() { l.returned = max(l.returned, l.granted-l.spent) }

// lease returns a bucket's lease; nil if there is none.
func (a *Account) lease(bucket int64) *lease {
	for i := range a.leases {
		if a.leases[i].bucket == bucket {
			return &a.leases[i]
		}
	}
	return nil
}

// Room returns how many hits may pass: none while callers wait, unless one of them decides now.
func (a *Account) Room(m Moment) int64 {
	a.looked = m.Now
	if len(a.places) > 0 && !a.deciding {
		return 0
	}
	return a.unspent(&m)
}

// unspent returns how many permits may be spent now, without those that are reserved for a caller.
func (a *Account) unspent(m *Moment) int64 {
	if m.Now >= m.expiry(m.Bucket) {
		return 0
	}
	return a.left(m.Bucket)
}

// left returns how many permits of a bucket may be spent, without those that are reserved for a
// caller.
func (a *Account) left(bucket int64) int64 {
	if l := a.lease(bucket); l != nil {
		return max(l.left()-a.reserved, 0)
	}
	return 0
}

// Allowance returns how many hits checks may take without the lock, of the given room. It holds a
// few back, so that a check takes the lock, and asks for more, before the last permit is spent. ask
// is true if it is time to ask now.
func (a *Account) Allowance(room int64) (hits int64, ask bool) {
	switch hits = room - a.demand.low; {
	case len(a.places) > 0:
		return 0, false
	case hits > 0:
		return hits, false
	}
	return room, a.demand.hot() && a.looked >= a.askAt
}

// Spend charges hits to a bucket's lease; negative hits are taken off it.
func (a *Account) Spend(bucket, hits int64) {
	if l := a.lease(bucket); l != nil {
		l.spent += hits
		a.spent += hits
		a.demand.asked += hits
	}
}

// Refused records that a hit was refused for lack of permits.
func (a *Account) Refused(now, cost int64) {
	a.demand.asked += cost
	a.demand.refused, a.demand.refusal = max(a.demand.refused, cost), now
}

// RefusedUnlocked is Refused for a hit of cost 1 while asking is in vain.
func (a *Account) RefusedUnlocked() { a.unseen.Add(1) }

// FreeAt returns the fleet time at which a permit can be free, by the last answer; 0 if some were
// free when it came.
func (a *Account) FreeAt() int64 { return a.freeAt.Load() }

// InVainUntil returns the fleet time before which asking is in vain.
func (a *Account) InVainUntil() int64 { return a.askAt }

// learn records how many permits of a bucket were granted in all. If its lease has been forgotten,
// all of them count as spent.
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

// known returns how many permits of a bucket this checker knows to have been granted to it; ok is
// false if the lease has been forgotten.
func (a *Account) known(bucket int64) (granted int64, ok bool) {
	if l := a.lease(bucket); l != nil {
		return l.granted, true
	}
	return 0, bucket > a.forgotten
}

// close ends the leases that have expired, and returns the rest of their permits.
func (a *Account) close(m *Moment) {
	for i := range a.leases {
		if l := &a.leases[i]; !l.closed && m.Now >= m.expiry(l.bucket) {
			l.closed = true
			l.giveBack()
		}
	}
}

// End ends all leases, and returns the rest of their permits.
func (a *Account) End() {
	for i := range a.leases {
		a.leases[i].closed = true
	}
	a.giveBack()
}

// giveBack returns the rest of all leases' permits. More permits may be granted in them, and spent.
func (a *Account) giveBack() {
	for i := range a.leases {
		a.leases[i].giveBack()
	}
}

// forget drops the leases of ended buckets that need no more messages.
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

// Owes returns whether the store may not know yet of some returned permits.
func (a *Account) Owes() bool {
	return slices.ContainsFunc(a.leases, func(l lease) bool { return l.returned > l.acked })
}

// IsOpen returns whether a request or a return is outstanding, so that the store may count permits
// that this checker does not have.
func (a *Account) IsOpen() bool { return a.asking || a.unanswered || a.Owes() }

// IsIdle returns whether the account may be dropped: it has no permits, no callers, and no messages
// to send or receive.
func (a *Account) IsIdle(m Moment) bool {
	a.forget(&m)
	return !a.IsOpen() && len(a.places) == 0 && a.reserved == 0 &&
		!slices.ContainsFunc(a.leases, func(l lease) bool { return l.left() > 0 })
}

// Review must be called at the time that [Account.Schedule] returned. It returns the permits that
// have expired, and those that no hit has used since the last review. trip and share are as for
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

// Schedule returns when to review the account; ok is false if there is no need, or if a review is
// scheduled already.
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
	return max(due, m.Now+1), true // not at once again, even if the clock's error has grown
}

// measure updates the estimate of demand. trip and share are as for Request.
func (a *Account) measure(m *Moment, trip time.Duration, share int64) {
	a.demand.measure(m.Now, a.unseen.Swap(0), trip, m.idleAfter(), share)
}

// Waiter is a caller that waits for permits, of one account or of several.
type Waiter interface {
	// Wake makes the caller decide: with permits reserved for it, or because there will be none. It
	// is called with the owner's lock held, once for each place, and must not block.
	Wake(reserved bool)
}

// Place is a caller's place in the queue for an account's permits.
type Place struct {
	waiter Waiter
	cost   int64
	// woken: it does not wait here any more; reserved: the reason is that permits are reserved for
	// it.
	woken, reserved bool
}
