package alarm

import (
	"fmt"
	"slices"

	"github.com/offpath-io/offpath/pkg/aggregate/internal/wire"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/events"
)

// messages appends alarms of all keys; fleet is the fleet's time. Refunds go first, in messages of
// their own. Their format keeps them from older checkers, which would deny by totals without
// refunds.
func (t *table) messages(to [][]byte, envelope *events.Alarm, fleet int64) ([][]byte, error) {
	refunded, others := t.split()
	for _, part := range []struct {
		entries []entry
		format  uint32
	}{{refunded, events.FormatRefunds}, {others, 0}} {
		for rest := part.entries; len(rest) > 0; {
			envelope.Format = part.format
			envelope.Totals, rest = t.message(rest, fleet)
			data, err := events.Append(nil, envelope)
			if err != nil {
				return nil, fmt.Errorf("make alarm: %w", err)
			}
			to = append(to, data)
		}
	}
	return to, nil
}

// split returns the entries of refunded hits, without those that were only asked for, and the
// others.
func (t *table) split() (refunded, others []entry) {
	isRefunded := func(e entry) bool { return t.rules[e.rule].Kind == storage.Refunded }
	if !slices.ContainsFunc(t.entries, isRefunded) {
		return nil, t.entries
	}
	for _, e := range t.entries {
		switch {
		case !isRefunded(e):
			others = append(others, e)
		case len(e.totals) > 0:
			refunded = append(refunded, e)
		}
	}
	return refunded, others
}

// message returns as many entries as an alarm can hold, and the rest.
func (t *table) message(entries []entry, fleet int64) (*events.Table, []entry) {
	m := &events.Table{}
	index := make(map[int]uint32, 1)
	for i := range entries {
		e := &entries[i]
		full := i >= maxRows || len(m.Age)+len(e.totals) > maxCells || len(m.KeyText)+len(e.text) > maxText
		if i > 0 && full {
			return m, entries[i:]
		}
		rule, ok := index[e.rule]
		if !ok {
			rule = uint32(len(m.Rules))
			index[e.rule] = rule
			r := &t.rules[e.rule]
			m.Rules = append(m.Rules, wire.Rule(r, r.Shape.Bucket(fleet)))
		}
		m.AddKey(rule, e.text)
		newest := m.Rules[rule].GetNewest()
		for _, c := range e.totals {
			m.AddCell(newest-c.Bucket, events.Count(min(c.Count, events.MaxCount)))
		}
		if t.rules[e.rule].Drains() {
			m.SetLevel(newest-e.level.Bucket, events.Count(e.level.Parts))
		}
	}
	return m, nil
}
