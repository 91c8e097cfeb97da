package aggregate_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
)

// A trace follows reports that come with a traceparent, and only these.
func TestTraceFollowsReports(t *testing.T) {
	store := &faulty{Store: memstore.New()}
	var lines []string
	follow := func(parent string, shard uint32, sequence uint64, keys int) func(aggregate.TraceEvent) {
		lines = append(lines, fmt.Sprintf("%s: shard %d, sequence %d, %d keys", parent, shard, sequence, keys))
		return func(e aggregate.TraceEvent) {
			text := [...]string{"", "apply", "applied", "answered", "dropped"}[e.Kind]
			if e.Kind == aggregate.TraceApply {
				text += fmt.Sprintf(" %d keys of %d reports", e.Keys, e.Reports)
			}
			if e.Err != nil {
				text += ": " + e.Err.Error()
			}
			lines = append(lines, parent+": "+text)
		}
	}
	d := newFixture(t, store, func(o *aggregate.Options) { o.Trace = follow })
	send := func(epoch, sequence uint64, parent string) {
		m := report(epoch, sequence, perSecond(start), own{key: "a", count: 1})
		m.Trace = parent
		d.send(start, m)
	}
	steps := []struct {
		why  string
		do   func()
		want []string
	}{
		{"two reports, of which one is traced", func() { send(1, 1, "p"); send(2, 1, "") },
			[]string{"p: shard 0, sequence 1, 1 keys", "p: apply 1 keys of 2 reports", "p: applied", "p: answered"}},
		{"a report that was counted before: another batch tells its totals", func() { send(1, 1, "again") },
			[]string{"again: shard 0, sequence 1, 1 keys", "again: apply 1 keys of 1 reports", "again: applied",
				"again: apply 1 keys of 1 reports", "again: applied", "again: answered"}},
		{"the store is away", func() { store.have(faults{before: errors.New("away")}); send(1, 2, "q") },
			[]string{"q: shard 0, sequence 2, 1 keys", "q: apply 1 keys of 1 reports", "q: applied: away", "q: dropped"}},
		{"a repeat comes first, and then what it repeats", func() { store.have(faults{}); send(1, 3, ""); send(1, 2, "late") },
			[]string{"late: shard 0, sequence 2, 1 keys", "late: dropped"}},
	}
	for _, s := range steps {
		lines = nil
		s.do()
		d.step(start + 2*ms)
		if !slices.Equal(lines, s.want) {
			t.Errorf("%s:\ngot  %q\nwant %q", s.why, lines, s.want)
		}
	}
}
