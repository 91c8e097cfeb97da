package torture

import (
	"github.com/offpath-io/offpath/internal/testing/membus"
	"github.com/offpath-io/offpath/pkg/events"
)

// tapped is a checker's link, which shows its reports to the store.
type tapped struct {
	*membus.Checker
	world *world
	life  *life
}

// Report notes a report, and sends it.
func (t *tapped) Report(shard uint32, toOwner bool, payload []byte) error {
	t.world.store.sent(t.life, payload)
	return t.Checker.Report(shard, toOwner, payload)
}

// sent notes a report on its way to the bus.
func (s *store) sent(l *life, payload []byte) {
	m, err := events.DecodeReport(payload)
	if err != nil {
		panic(err)
	}
	for int(m.Shard) >= len(l.flights) {
		l.flights = append(l.flights, flight{})
	}
	f := &l.flights[m.Shard]
	if m.Sequence <= f.sequence {
		f.repeated = f.repeated || !f.unheard
		f.sent, f.unheard = s.world.now, false
		return
	}
	*f = flight{sequence: m.Sequence, sent: s.world.now, known: f.known}
	r := &report{of: l, hits: hitsOf(m)}
	l.reported += r.hits
	s.reports[reportID{l.epoch, m.Shard, m.Sequence}] = r
}

// hitsOf is how many hits are in a report.
func hitsOf(m *events.Report) (hits int64) {
	for _, n := range m.Late {
		hits += int64(n)
	}
	t, cell := m.Hits, 0
	for i, cells := range t.GetKeyCells() {
		rule := t.Rules[t.KeyRule[i]]
		for range cells {
			if !rule.Denied && rule.Kind == events.RowKind_ADMITTED {
				hits += int64(t.Value[cell])
			}
			cell++
		}
	}
	return hits
}

// flight is a report that waits for its answer, or the last one.
type flight struct {
	sequence uint64
	sent     int64 // 0 when it was answered
	repeated bool
	unheard  bool    // nobody listened: another sending is no repeat
	known    counted // of the last report that was answered
}

// answered notes how long an answer took, as the checker does: so its fast interval is known. It
// notes none that waited while the process stood still, and no time by a clock that was set.
func (l *life) answered(kind events.Kind, payload []byte, now int64, waited bool) {
	switch kind {
	case events.KindUnheard:
		to, ok := events.ParseAddress(string(payload))
		if ok && to.Kind == events.KindReport && int(to.Shard) < len(l.flights) {
			l.flights[to.Shard].unheard = true
		}
	case events.KindRefresh:
		m, err := events.DecodeRefresh(payload)
		if err != nil || m.Epoch != l.epoch || int(m.Shard) >= len(l.flights) {
			return
		}
		f := &l.flights[m.Shard]
		if m.Sequence != f.sequence || f.sent == 0 || m.Error != "" {
			return
		}
		if trip := now - f.sent; !f.repeated && !waited {
			if l.trip == 0 {
				l.trip = trip
			}
			l.trip += (trip - l.trip) / 8
		}
		f.sent = 0
		l.slot.world.goesOn(f, reportID{m.Epoch, m.Shard, m.Sequence})
	}
}
