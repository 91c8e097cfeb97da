package reporter

import (
	"fmt"
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/window"
)

// How a report in flight ends: it is answered, refused or given up.

// refresh processes the answer to the report in flight. Other answers are late or repeated, and are
// ignored.
func (r *Reporter) refresh(m *events.Refresh, now int64) error {
	if m.Epoch != r.o.Epoch || int64(m.Shard) >= int64(len(r.shards)) {
		return fmt.Errorf("refresh: for epoch %x, shard %d of %d", m.Epoch, m.Shard, len(r.shards))
	}
	s := &r.shards[m.Shard]
	f := s.flight
	if f == nil || f.sequence != m.Sequence {
		r.counts.Ignored++
		return nil
	}
	if m.Error != "" {
		return r.refused(m.Shard, f, m.Error, now)
	}
	if len(m.KeyCells) != len(f.rows) {
		return fmt.Errorf("refresh: totals of %d keys for %d", len(m.KeyCells), len(f.rows))
	}
	f.tell(Answered)
	switch {
	case f.repeated:
		r.noteRepeatedTrip(now - f.born)
	case now-f.sent <= int64(f.wait): // else it may have waited here, while this process stood still
		r.noteTrip(now - f.sent)
	}
	r.mergeRefresh(s, f, m, r.host.Clock.Fleet(now))
	if q := r.o.Settling; m.Settlements > 0 {
		q.Answered(f.settlements, m.Uncovered, now)
	} else { // the aggregator does not know of settlements
		q.Return(f.settlements...)
	}
	if f.suspect != nil {
		f.suspect.accepted()
	}
	r.land(s, f, func(o *counter.ReportState, hits int64) { o.Answered += hits })
	r.noteNews(m.Shard, now)
	f.tell(Merged)
	r.counts.Answered++
	r.counts.Problem = ""
	switch {
	case s.due() > now && s.settlements.Len() == 0 && s.late.Len() == 0:
	case s.missed && s.queue.Len() < r.o.Tuning.ReportKeys: // the missed round is made up for in the next fast one
		r.hurry()
	default: // these have waited for their turn since the last flush
		r.report(m.Shard, s, now)
	}
	return nil
}

// A report is given up after mostRefusals refusals, if the first one was refusedFor ago. Until then
// it is sent again after each time-out: while a fleet is being upgraded, another aggregator may
// accept it. After that, its rules are suspect in its shard. A report about one of these is sent
// again at once if the shard's owner has refused it. If another aggregator refuses it as well, it
// is given up, unless it was repeated and an earlier sending may still be counted, and the next one
// comes refusedFor later: it holds up the others for two round trips only.
const (
	mostRefusals = 3
	refusedFor   = 10 * time.Second
)

// refused processes the refusal of a report. The number of shards may have changed, so it sends a
// hello first. A report that no aggregator accepts is given up, so that it does not keep other
// reports from being sent.
func (r *Reporter) refused(number uint32, f *inFlightReport, reason string, now int64) error {
	s := &r.shards[number]
	if f.refusals == 0 {
		f.refused = now
	}
	f.refusals++
	s.avoidOwner(f.toOwner, now)
	f.tell(Refused)
	r.nextHello = now
	f.wait = r.o.Tuning.ReportTimeout
	f.retryAt = now + int64(f.wait)
	if f.suspect != nil && f.toOwner {
		r.send(number, f, now)
		return fmt.Errorf("refresh: report refused by its owner: %s", reason)
	}
	if f.suspect != nil && !f.repeated || f.refusals >= mostRefusals && now-f.refused >= int64(refusedFor) {
		r.o.Settling.GiveUp(len(f.settlements)) // they may be the reason
		f.settlements = f.settlements[:0]
		group := func(i int) *counter.Group { return f.hits[i].group }
		if alone := s.backlog.refused(len(f.hits), group, now); alone != nil {
			alone.tries++
			alone.after = now + int64(refusedFor)
			if alone.since == 0 {
				alone.since = f.refused
			}
		}
		r.giveUp(s, f, r.host.Clock.Fleet(now))
		r.endWait(number, f.born)
	}
	return fmt.Errorf("refresh: report refused: %s", reason)
}

func (r *Reporter) mergeRefresh(s *shard, f *inFlightReport, m *events.Refresh, fleet int64) {
	valid := r.follow(s, state{m.Generation, m.Version}, f.known)
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
		key.counter.ObserveAnswer(s.localGeneration, valid, overflows, counter.Update{
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

// refunding returns the groups of those rules of the report that have refunds for which the report
// did not ask: all of its keys under these rules must ask now.
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

// noteTrip records how long the answer took to a report that was sent once.
func (r *Reporter) noteTrip(trip int64) {
	r.trips.longest = 0
	old := r.host.Rounds.Trip.Load()
	if old == 0 {
		old = trip
	}
	r.host.Rounds.Trip.Store(old + (trip-old)/8)
}

// noteRepeatedTrip records how long after its first sending a repeated report was answered.
func (r *Reporter) noteRepeatedTrip(took int64) {
	if off := took - r.trips.took; max(off, -off) <= took/4 {
		r.trips.longest = time.Duration(took)
	}
	r.trips.took = took
}

// follow processes the state of a shard that a message is from. It returns false if a later
// generation is known: the message's totals are from a store that has lost data since. But if the
// message answers a request that was sent when a later state was known already, the store itself
// has gone back, and no aggregator remembers it: then the message's state is valid from now on.
// known is the state when that request was sent; zero if the message is no answer. Losses of the
// store are counted.
func (r *Reporter) follow(s *shard, told, known state) bool {
	if told.generation < s.state.generation && known.generation < s.state.generation {
		return false
	}
	back := told.isBefore(known)
	another := told.generation != s.state.generation && s.state.generation != 0
	switch {
	case back:
		r.noteLoss(r.FleetTimeLocked())
	case another:
		r.noteLoss(1000 * int64(told.generation))
	}
	if another {
		r.enterGeneration(s)
	}
	if back || s.state.isBefore(told) {
		s.state = told
	}
	return true
}

// noteLoss counts a loss of the store's that was found at a time, in Unix ns.
func (r *Reporter) noteLoss(at int64) {
	r.counts.StoreLosses++
	r.counts.LastStoreLoss = max(r.counts.LastStoreLoss, at)
}

// enterGeneration makes the bases of the shard's counters invalid.
func (r *Reporter) enterGeneration(s *shard) {
	r.generations++
	s.localGeneration = r.generations
}

// land ends a report's flight; putDown counts its hits as answered or lost.
func (r *Reporter) land(s *shard, f *inFlightReport, putDown func(o *counter.ReportState, hits int64)) {
	for _, h := range f.hits {
		h.group.Reports.InFlight -= h.hits
		putDown(&h.group.Reports, h.hits)
	}
	clear(f.rows) // their counters may leave, and the finished report should not keep them in memory
	clear(f.hits)
	s.flight, s.spare = nil, f
}

// giveUp ends the flight of a report that will have no valid answer: its hits are counted as lost.
func (r *Reporter) giveUp(s *shard, f *inFlightReport, fleet int64) {
	r.counts.GivenUp++
	f.tell(GivenUp)
	r.o.Settling.Return(f.settlements...)
	for _, key := range f.rows {
		key.counter.Land(fleet)
	}
	r.land(s, f, func(o *counter.ReportState, hits int64) { o.Lost += hits })
}
