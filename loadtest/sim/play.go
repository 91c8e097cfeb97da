package sim

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/offpath-io/offpath/internal/testing/membus"
	"github.com/offpath-io/offpath/loadtest/result"
	"github.com/offpath-io/offpath/loadtest/scenario"
	"github.com/offpath-io/offpath/loadtest/score"
	"github.com/offpath-io/offpath/loadtest/tap"
	"github.com/offpath-io/offpath/pkg/check"
)

// never is a time that does not come.
const never = int64(1<<63 - 1)

// schedule plans what happens at known times.
func (w *world) schedule(s *score.Score) {
	from, to := s.Measured()
	w.plan = append(w.plan,
		action{from, func() { w.excess.most = 0; w.measure(0) }},
		action{to, func() { w.measure(1) }})
	for _, p := range w.o.Partitions {
		w.plan = append(w.plan,
			action{from + int64(p.From), func() { w.cut(p, true) }},
			action{from + int64(p.From+p.For), func() { w.cut(p, false) }})
	}
	for _, f := range w.o.Failures {
		w.plan = append(w.plan,
			action{from + int64(f.From), func() { w.fail(f, true) }},
			action{from + int64(f.From+f.For), func() { w.fail(f, false) }})
	}
	slices.SortStableFunc(w.plan, func(a, b action) int { return int(min(max(a.at-b.at, -1), 1)) })
}

// cut takes checkers off the network, or puts those back that no other partition keeps off.
func (w *world) cut(p Partition, off bool) {
	for i := range min(p.Checkers, len(w.checkers)) {
		if off {
			w.checkers[i].cuts++
		} else {
			w.checkers[i].cuts--
		}
		w.bus.Cut("c"+strconv.Itoa(i), w.checkers[i].cuts > 0)
	}
}

// fail takes aggregators out of action, or puts them back.
func (w *world) fail(f Failure, out bool) {
	for i, k := range w.workers[:min(f.Aggregators, len(w.workers))] {
		if f.Frozen {
			k.frozen = out
		} else {
			k.away = out
		}
		w.due.set(len(w.checkers)+i, w.now)
	}
}

// measure notes what has been until now, as the beginning (0) or the end (1) of the measured part.
func (w *world) measure(i int) {
	w.spent[i], w.sent[i], w.reckoned[i] = w.cost(), w.bus.Traffic(), w.reckon()
}

func (w *world) cost() tap.Cost {
	sum := w.store.Cost()
	for _, c := range w.checkers {
		sum = sum.Add(c.Link.Cost())
	}
	return sum
}

// play plays the traffic, which begins at a time in Unix nanoseconds, to its end, or until ctx is
// done.
func (w *world) play(ctx context.Context, start int64, traffic *scenario.Traffic, s *score.Score) (interrupted bool) {
	_, end := s.Measured()
	w.judge = func(h scenario.Hit, allowed bool) { s.Hit(w.now, h, allowed) }
	w.advance(start)
	look := looker{ctx: ctx, world: w, start: start, all: time.Duration(end - start)}
	for {
		h, ok := traffic.Next()
		if !ok {
			break
		}
		if look.advance(start + h.At) {
			return true
		}
		w.hit(h, traffic, s)
	}
	if look.advance(end) {
		return true
	}
	w.denyUntil(never)
	w.act()
	return false
}

// looker advances the world, and now and then looks whether that is still wanted, and tells of the
// progress.
type looker struct {
	*world
	ctx   context.Context
	start int64
	all   time.Duration
	calls int
}

// After so many hits, and in silences so often, there is a look.
const (
	lookHits    = 4096
	lookSilence = int64(time.Second)
)

func (l *looker) advance(until int64) (interrupted bool) {
	for {
		silent := until-l.now > lookSilence
		if l.calls++; silent || l.calls%lookHits == 0 {
			if l.ctx.Err() != nil {
				l.measure(1)
				return true
			}
			if l.o.Progress != nil {
				l.o.Progress(time.Duration(l.now-l.start), l.all)
			}
		}
		if !silent {
			l.world.advance(until)
			return false
		}
		l.world.advance(l.now + lookSilence)
	}
}

// hit lets a checker decide, by its own clock, and the score hear of it at the true time.
func (w *world) hit(h scenario.Hit, traffic *scenario.Traffic, s *score.Score) {
	c := w.checkers[h.Checker]
	l := c.Limiters[traffic.Rule(h.Key)]
	d := l.Check(traffic.Text(h.Key), int64(h.Cost))
	if d.Allowed || !w.mayWait(l, d) {
		s.Hit(w.now, h, d.Allowed)
	} else {
		w.waiting = append(w.waiting, waiter{h, c, l, traffic.Text(h.Key), w.now + int64(w.o.Acquire)})
	}
	w.heed(int(h.Checker), c)
}

// advance lets everything happen that is due before a time, and moves to it.
func (w *world) advance(until int64) {
	for {
		w.act()
		w.denyUntil(w.now)
		message, ok := w.bus.Step(w.now)
		if !ok {
			message = never
		}
		w.woken.each(func(i int) { w.due.sooner(i, max(w.now, w.checkers[i].last+stepFloor)) })
		i, step := w.due.first()
		if step <= w.now {
			w.step(i)
			continue
		}
		next := min(message, step, w.nextAction(), w.nextDeadline())
		if next >= until {
			w.now = max(w.now, until)
			return
		}
		w.now = max(w.now, next)
	}
}

func (w *world) step(i int) {
	if i >= len(w.checkers) {
		k := w.workers[i-len(w.checkers)]
		if k.frozen {
			w.due.set(i, never)
			return
		}
		w.due.set(i, max(k.Step(context.Background(), w.now), w.now+1))
		return
	}
	c := w.checkers[i]
	next := c.Step().UnixNano() - c.skew
	c.last = w.now
	if next <= w.now {
		next = w.now + stepFloor
	}
	w.due.set(i, next)
	w.heed(i, c)
}

func (w *world) nextAction() int64 {
	if len(w.plan) == 0 {
		return never
	}
	return w.plan[0].at
}

// act does what was planned for now.
func (w *world) act() {
	for w.nextAction() <= w.now {
		w.plan[0].do()
		w.plan = w.plan[1:]
	}
}

// settle mends the network and lets the fleet come to rest, for at most mostSettling.
func (w *world) settle() {
	for _, a := range w.plan { // what has not ended
		a.do()
	}
	w.plan = nil
	w.bus.SetFaults(membus.Faults{})
	for range int(mostSettling / settleEvery) {
		w.advance(w.now + int64(settleEvery))
		if w.rests() {
			return
		}
	}
}

const (
	settleEvery  = 500 * time.Millisecond
	mostSettling = 2 * time.Minute
)

func (w *world) rests() bool {
	for _, c := range w.checkers {
		if s := c.Stats(); s.Unreported() > 0 {
			return false
		}
	}
	return true
}

// conservation looks for every admitted hit.
func (w *world) conservation(admitted int64) result.Conservation {
	var stats []check.Stats
	for _, c := range w.checkers {
		stats = append(stats, c.Stats())
	}
	ledger, _ := w.memory.Ledger(context.Background()) // it never fails
	return score.Conservation(admitted, stats, ledger)
}
