package aggregate

import "slices"

// told are the totals that alarms have told lately. A checker that starts, or comes back from an
// outage, has not heard them, and nobody reports a key that is blocked everywhere; so the checker
// asks, and they are told again.
type told struct {
	recent, older table // as much as one alarm holds, each
	cells, text   int   // in the recent ones
	asked         bool
	nextDue       int64 // own time
}

// tellAgainPart is how much seldomer totals are told again than alarms come.
const tellAgainPart = 64

func newTold() told { return told{recent: newTable(), older: newTable()} }

// add takes in what is being told.
func (o *told) add(t *table) {
	for _, k := range t.keys {
		if len(o.recent.keys) >= alarmKeys || o.cells > alarmCells || o.text > alarmText {
			o.older, o.recent, o.cells, o.text = o.recent, newTable(), 0, 0
		}
		k.totals = slices.Clone(k.totals) // not the whole fold's
		before := len(o.recent.keys)
		o.recent.put(&t.rules[k.rule], k.text, k)
		if len(o.recent.keys) > before {
			o.cells, o.text = o.cells+len(k.totals), o.text+len(k.text)
		}
	}
}

// due is when there is something to tell again, in own time.
func (o *told) due() int64 {
	if !o.asked {
		return never
	}
	return o.nextDue
}

// take returns what is to be told again at own time now, or nil: the keys that are still near their
// limit at the fleet's time. Alarms come at such intervals.
func (o *told) take(now, fleet, every int64) *table {
	if now < o.due() {
		return nil
	}
	o.asked, o.nextDue = false, now+tellAgainPart*every
	all := newTable()
	var counts []int64
	for _, t := range []*table{&o.older, &o.recent} {
		for _, k := range t.keys {
			r, near := &t.rules[k.rule], true
			if r.Kind != Refunded { // what goes with a key goes with it
				near, counts = isNear(r, &k, fleet, counts)
			}
			if near {
				all.put(r, k.text, k)
			}
		}
	}
	return &all
}

// tellAgain lets all that was told lately be told again soon, for a checker that has not heard it.
func (s *shard) tellAgain() {
	s.alarms.mu.Lock()
	s.alarms.told.asked = true
	s.alarms.mu.Unlock()
	s.gather.wakeUp()
}
