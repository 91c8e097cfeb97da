package reporter

import "github.com/offpath-io/offpath/pkg/check/internal/counter"

// The state of one shard: its generation, and how its report ends.

// follow takes in the generation of a shard that a message speaks of. It returns false if a later
// one is known: the message's totals are of a store that has since lost data. But if the message
// answers what was sent when that later one was known already, the store itself has gone back, and
// no aggregator remembers: then its totals count from now on. Of what answers nothing, known is 0.
func (b *Reporter) follow(s *shard, generation, known uint64) bool {
	switch {
	case generation == s.generation:
		return true
	case generation < s.generation && known < s.generation:
		return false
	case s.generation != 0:
		b.enterState(s)
	}
	s.generation = generation
	return true
}

// enterState lets the bases of the shard's counters count no longer.
func (b *Reporter) enterState(s *shard) {
	b.states++
	s.state = b.states
}

// land ends a flight, and puts its hits down as answered or lost.
func (b *Reporter) land(s *shard, f *inFlightReport, putDown func(o *counter.ReportState, hits int64)) {
	for _, h := range f.hits {
		h.group.Owed.InFlight -= h.hits
		putDown(&h.group.Owed, h.hits)
	}
	clear(f.rows) // their counters may leave, and should not be kept by a report that is over
	clear(f.hits)
	s.flight, s.spare = nil, f
}

// landSettlements takes in that a report has ended, and whether its settlements were dealt with,
// but for those that were not covered. Others go into another report.
func (b *Reporter) landSettlements(f *inFlightReport, dealtWith bool, uncovered []uint32, fleet int64) {
	if q := b.o.Settling; dealtWith {
		q.Answered(f.settlements, uncovered, fleet)
	} else {
		q.Return(f.settlements...)
	}
}

// giveUp ends a flight whose answer will not come or not count: its hits are put down as lost.
func (b *Reporter) giveUp(s *shard, f *inFlightReport, fleet int64) {
	b.counts.GivenUp++
	f.tell(GivenUp)
	b.landSettlements(f, false, nil, fleet)
	for _, r := range f.rows {
		r.counter.Land(fleet)
	}
	b.land(s, f, func(o *counter.ReportState, hits int64) { o.Lost += hits })
}
