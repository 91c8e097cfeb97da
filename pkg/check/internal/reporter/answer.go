package reporter

import (
	"fmt"
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/window"
)

// What becomes of the report in flight: it is answered, refused or given up.

// refresh takes in the answer to the report in flight. Answers to anything else are late or
// repeated and tell nothing new.
func (r *Reporter) refresh(m *events.Refresh, now int64) error {
	if m.Epoch != r.o.Epoch || int64(m.Shard) >= int64(len(r.shards)) {
		return fmt.Errorf("refresh: for epoch %x, shard %d of %d", m.Epoch, m.Shard, len(r.shards))
	}
	r.noteContact(now)
	s := &r.shards[m.Shard]
	f := s.flight
	if f == nil || f.sequence != m.Sequence {
		r.counts.Ignored++
		return nil
	}
	if m.Error != "" {
		return r.refused(s, f, m.Error, now)
	}
	if len(m.KeyCells) != len(f.rows) {
		return fmt.Errorf("refresh: totals of %d keys for %d", len(m.KeyCells), len(f.rows))
	}
	s.aggregator = m.Aggregator
	f.tell(Answered)
	if f.repeated {
		r.noteRepeatedTrip(now - f.born)
	} else {
		r.noteTrip(now - f.born)
	}
	r.mergeRefresh(s, f, m, r.host.Clock.Fleet(now))
	r.landSettlements(f, m.Settlements > 0, m.Uncovered, r.host.Clock.Fleet(now))
	r.land(s, f, func(o *counter.ReportState, hits int64) { o.Answered += hits })
	f.tell(Merged)
	r.counts.Answered++
	r.counts.Problem = ""
	switch {
	case s.queue.Len() == 0 && s.settlements.Len() == 0 && s.late.Len() == 0:
	case s.missed && s.queue.Len() < r.o.Tuning.ReportKeys: // the round has to be made up for in one
		r.hurry()
	default: // these have waited for their turn since the last flush
		r.report(m.Shard, s, now)
	}
	return nil
}

// A report that is refused is given up when it has been refused so often, and for so long.
// Meanwhile it is sent again as often as one whose answer is overdue: in a fleet that is being
// upgraded another aggregator may know what this one does not.
const (
	mostRefusals = 3
	refusedFor   = 10 * time.Second
)

// refused takes in that an aggregator will not count a report. The number of shards may have
// changed, so it asks for that first; but a report that nobody takes must not keep others from
// being sent.
func (r *Reporter) refused(s *shard, f *inFlightReport, reason string, now int64) error {
	if f.refusals == 0 {
		f.refused = now
	}
	f.refusals++
	s.aggregator = 0
	f.tell(Refused)
	r.nextHello = now
	f.wait = r.o.Tuning.ReportTimeout
	f.retryAt = now + int64(f.wait)
	if f.refusals >= mostRefusals && now-f.refused >= int64(refusedFor) {
		r.o.Settling.GiveUp(len(f.settlements)) // they may be why
		f.settlements = f.settlements[:0]
		r.giveUp(s, f, r.host.Clock.Fleet(now))
	}
	return fmt.Errorf("refresh: report refused: %s", reason)
}

func (r *Reporter) mergeRefresh(s *shard, f *inFlightReport, m *events.Refresh, fleet int64) {
	current := r.follow(s, m.Generation, f.generation)
	age, value, overflow := m.Age, m.Total, m.Overflow
	var others [counter.Kinds]counter.Totals
	refunding := f.refunding(m.Refunding)
	for i, key := range f.rows {
		n := m.KeyCells[i]
		news := counter.Totals{Newest: key.newest, Age: age[:n], Value: value[:n]}
		if len(m.Level) > 0 {
			news.Level = window.Level{Bucket: key.newest - m.LevelAge[i], Parts: int64(m.Level[i])}
		}
		age, value = age[n:], value[n:]
		overflows := len(overflow) > 0 && int(overflow[0]) == i
		if overflows {
			overflow = overflow[1:]
		}
		if key.kind != counter.AdmittedHits { // the row of the admitted ones follows
			others[key.kind] = news
			continue
		}
		key.counter.ObserveAnswer(s.localGeneration, current, overflows, counter.Update{
			Fleet: fleet, Made: f.message.Made, Admitted: news,
			Denied: others[counter.DeniedHits], Refunded: others[counter.RefundedHits],
			Refunding: refunding[key.counter.Group],
		})
		others = [counter.Kinds]counter.Totals{}
	}
	for g := range refunding {
		g.Refunds.Store(true)
		r.hurry()
	}
}

// refunding returns the groups of rules of the report whose hits have been refunded, although the
// report did not ask: all of its keys of these rules are to ask now.
func (f *inFlightReport) refunding(rules []uint32) map[*counter.Group]bool {
	if len(rules) == 0 {
		return nil
	}
	groups := make(map[*counter.Group]bool)
	for _, rule := range rules {
		if int64(rule) < int64(len(f.hits)) && f.hits[rule].group != nil {
			groups[f.hits[rule].group] = true
		}
	}
	return groups
}

// noteTrip notes how long the answer to a report that was sent once took.
func (r *Reporter) noteTrip(trip int64) {
	r.trips.longest = 0
	old := r.host.Rounds.Trip.Load()
	if old == 0 {
		old = trip
	}
	r.host.Rounds.Trip.Store(old + (trip-old)/8)
}

// noteRepeatedTrip notes when a report that was sent several times was answered: so long after it
// was sent first.
func (r *Reporter) noteRepeatedTrip(took int64) {
	if off := took - r.trips.took; max(off, -off) <= took/4 {
		r.trips.longest = time.Duration(took)
	}
	r.trips.took = took
}

// follow takes in the generation of a shard that a message speaks of. It returns false if a later
// one is known: the message's totals are of a store that has since lost data. But if the message
// answers what was sent when that later one was known already, the store itself has gone back, and
// no aggregator remembers: then its totals count from now on. Of what answers nothing, known is 0.
func (r *Reporter) follow(s *shard, generation, known uint64) bool {
	switch {
	case generation == s.generation:
		return true
	case generation < s.generation && known < s.generation:
		return false
	case s.generation != 0:
		r.enterGeneration(s)
	}
	s.generation = generation
	return true
}

// enterGeneration lets the bases of the shard's counters count no longer.
func (r *Reporter) enterGeneration(s *shard) {
	r.generations++
	s.localGeneration = r.generations
}

// land ends a flight, and puts its hits down as answered or lost.
func (r *Reporter) land(s *shard, f *inFlightReport, putDown func(o *counter.ReportState, hits int64)) {
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
func (r *Reporter) landSettlements(f *inFlightReport, dealtWith bool, uncovered []uint32, fleet int64) {
	if q := r.o.Settling; dealtWith {
		q.Answered(f.settlements, uncovered, fleet)
	} else {
		q.Return(f.settlements...)
	}
}

// giveUp ends a flight whose answer will not come or not count: its hits are put down as lost.
func (r *Reporter) giveUp(s *shard, f *inFlightReport, fleet int64) {
	r.counts.GivenUp++
	f.tell(GivenUp)
	r.landSettlements(f, false, nil, fleet)
	for _, key := range f.rows {
		key.counter.Land(fleet)
	}
	r.land(s, f, func(o *counter.ReportState, hits int64) { o.Lost += hits })
}
