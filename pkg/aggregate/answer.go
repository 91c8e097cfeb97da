package aggregate

import (
	"fmt"
	"slices"

	"github.com/offpath-io/offpath/pkg/events"
)

// answerer makes refreshes, and keeps its memory for the next. One goroutine uses it at a time.
type answerer struct {
	id      uint64 // of the worker
	refresh events.Refresh
}

// answer tells a request's checker the totals of its keys.
func (a *answerer) answer(r *request, fold *Fold, applied *Applied, refund *refunding) error {
	m, table := r.report, r.report.GetHits()
	a.refresh = events.Refresh{
		Epoch: m.GetEpoch(), Shard: m.GetShard(), Sequence: m.GetSequence(),
		Generation: applied.State.Generation, Version: applied.State.Version,
		Repeated:   r.repeated,
		Aggregator: a.id, Uncovered: r.uncovered, Refunding: refund.hints(a.refresh.Refunding, fold, r.rules),
		KeyCells: a.refresh.KeyCells[:0], Age: a.refresh.Age[:0], Total: a.refresh.Total[:0],
		LevelAge: a.refresh.LevelAge[:0], Level: a.refresh.Level[:0], Overflow: a.refresh.Overflow[:0],
	}
	if !r.repeated { // or else nobody knows any more which were covered: they come again, and those that were counted make no difference
		a.refresh.Settlements = uint32(len(m.GetSettlements()))
	}
	told := 0 // cells of the report
	for i, key := range r.keys {
		newest, from := table.Rules[table.KeyRule[i]].GetNewest(), told
		told += int(table.KeyCells[i])
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
		if len(cells) == 0 && fold.overflows(int(key), newest, table.Age[from:told], table.Value[from:told]) {
			a.refresh.Overflow = append(a.refresh.Overflow, uint32(i))
		}
	}
	a.addLevels(r, applied)
	return send(r.reply, &a.refresh)
}

// overflows says whether a report of hits, in buckets of these ages, can only be in no count if the
// store has no room for their key: nothing is told of it, and the hits were neither late nor
// refused.
func (f *Fold) overflows(key int, newest int64, ages []int64, hits []uint64) bool {
	if f.Rules[f.Keys[key].Rule].Kind != Admitted {
		return false
	}
	for i, age := range ages {
		at := func(c Cell) bool { return c.Bucket == newest-age }
		if hits[i] > 0 && slices.ContainsFunc(f.Keys[key].Cells, at) {
			return true
		}
	}
	return false
}

// addLevels adds the settled levels of the request's keys, if any has one.
func (a *answerer) addLevels(r *request, applied *Applied) {
	table := r.report.GetHits()
	drains := func(rule *events.Rule) bool {
		return shapeOf(rule).Drains() && rule.GetKind() == events.RowKind_ADMITTED
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
		a.refresh.LevelAge, a.refresh.Level = append(a.refresh.LevelAge, age), append(a.refresh.Level, parts)
	}
}

// refuse tells the checker of a report that it will never be counted.
func refuse(reply func([]byte) error, epoch uint64, shard uint32, sequence uint64, reason error) error {
	return send(reply, &events.Refresh{Epoch: epoch, Shard: shard, Sequence: sequence, Error: reason.Error()})
}

func send(reply func([]byte) error, refresh *events.Refresh) error {
	data, err := events.Append(nil, refresh) // fresh memory, as the carrier may keep it
	if err != nil {
		return err
	}
	if err := reply(data); err != nil {
		return fmt.Errorf("answer report: %w", err)
	}
	return nil
}
