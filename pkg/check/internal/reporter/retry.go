package reporter

import (
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/events"
)

// How a report is sent, and again when it has waited too long for its answer.

// send puts a report on its way and notes when to do so again.
func (b *Reporter) send(number uint32, f *inFlightReport, now int64) {
	f.retryAt = now + int64(f.wait)
	if f.tries++; f.tries > soonTries {
		f.wait = min(2*f.wait, mostWaits*b.o.Tuning.ReportTimeout)
	}
	f.toAny = b.shards[number].aggregator == 0
	if err := b.o.Link.Report(number, b.shards[number].aggregator, f.report); err != nil {
		b.counts.Problem = err.Error()
		b.counts.Unsent++
	}
}

// repeat sends again what has waited too long for its answer, and gives up what is too old.
func (b *Reporter) repeat(now int64) {
	for i := range b.shards {
		s := &b.shards[i]
		switch f := s.flight; {
		case f == nil || now < f.retryAt:
		case now-f.born > int64(events.MaxReportAge):
			s.gaveUp = now
			b.giveUp(s, f, b.host.Clock.Fleet(now))
		default:
			b.counts.Repeated++
			f.repeated = true
			s.aggregator = 0
			f.tell(Repeated)
			if f.tries >= newerTries {
				b.toOlder(f, now)
			}
			b.send(uint32(i), f, now)
		}
	}
}

// toOlder makes a report one for aggregators that do not know of refunds, since it seems that there
// are no others: without the rows that ask for these. They hold no hits, so it counts for the same,
// and may have been counted already.
func (b *Reporter) toOlder(f *inFlightReport, now int64) {
	m := &f.message
	if m.Format <= events.FormatPlain {
		return
	}
	b.olderUntil = b.host.Clock.Fleet(now) + int64(olderFor)
	table := &events.Table{}
	rows, hits, late := f.rows[:0:0], f.hits[:0:0], m.Late[:0:0]
	index := make([]uint32, len(m.Hits.Rules))
	for i, rule := range m.Hits.Rules {
		if rule.Kind == events.RowKind_REFUNDED {
			continue
		}
		index[i] = uint32(len(table.Rules))
		table.Rules, hits = append(table.Rules, rule), append(hits, f.hits[i])
		if i < len(m.Late) {
			late = append(late, m.Late[i])
		}
	}
	text, age, value := m.Hits.KeyText, m.Hits.Age, m.Hits.Value
	for i, length := range m.Hits.KeyLength {
		rule, cells := m.Hits.KeyRule[i], m.Hits.KeyCells[i]
		if f.rows[i].kind != counter.RefundedHits {
			table.AddKey(index[rule], string(text[:length]))
			for j := range cells {
				table.AddCell(age[j], value[j])
			}
			rows = append(rows, f.rows[i])
		}
		text, age, value = text[length:], age[cells:], value[cells:]
	}
	f.rows, f.hits, m.Late, m.Hits, m.Format = rows, hits, late, table, 0
	f.encode()
}

const (
	// newerTries are how often a report of a newer format is sent before it is made one that older
	// aggregators know, and olderFor is how long others are then made so.
	newerTries = 2
	olderFor   = 10 * time.Second
)
