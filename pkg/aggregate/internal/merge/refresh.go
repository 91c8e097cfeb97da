package merge

import (
	"slices"

	"github.com/offpath-io/offpath/pkg/aggregate/internal/refund"
	"github.com/offpath-io/offpath/pkg/aggregate/internal/wire"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/events"
)

// Answers makes the answers to reports, and keeps its memory for the next. One goroutine uses it at
// a time.
type Answers struct{ refresh events.Refresh }

// Refresh is the answer to a report of an applied batch: the totals of its keys. It is valid until
// the next call.
func (a *Answers) Refresh(
	r *Report, batch *storage.Batch, applied *storage.Applied, refunds *refund.Recent,
) *events.Refresh {
	m, table, old := r.Message, r.Message.GetHits(), &a.refresh
	a.refresh = events.Refresh{
		Epoch: m.GetEpoch(), Shard: m.GetShard(), Sequence: m.GetSequence(),
		Generation: applied.State.Generation, Version: applied.State.Version,
		Repeated: r.Repeated, Uncovered: r.Uncovered,
		Refunding: refunds.Hints(old.Refunding, batch, r.rules),
		KeyCells:  old.KeyCells[:0], Age: old.Age[:0], Total: old.Total[:0],
		LevelAge: old.LevelAge[:0], Level: old.Level[:0], Overflow: old.Overflow[:0],
	}
	if !r.Repeated {
		// Of a repeated report, nobody knows any more which settlements were covered: they come
		// again, and those that were counted make no difference.
		a.refresh.Settlements = uint32(len(m.GetSettlements()))
	}
	next := 0 // cell of the report
	for i, key := range r.keys {
		newest, from := table.Rules[table.KeyRule[i]].GetNewest(), next
		next += int(table.KeyCells[i])
		if key == none {
			a.refresh.KeyCells = append(a.refresh.KeyCells, 0)
			continue
		}
		cells := applied.Totals[key]
		for _, c := range cells {
			a.refresh.Age = append(a.refresh.Age, newest-c.Bucket)
			a.refresh.Total = append(a.refresh.Total, events.Count(min(c.Count, events.MaxCount)))
		}
		a.refresh.KeyCells = append(a.refresh.KeyCells, uint32(len(cells)))
		ages, hits := table.Age[from:next], table.Value[from:next]
		if len(cells) == 0 && overflows(batch, int(key), newest, ages, hits) {
			a.refresh.Overflow = append(a.refresh.Overflow, uint32(i))
		}
	}
	a.addLevels(r, applied)
	return &a.refresh
}

// overflows says whether the store has no room for a key without totals: it was given hits, in
// buckets of these ages, that were neither late nor refused.
func overflows(batch *storage.Batch, key int, newest int64, ages []int64, hits []uint64) bool {
	k := &batch.Keys[key]
	if batch.Rules[k.Rule].Kind != storage.Admitted {
		return false
	}
	for i, age := range ages {
		at := func(c storage.Cell) bool { return c.Bucket == newest-age }
		if hits[i] > 0 && slices.ContainsFunc(k.Cells, at) {
			return true
		}
	}
	return false
}

// addLevels adds the levels of the report's keys, if any has one.
func (a *Answers) addLevels(r *Report, applied *storage.Applied) {
	table := r.Message.GetHits()
	drains := func(rule *events.Rule) bool {
		return wire.Shape(rule).Drains() && rule.GetKind() == events.RowKind_ADMITTED
	}
	if !slices.ContainsFunc(table.Rules, drains) {
		return
	}
	for i, key := range r.keys {
		var age int64
		var parts uint64
		if rule := table.Rules[table.KeyRule[i]]; drains(rule) {
			l := applied.Levels[key]
			age, parts = rule.GetNewest()-l.Bucket, events.Count(l.Parts)
		}
		a.refresh.LevelAge = append(a.refresh.LevelAge, age)
		a.refresh.Level = append(a.refresh.Level, parts)
	}
}
