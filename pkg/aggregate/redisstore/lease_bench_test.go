package redisstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/window"
)

// BenchmarkLease is one worker's calls, one after the other, each with a grant of one permit to one
// checker for every key: permits per second, and what each took of Redis' CPU and of ours.
func BenchmarkLease(b *testing.B) {
	for _, bm := range []struct {
		keys, buckets int
	}{{1, 1}, {10, 1}, {1000, 1}, {1, 60}, {1000, 60}} {
		b.Run(fmt.Sprintf("keys=%d/buckets=%d", bm.keys, bm.buckets), func(b *testing.B) {
			admin, s := empty(b), open(b, Options{})
			shape := window.Shape{Length: 60 * time.Hour, Buckets: bm.buckets}
			begin := time.Now().Add(-200 * time.Hour).UnixNano()
			batch := &storage.LeaseBatch{Rules: []storage.Rule{{Name: "rule", Shape: shape, Limit: 1e15}}}
			for i := range bm.keys {
				batch.Keys = append(batch.Keys, storage.LeaseKey{Text: fmt.Sprintf("user:%06d", i), Requests: make([]storage.LeaseRequest, 1)})
			}
			// lease asks for one more permit of each key, of which so many are known.
			lease := func(now, known int64) {
				batch.Now = now
				for i := range batch.Keys {
					batch.Keys[i].Requests[0] = storage.LeaseRequest{Epoch: 1, Bucket: shape.Bucket(now), Known: known, Want: 1}
				}
				if got := mustLease(b, s, batch).Keys[0].New; got != 1 {
					b.Fatalf("%d permits granted", got)
				}
			}
			for bucket := range bm.buckets { // as it is in the middle of traffic
				lease(begin+int64(bucket)*int64(shape.BucketSize()), 0)
			}
			now := begin + int64(bm.buckets)*int64(shape.BucketSize())
			var used busyTime
			b.ReportAllocs()
			used.add(b, admin, -1)
			known := int64(0)
			for b.Loop() {
				lease(now, known)
				known++
			}
			used.add(b, admin, 1)
			permits := float64(b.N * bm.keys)
			b.ReportMetric(permits/b.Elapsed().Seconds(), "permits/s")
			b.ReportMetric(float64(used.redis)/permits, "redis-ns/permit")
			b.ReportMetric(float64(used.own)/permits, "own-ns/permit")
		})
	}
}
