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
		if !w.lostTime && w.hasMoved(recorded) {
			w.result.TimeMoves++
			w.keeps(recorded)
		}
		return
	}
	if !w.lostTime {
		w.shift = recorded
	}
	w.margin = ms
	for _, k := range w.crew {
		if k.Worker == nil || !k.knows {
			continue
		}
		w.margin = max(w.margin, k.time-w.shift+ms, w.shift-k.time+ms)
		if w.now-k.welcomedAt < 2*second { // it may be slewing
			w.margin = max(w.margin, k.welcomed-w.shift+ms, w.shift-k.welcomed+ms)
		}
	}
	for _, s := range w.slots {
		if l := s.life; l != nil {
			w.margin = max(w.margin, min(l.unheard, int64(w.off(l).Abs()))+ms)
		}
	}
	w.margin = min(w.margin, timeError)
}

// hasMoved says whether the fleet's time has moved to what the store tells, without a change of its
// record: the store's clock was set by less than what an aggregator knows the time to
// (docs/protocol.md, Clocks, weak spots). Then all tell the store's, and one of them has told nothing
// that contradicts it.
func (w *world) hasMoved(recorded int64) (moved bool) {
	for _, k := range w.crew {
		if k.Worker == nil || !k.said {
			continue
		}
		if off := k.time - recorded; max(off, -off) > 5*ms {
			return false
		}
		moved = moved || k.low <= recorded && recorded <= k.high
	}
	return moved
}

// keeps takes in what the fleet's time is, by the keeper's record. Where it moves, checkers follow
// from their next hello on, by 1/20 of the time. Those that have not heard it end a slice of time by
// the time of before.
func (w *world) keeps(recorded int64) {
	off := max(recorded-w.shift, w.shift-recorded)
	if w.lostTime || off > timeError {
		return
	}
	w.shift = recorded
	for _, s := range w.slots {
		if l := s.life; l != nil {
			l.unheard += off
			w.margin = min(max(w.margin, l.unheard), timeError)
			if off > ms {
				extend(&l.slewed, w.now+20*off+4*second)
			}
		}
	}
}

// hears takes in that a checker is told the fleet's time, right to ± err: from what contradicts its
// own idea by more than that, it knows. It follows when two answers have said so, by 1/20 of the
// time.
func (w *world) hears(l *life, err int64) {
	if err >= l.unheard {
		return
	}
	if l.unheard > int64(clockError) {
		extend(&l.slewed, w.now+20*int64(w.off(l).Abs())+4*second)
	}
	l.unheard = err
}

// tells takes in what an aggregator tells of the fleet's time, and returns how far that is ahead. One
// that starts, and has not heard another one that knows it within half a second, takes the store's,
// whose clock may have been set without a record of that (docs/protocol.md, Clocks, weak spots). Then
// the fleet's time has stepped, and what depends on it is not judged until all agree on it again.
// Strict limits of an hour do not, unless an edge of an hour is between the times that are told.
func (w *world) tells(k *worker, fleet, err int64) (ahead int64) {
	alone := !k.knows && w.now-k.told > second/2
	k.knows, ahead = true, fleet-w.now
	off, most := ahead-w.shift, timeError
	if alone {
		most = int64(clockError)
	}
	if !w.lostTime {
		if max(off, -off) <= most+err {
			return ahead
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
		return ahead
	}
	w.lostHour = true
	for _, k := range w.keys {
		k.exempt = true
	}
	return ahead
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
