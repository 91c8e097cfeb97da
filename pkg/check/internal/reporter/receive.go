package reporter

import (
	"fmt"
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/window"
)

func (b *Reporter) receive(now int64, kind events.Kind, payload []byte) error {
	switch kind {
	case events.KindRefresh:
		m, err := events.DecodeRefresh(payload)
		if err != nil {
			return err
		}
		return b.refresh(m, now)
	case events.KindAlarm:
		m, err := events.DecodeAlarm(payload)
		if err != nil {
			return err
		}
		b.alarm(m, now)
		return nil
	case events.KindWelcome:
		m, err := events.DecodeWelcome(payload)
		if err != nil {
			return err
		}
		b.welcome(m, now)
		return nil
	case events.KindUnheard:
		b.unheard(now)
		return nil
	case events.KindGrant:
		m, err := events.DecodeGrant(payload)
		if err != nil {
			return err
		}
		return b.granted(m, now)
	}
	return fmt.Errorf("receive: not a message for a checker: %v", kind)
}

// unheard takes in that something that was sent to one aggregator has not reached it: any will do
// now. It is not known what it was, so all is sent again that may be; where any was asked before
// there is none, and what is sent waits for its time. If something is on its way to any, it is
// taken to be that: a shard that nobody attends to says nothing of others.
func (b *Reporter) unheard(now int64) {
	for i := range b.shards {
		if f := b.shards[i].flight; f != nil && f.toAny {
			f.toAny = false
			return
		}
		if f := b.leases.lines[i].flight; f != nil && f.toAny {
			f.toAny = false
			return
		}
	}
	for i := range b.shards {
		s := &b.shards[i]
		if s.aggregator == 0 {
			if s.flight != nil && s.flight.message.Format > events.FormatPlain { // none knows it
				b.toOlder(s.flight, now)
				s.flight.retryAt = now
			}
			continue
		}
		s.aggregator = 0
		if s.flight != nil {
			s.flight.retryAt = now
		}
		if x := &b.leases.lines[i]; x.flight != nil {
			x.flight.retryAt = now
		}
	}
	b.host.WakeUp()
}

// refresh takes in the answer to the report in flight. Answers to anything else are late or
// repeated and tell nothing new.
func (b *Reporter) refresh(m *events.Refresh, now int64) error {
	if m.Epoch != b.o.Epoch || int64(m.Shard) >= int64(len(b.shards)) {
		return fmt.Errorf("refresh: for epoch %x, shard %d of %d", m.Epoch, m.Shard, len(b.shards))
	}
	b.noteContact(now)
	s := &b.shards[m.Shard]
	f := s.flight
	if f == nil || f.sequence != m.Sequence {
		b.counts.Ignored++
		return nil
	}
	if m.Error != "" {
		return b.refused(s, f, m.Error, now)
	}
	if len(m.KeyCells) != len(f.rows) {
		return fmt.Errorf("refresh: totals of %d keys for %d", len(m.KeyCells), len(f.rows))
	}
	s.aggregator = m.Aggregator
	f.tell(Answered)
	if f.repeated {
		b.noteRepeatedTrip(now - f.born)
	} else {
		b.noteTrip(now - f.born)
	}
	b.mergeRefresh(s, f, m, b.host.Clock.Fleet(now))
	b.hint(f, m.Refunding)
	b.landSettlements(f, m.Settlements > 0, m.Uncovered, b.host.Clock.Fleet(now))
	b.land(s, f, func(o *counter.ReportState, hits int64) { o.Answered += hits })
	f.tell(Merged)
	b.counts.Answered++
	b.counts.Problem = ""
	switch {
	case s.queue.Len() == 0 && s.settlements.Len() == 0 && s.late.Len() == 0:
	case s.missed && s.queue.Len() < b.o.Tuning.ReportKeys: // the round has to be made up for in one
		b.hurry()
	default: // these have waited for their turn since the last flush
		b.report(m.Shard, s, now)
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
func (b *Reporter) refused(s *shard, f *inFlightReport, reason string, now int64) error {
	if f.refusals == 0 {
		f.refused = now
	}
	f.refusals++
	s.aggregator = 0
	f.tell(Refused)
	b.nextHello = now
	f.wait = b.o.Tuning.ReportTimeout
	f.retryAt = now + int64(f.wait)
	if f.refusals >= mostRefusals && now-f.refused >= int64(refusedFor) {
		b.o.Settling.GiveUp(len(f.settlements)) // they may be why
		f.settlements = f.settlements[:0]
		b.giveUp(s, f, b.host.Clock.Fleet(now))
	}
	return fmt.Errorf("refresh: report refused: %s", reason)
}

func (b *Reporter) mergeRefresh(s *shard, f *inFlightReport, m *events.Refresh, fleet int64) {
	current := b.follow(s, m.Generation, f.generation)
	age, value, overflow := m.Age, m.Total, m.Overflow
	var others [counter.Kinds]counter.Totals
	for i, r := range f.rows {
		n := m.KeyCells[i]
		news := counter.Totals{Newest: r.newest, Age: age[:n], Value: value[:n]}
		if len(m.Level) > 0 {
			news.Level = window.Level{Bucket: r.newest - m.LevelAge[i], Parts: int64(m.Level[i])}
		}
		age, value = age[n:], value[n:]
		overflows := len(overflow) > 0 && int(overflow[0]) == i
		if overflows {
			overflow = overflow[1:]
		}
		if r.kind != counter.AdmittedHits { // the row of the admitted ones follows
			others[r.kind] = news
			continue
		}
		r.counter.ObserveAnswer(s.state, current, overflows, counter.Update{
			Fleet: fleet, Made: f.message.Made, Admitted: news,
			Denied: others[counter.DeniedHits], Refunded: others[counter.RefundedHits],
		})
		others = [counter.Kinds]counter.Totals{}
	}
}

// alarm takes in totals of keys that are near their limit. Keys that this checker has never seen
// are remembered too, so that a caller who is over the limit elsewhere finds no room here.
func (b *Reporter) alarm(m *events.Alarm, now int64) {
	if int64(m.Shard) >= int64(len(b.shards)) {
		return
	}
	b.noteContact(now)
	b.counts.Alarms++
	s := &b.shards[m.Shard]
	if !b.follow(s, m.Generation, 0) {
		return
	}
	fleet := b.host.Clock.Fleet(now)
	groups := make([]*counter.Group, len(m.Totals.Rules))
	for i, r := range m.Totals.Rules {
		groups[i] = b.o.Groups.Find(r)
	}
	others, eager := [counter.Kinds]map[asked]counter.Totals{counter.DeniedHits: {}, counter.RefundedHits: {}}, false
	for kind := counter.DeniedHits; kind < counter.Kinds; kind++ {
		counter.EachTotals(m.Totals, kind, func(rule uint32, key []byte, news counter.Totals) {
			others[kind][asked{groups[rule], string(key)}] = news
		})
	}
	counter.EachTotals(m.Totals, counter.AdmittedHits, func(rule uint32, key []byte, news counter.Totals) {
		if l := groups[rule]; l != nil {
			id := asked{l, string(key)}
			eager = l.ObserveAlarm(key, s.state, counter.Update{
				Fleet: fleet, Made: m.Made, Admitted: news,
				Denied: others[counter.DeniedHits][id], Refunded: others[counter.RefundedHits][id],
			}) || eager
			delete(others[counter.RefundedHits], id)
		}
	})
	counter.EachTotals(m.Totals, counter.RefundedHits, func(rule uint32, key []byte, news counter.Totals) {
		l := groups[rule]
		if _, left := others[counter.RefundedHits][asked{l, string(key)}]; left && l != nil { // the admitted ones are in another message
			eager = l.ObserveAlarm(key, s.state, counter.Update{Fleet: fleet, Made: m.Made, Refunded: news}) || eager
		}
	})
	if eager {
		b.hurry()
	}
}

// asked is a key under a limiter.
type asked struct {
	group *counter.Group
	key   string
}

// hint takes in that hits of some rules of the report in flight have been refunded: all of its keys
// of these are asked for again.
func (b *Reporter) hint(f *inFlightReport, rules []uint32) {
	for _, rule := range rules {
		if int64(rule) >= int64(len(f.hits)) {
			continue
		}
		l := f.hits[rule].group
		if l == nil || l.Refunds.Swap(true) {
			continue
		}
		for _, r := range f.rows {
			if c := r.counter; c.Group == l && r.kind == counter.AdmittedHits {
				c.AwaitRefunds()
			}
		}
		b.hurry()
	}
}

// Receive takes in a message for this checker. It counts and ignores what it cannot read, and does
// not keep payload.
func (b *Reporter) Receive(kind events.Kind, payload []byte) {
	now := b.o.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = max(b.now, now)
	if err := b.receive(now, kind, payload); err != nil {
		b.counts.Unreadable++
		b.counts.Problem = err.Error()
	}
}
