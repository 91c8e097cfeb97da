package redisstore

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
)

// BenchmarkApply is what one batch takes of Redis' CPU, by how many keys are in it, one after the
// other: what a batch costs beside its keys decides how many aggregators and shards a Redis bears
// (docs/scale.md).
func BenchmarkApply(b *testing.B) {
	for _, keys := range []int{1, 10, 100, 1000} {
		b.Run(strconv.Itoa(keys), func(b *testing.B) {
			store, admin := newStore(b, 1)
			now := time.Now().UnixNano()
			var used busyTime
			used.add(b, admin, -1)
			b.ResetTimer()
			for i := range b.N {
				batch := hitAt(now, 0, uint64(i+1), 0)
				cells := batch.Keys[0].Cells
				batch.Keys, batch.Ledger[0].Counted = nil, int64(keys)
				for k := range keys {
					text := fmt.Sprintf("user:%06d", (i*keys+k)*7919%100_000)
					batch.Keys = append(batch.Keys, storage.Key{Text: text, Cells: cells})
				}
				mustApply(b, store, batch)
			}
			b.StopTimer()
			used.add(b, admin, 1)
			b.ReportMetric(float64(used.redis.Microseconds())/float64(b.N), "redis-µs/op")
			b.ReportMetric(float64(used.own.Microseconds())/float64(b.N), "own-µs/op")
		})
	}
}
