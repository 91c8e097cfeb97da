package redisstore

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/window"
)

// BenchmarkFold is what one fold takes of Redis' CPU, by how many keys are in it, one after the
// other: what a fold costs beside its keys decides how many aggregators and shards a Redis bears
// (docs/scale.md).
func BenchmarkFold(b *testing.B) {
	for _, keys := range []int{1, 10, 100, 1000} {
		b.Run(strconv.Itoa(keys), func(b *testing.B) {
			store, admin := newStore(b, 1)
			rule := aggregate.Rule{Name: "per-user", Shape: window.Shape{Length: time.Hour, Buckets: 1}, Limit: 1e9}
			now := time.Now().UnixNano()
			var used busyTime
			used.add(b, admin, -1)
			b.ResetTimer()
			for i := range b.N {
				fold := &aggregate.Fold{
					Now: now, Made: now, Rules: []aggregate.Rule{rule}, Ledger: []aggregate.Tally{{Counted: int64(keys)}},
					Marks: []aggregate.Mark{{Epoch: 1, Sequence: uint64(i + 1)}},
				}
				for k := range keys {
					fold.Keys = append(fold.Keys, aggregate.Key{
						Text:  fmt.Sprintf("user:%06d", (i*keys+k)*7919%100_000),
						Cells: []aggregate.Cell{{Bucket: rule.Shape.Bucket(now), Count: 1}},
					})
				}
				mustApply(b, store, fold)
			}
			b.StopTimer()
			used.add(b, admin, 1)
			b.ReportMetric(float64(used.redis.Microseconds())/float64(b.N), "redis-µs/op")
			b.ReportMetric(float64(used.own.Microseconds())/float64(b.N), "own-µs/op")
		})
	}
}
