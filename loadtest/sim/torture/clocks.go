package torture

import (
	"slices"
	"time"
)

// timeError is how far the fleet's time moves at most when an aggregator takes it over from another
// one, or records it: half of the longest round trip that there is on a slow network.
const timeError = 500 * ms

// off is how far a checker's idea of the fleet's time is off.
func (w *world) off(l *life) time.Duration {
	return time.Duration(l.skew-w.shift) + l.Stats().ClockOffset
}

// watchTime follows the fleet's time, which is the store's clock and an offset on record. It
// notices which aggregators may take the store's time for the fleet's although it is not: the
// store's clock was set, nobody has recorded that yet, and they start and can measure no other one
// that knows the time, which takes messages in both directions (docs/protocol.md, Clocks, weak
// spots).
func (w *world) watchTime() {
	recorded := w.store.ahead + int64(w.store.offset)
	if off := recorded - w.shift; max(off, -off) <= int64(clockError) {
		if !w.lostTime {
			w.shift = recorded
		}
		w.margin = ms
		for _, k := range w.crew {
			if off := k.time - w.shift; k.Worker != nil && k.knows {
				w.margin = max(w.margin, off+ms, ms-off)
			}
		}
		return
	}
	w.margin = timeError
	told := slices.ContainsFunc(w.crew, func(k *worker) bool {
		return k.Worker != nil && k.knows && w.now >= max(k.paused, k.from, k.to, w.sides.until)
	})
	for _, k := range w.crew {
		k.alone = k.alone || k.Worker != nil && !k.knows && (!told || w.now < k.to)
	}
}

// keeps takes in that the keeper has recorded the fleet's time. Where it moves, checkers follow
// from their next hello on, by 1/20 of the time.
func (w *world) keeps(recorded int64) {
	off := max(recorded-w.shift, w.shift-recorded)
	if w.lostTime || off > timeError {
		return
	}
	w.shift = recorded
	for _, s := range w.slots {
		if s.life != nil && off > ms {
			extend(&s.life.slewed, w.now+20*off+4*second)
		}
	}
}

// tells takes in what an aggregator tells of the fleet's time. If that has stepped, what depends on
// it is not judged until all agree on it again.
func (w *world) tells(k *worker, fleet, err int64) {
	first := !k.knows
	k.knows, k.time = true, fleet-w.now
	off, most := k.time-w.shift, timeError
	if first && k.alone {
		most = int64(clockError)
	}
	if w.lostTime || max(off, -off) <= most+err {
		return
	}
	if !first || !k.alone {
		w.violate("fleet time", "aggregator %d is %v off, the store's clock %v, less %v on record",
			k.number, time.Duration(k.time-w.shift), time.Duration(w.store.ahead), w.store.offset)
	}
	w.lostTime = true
	w.result.TimeSteps++
	for _, k := range w.keys {
		k.exempt = true
	}
}

// agreeOnTime ends a time in which the fleet's time was not known.
func (w *world) agreeOnTime() {
	if !w.lostTime {
		return
	}
	least, most := int64(1<<62), int64(-1<<62)
	for _, s := range w.slots {
		off := int64(w.off(s.life)) + w.shift
		least, most = min(least, off), max(most, off)
	}
	for _, k := range w.crew {
		least, most = min(least, k.time), max(most, k.time)
	}
	fleet := w.store.ahead + int64(w.store.offset)
	if max(most-fleet, fleet-least) <= 5*ms {
		w.lostTime, w.shift = false, fleet
		for _, k := range w.keys { // what passed before was in other buckets
			clear(k.counts)
		}
	}
}
