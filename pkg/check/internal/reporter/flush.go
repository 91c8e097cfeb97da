package reporter

import (
	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/check/internal/queue"
)

// Step does everything that is due at the checker's own time now: hello, flush, repeats, lease
// requests, eviction. If drain is set, it flushes even if no flush is due. It returns when the next
// step is due, by the same clock.
func (r *Reporter) Step(now int64, drain bool) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = now
	r.host.Clock.Slew(now)
	if now-r.judged >= int64(len(r.shards)/64)*int64(judgeEvery) {
		r.judgeFreshness(now)
	}
	if r.o.Link != nil && now >= r.nextHello {
		r.hello(now, false)
	}
	r.early(now)
	if r.host.Crowded() { // there is little room for new keys: report soon, so that some counters can leave
		r.nextFlush = min(r.nextFlush, r.lastFlush+int64(r.o.Tuning.FlushFloor))
	}
	if now >= r.nextFlush || drain {
		r.flush(now)
	}
	r.repeat(now)
	return min(r.nextFlush, r.nextHelloOrNever(), r.stepLeases(now))
}

func (r *Reporter) nextHelloOrNever() int64 {
	if r.o.Link == nil {
		return r.nextFlush
	}
	return r.nextHello
}

// flush moves the hits of dirty counters into reports.
func (r *Reporter) flush(now int64) {
	r.host.NoteFlush(min(now-r.lastFlush, int64(r.o.FlushEvery)))
	r.lastFlush, r.nextFlush = now, now+int64(r.o.FlushEvery)
	// If the timer is at least as fast as the rounds, it flushes in each round.
	if fast := r.host.UpdateFastInterval(); fast >= int64(r.o.FlushEvery) {
		r.nextFlush = now + fast
		r.flushBy(now, fast)
	}
	inRound := r.host.Rounds.Wanted.Swap(0) != 0
	fleet := r.host.Clock.Fleet(now)
	r.o.Groups.Revive()
	r.host.EndDeferrals(fleet, r.draining, r.enqueue)
	r.host.Collect(r.enqueue)
	r.collectLate()
	r.collectSettlements(now)
	if r.o.Link == nil {
		r.flushLocally(fleet)
	}
	for i := range r.shards {
		switch s := &r.shards[i]; {
		case s.flight != nil:
			s.missed = s.missed || inRound
		case s.gaveUp > r.lastContact && !r.draining: // no aggregator answers: hits stay pending, and so count against this checker's share
		default:
			r.report(uint32(i), s, now)
		}
	}
	r.sweep(fleet)
	r.host.Evict(fleet)
	r.o.Groups.Release(fleet)
}

// flushLocally is the flush of a checker without a link, which reports nothing.
func (r *Reporter) flushLocally(fleet int64) {
	for _, c := range r.unsharded {
		c.FlushLocally(fleet)
	}
	clear(r.unsharded)
	r.unsharded = r.unsharded[:0]
	for _, g := range r.host.Lates.Take() {
		g.Late.Store(0)
	}
}

// sweptAtOnce bounds the counters that one sweep looks at.
const sweptAtOnce = 512

// sweep lets queued counters leave when the table is crowded and no aggregator accepts their
// reports, if all their hits have become late: the group reports these. Such an outage may last for
// days, and keys without room in the table have no limit.
func (r *Reporter) sweep(fleet int64) {
	if !r.host.Crowded() || r.draining {
		return
	}
	left := sweptAtOnce
	for range r.shards {
		r.sweeps++
		s := &r.shards[r.sweeps%uint(len(r.shards))]
		for _, a := range s.apart {
			if a.since != 0 {
				left -= spare(&a.queue, left, fleet)
			}
		}
		if s.gaveUp > r.lastContact || s.flight != nil && s.flight.tries > soonTries {
			left -= spare(&s.queue, left, fleet)
		}
	}
	for range min(left, len(r.unsharded)) {
		r.sweeps++
		last := len(r.unsharded) - 1
		if i := r.sweeps % uint(last+1); r.unsharded[i].Spare(fleet) {
			r.unsharded[i], r.unsharded[last] = r.unsharded[last], nil
			r.unsharded = r.unsharded[:last]
		}
	}
}

// spare lets counters leave a queue, of this many at most, and returns how many it has looked at.
func spare(q *queue.FIFO[*counter.Counter], most int, fleet int64) (looks int) {
	looks = min(most, q.Len())
	for range looks {
		if c := q.Pop(); !c.Spare(fleet) {
			q.Push(c)
		}
	}
	return looks
}
