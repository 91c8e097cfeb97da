package torture

import "time"

// timeError is how far the fleet's time moves at most when an aggregator takes it over from another
// one, or records it: half of the longest round trip that there is on a slow network.
const timeError = 500 * ms

// off is how far a checker's idea of the fleet's time is off.
func (w *world) off(l *life) time.Duration {
	return time.Duration(l.skew-w.shift) + l.Stats().ClockOffset
}

// watchTime follows the fleet's time, which is the store's clock and an offset on record.
func (w *world) watchTime() {
	w.margin = timeError
	recorded := w.store.ahead + int64(w.store.offset)
	if off := recorded - w.shift; max(off, -off) > int64(clockError) {
		return
	}
	if !w.lostTime {
		w.shift = recorded
	}
	w.margin = ms
	for _, k := range w.crew {
		if off := k.time - w.shift; k.Worker != nil && k.knows {
			w.margin = max(w.margin, off+ms, ms-off)
		}
	}
	w.moved = min(w.moved, w.farthest())
	w.margin = min(max(w.margin, w.moved+ms), timeError)
}

// farthest is how far the farthest checker is from the fleet's time.
func (w *world) farthest() (most int64) {
	for _, s := range w.slots {
		if s.life != nil {
			most = max(most, int64(w.off(s.life).Abs()))
		}
	}
	return most
}

// keeps takes in that the keeper has recorded the fleet's time. Where it moves, checkers follow
// from their next hello on, by 1/20 of the time. Until they have, a slice of time ends for some by
// the time of before: permits of one are spent until then.
func (w *world) keeps(recorded int64) {
	off := max(recorded-w.shift, w.shift-recorded)
	if w.lostTime || off > timeError {
		return
	}
	w.shift = recorded
	w.moved = max(w.moved, off)
	w.margin = max(w.margin, w.moved)
	for _, s := range w.slots {
		if s.life != nil && off > ms {
			extend(&s.life.slewed, w.now+20*off+4*second)
		}
	}
}

// tells takes in what an aggregator tells of the fleet's time. One that starts, and has not heard
// another one that knows it within half a second, takes the store's, whose clock may have been set
// without a record of that (docs/protocol.md, Clocks, weak spots). Then the fleet's time has stepped,
// and what depends on it is not judged until all agree on it again. Strict limits of an hour do
// not, unless an edge of an hour is between the times that are told.
func (w *world) tells(k *worker, fleet, err int64) {
	alone := !k.knows && w.now-k.told > second/2
	k.knows, k.time = true, fleet-w.now
	off, most := k.time-w.shift, timeError
	if alone {
		most = int64(clockError)
	}
	if !w.lostTime {
		if max(off, -off) <= most+err {
			return
		}
		if !alone {
			w.violate("fleet time", "aggregator %d is %v off, the store's clock %v, less %v on record",
				k.number, time.Duration(off), time.Duration(w.store.ahead), w.store.offset)
		}
		w.lostTime = true
		w.result.TimeSteps++
	}
	known, s := w.now+w.shift, firstRules[hour].Window
	if s.Bucket(min(known, fleet)-5*second) == s.Bucket(max(known, fleet)+5*second) {
		return
	}
	w.lostHour = true
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
		w.lostTime, w.lostHour, w.shift = false, false, fleet
		for _, k := range w.keys { // what passed before was in other buckets
			clear(k.counts)
		}
	}
}
