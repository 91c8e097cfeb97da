package check

import (
	"math"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// A limiter under strict enforcement spends permits and nothing else. A permit is the right to one hit of
// one key in one bucket; the store grants them (lease.go asks for them), and never more than the limit lets
// a window hold. So however wrong a checker's counts are, the limit holds as long as it spends what it was
// granted, in the bucket that it was granted for, and once.
//
// The permits of one bucket are a *lot*: growing numbers of those granted, spent and returned. What is left
// may be spent until the bucket ends by the fleet's clock, and so, as a checker's clock is not exact, until
// the end less the clock's error (fleetclock). After that what is left is given back.

// strict is what a limiter under strict enforcement has beside the rest.
type strict struct {
	// forgotten is the newest bucket of which a cell that has left the live map had been granted permits.
	// What it had spent is not known any more, and counts as all there was.
	forgotten atomic.Int64

	// By behind's lock: the request that index belongs to, and the rule's index in it.
	build uint64
	index int
}

// isStrict says whether a rule's limiter is to spend permits. A local limiter knows everything anyway.
func isStrict(r *rules.Rule, l Link) bool { return r.Enforcement == rules.Strict && l != nil }

func newStrict(r *rules.Rule, l Link) *strict {
	if !isStrict(r, l) {
		return nil
	}
	s := new(strict)
	s.forgotten.Store(math.MinInt64)
	return s
}

// strictCell is the memory of a strict limiter's cell. It keeps the permits out of all other cells, which
// fill two cache lines exactly.
type strictCell struct {
	cell
	permits permits
}

// blankCell returns the memory for a limiter's cell.
func (l *Limiter) blankCell() *cell {
	if l.strict == nil {
		return new(cell)
	}
	s := new(strictCell)
	s.permits.forgotten = l.strict.forgotten.Load()
	return &s.cell
}

// permits returns the cell's permits; nil if its limiter is not strict.
func (c *cell) permits() *permits {
	if c.limiter.strict == nil {
		return nil
	}
	return &(*strictCell)(unsafe.Pointer(c)).permits // blankCell has made it so
}

// permits are what one checker has of one key. The cell's lock guards all but the atomic fields.
type permits struct {
	lots      []lot   // in the order of their buckets; few, as those that are settled are forgotten
	forgotten int64   // the newest bucket of which a lot has been forgotten
	spent     int64   // in all lots, ever
	waiters   []*spot // of those who have not been woken, in their order
	waiting   int64   // how many permits these need
	reserved  int64   // how many are kept for those who have been
	turn      bool    // one of the latter decides now
	asked     int64   // the limit when the last request was made
	limit     int64   // the highest limit within which what there is, or is on its way, may have been granted

	demand  demand
	unseen  atomic.Int64 // hits refused without the lock, since demand was measured
	freeAt  atomic.Int64 // fleet time at which a permit can be free, by the last grant; 0 if one was then
	askAt   int64        // fleet time before which asking again is in vain
	patient time.Duration
	looked  int64 // fleet time at which a check last looked at the permits

	spoken    int64 // bucket that requests speak of, until one is answered
	unsettled bool  // none has been
	asking    bool  // on the way into a request, or in one
	watched   bool  // waiting for a look
	lastSpent int64 // what spent was at the last look
	next      *cell // in the stack of those who ask
}

// lot is one bucket's permits.
type lot struct {
	bucket                   int64
	granted, spent, returned int64 // growing
	sent, acked              int64 // of returned: what the last request said, and what is known to have arrived
	closed                   bool  // nothing may be spent any more
}

// left is how many permits of a lot may be spent.
func (t *lot) left() int64 {
	if t.closed {
		return 0
	}
	return max(t.granted-t.spent-t.returned, 0)
}

// giveBack returns what is left of a lot.
func (t *lot) giveBack() { t.returned = max(t.returned, t.granted-t.spent) }

// lot returns a bucket's lot, or nil.
func (p *permits) lot(bucket int64) *lot {
	for i := range p.lots {
		if p.lots[i].bucket == bucket {
			return &p.lots[i]
		}
	}
	return nil
}

// spend charges hits to a bucket's lot, or takes them off again if they are negative.
func (p *permits) spend(bucket, hits int64) {
	if t := p.lot(bucket); t != nil {
		t.spent += hits
		p.spent += hits
		p.demand.asked += hits
	}
}

// learn takes in how many permits of a bucket were granted in all. If its lot has been forgotten, nobody
// knows how many of them were spent, and all are taken to be.
func (p *permits) learn(bucket, granted int64) {
	t := p.lot(bucket)
	if t == nil {
		if granted == 0 && bucket > p.forgotten {
			return
		}
		at, _ := slices.BinarySearchFunc(p.lots, bucket, func(t lot, b int64) int { return int(min(max(t.bucket-b, -1), 1)) })
		p.lots = slices.Insert(p.lots, at, lot{bucket: bucket})
		t = &p.lots[at]
		if bucket <= p.forgotten {
			t.spent = granted
		}
	}
	t.granted = max(t.granted, granted)
	if t.closed {
		t.giveBack()
	}
}

// known is how many permits of a bucket this checker knows to have been granted to it; ok is false if it
// has forgotten.
func (p *permits) known(bucket int64) (granted int64, ok bool) {
	if t := p.lot(bucket); t != nil {
		return t.granted, true
	}
	return 0, bucket > p.forgotten
}

// left is how many permits of a bucket may be spent, by others than the waiters they are kept for.
func (p *permits) left(bucket int64) int64 {
	if t := p.lot(bucket); t != nil {
		return max(t.left()-p.reserved, 0)
	}
	return 0
}

// close ends the lots whose time is over at the fleet's time now, by a clock with this error, and gives
// back what is left of them. The cell is settled.
func (p *permits) close(s window.Shape, now, err int64) {
	for i := range p.lots {
		if t := &p.lots[i]; !t.closed && now >= s.End(t.bucket)-err {
			t.closed = true
			t.giveBack()
		}
	}
}

// end ends all lots, and gives back what is left of them. The cell is settled.
func (p *permits) end() {
	for i := range p.lots {
		p.lots[i].closed = true
		p.lots[i].giveBack()
	}
}

// forget drops the lots of ended buckets of which nothing has to be said any more.
func (p *permits) forget(s window.Shape, now int64) {
	if p.unsettled && s.Gone(p.spoken, now) {
		p.unsettled = false
	}
	p.lots = slices.DeleteFunc(p.lots, func(t lot) bool {
		over := s.Gone(t.bucket, now) ||
			t.closed && t.acked >= t.returned && t.bucket < s.Bucket(now) && (!p.unsettled || p.spoken != t.bucket)
		if over {
			p.forgotten = max(p.forgotten, t.bucket)
		}
		return over
	})
}

// owes says whether permits have been given back that the store may not know of.
func (p *permits) owes() bool {
	return slices.ContainsFunc(p.lots, func(t lot) bool { return t.returned > t.acked })
}

// idle says whether a cell may leave: it has nothing to say, to hear, or to spend.
func (p *permits) idle() bool {
	return !p.asking && !p.unsettled && len(p.waiters) == 0 && p.reserved == 0 && !p.owes() &&
		!slices.ContainsFunc(p.lots, func(t lot) bool { return t.left() > 0 })
}

// leave notes that a cell leaves the live map.
func (s *strict) leave(p *permits) {
	newest := p.forgotten
	for _, t := range p.lots {
		newest = max(newest, t.bucket)
	}
	for {
		old := s.forgotten.Load()
		if newest <= old || s.forgotten.CompareAndSwap(old, newest) {
			return
		}
	}
}
