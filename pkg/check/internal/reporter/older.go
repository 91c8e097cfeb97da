package reporter

import (
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/events"
)

// toOlder changes a report for aggregators that do not know of refunds, since there seem to be no
// others: it removes the rows that ask for refunds. These have no hits, so the report's meaning
// does not change, even if it has been counted already.
func (r *Reporter) toOlder(f *inFlightReport, now int64) {
	m := &f.message
	if m.Format <= events.FormatPlain {
		return
	}
	r.olderUntil = now + int64(olderFor)
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

// olderFor is how long later reports are made for older aggregators, too.
const olderFor = 10 * time.Second
