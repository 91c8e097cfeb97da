package aggregate_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate/internal/merge"
	"github.com/offpath-io/offpath/pkg/aggregate/internal/refund"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/events"
)

// BenchmarkReports merges reports of 1000 keys, and answers them, without a store: ns per key.
func BenchmarkReports(b *testing.B) {
	const now = int64(1_800_000_000 * time.Second)
	rule := func() *events.Rule {
		return &events.Rule{Name: "per-user", WindowMs: 60_000, Buckets: 1, Limit: 100, Newest: now / int64(time.Minute)}
	}
	for _, bm := range []struct {
		name    string
		reports int
		keys    int // to choose from
	}{
		{"2 reports, distinct keys", 2, 1_000_000},
		{"10 reports, the same keys", 10, 1000},
	} {
		b.Run(bm.name, func(b *testing.B) {
			var reports []*merge.Report
			for i := range bm.reports {
				m := &events.Report{Epoch: uint64(i) + 1, Sequence: 1, Shards: 1, Hits: &events.Table{Rules: []*events.Rule{rule()}}}
				for _, key := range rand.Perm(bm.keys)[:1000] {
					m.Hits.AddKey(0, fmt.Sprintf("user:%06d", key))
					m.Hits.AddCell(0, 1)
				}
				reports = append(reports, &merge.Report{Message: m})
			}
			merger := merge.NewReports(int64(5 * time.Second))
			var answers merge.Answers
			var refunds refund.Recent
			applied := &storage.Applied{State: storage.State{Generation: 1, Version: 1}}
			for b.Loop() {
				batch := merger.Merge(0, reports, storage.State{}, now)
				applied.Totals = applied.Totals[:0]
				for i := range batch.Keys {
					applied.Totals = append(applied.Totals, batch.Keys[i].Cells)
				}
				for _, r := range reports {
					if _, err := events.Append(nil, answers.Refresh(r, batch, applied, &refunds)); err != nil {
						b.Fatal(err)
					}
				}
			}
			keys := float64(b.N) * float64(bm.reports) * 1000
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/keys, "ns/key")
		})
	}
}
