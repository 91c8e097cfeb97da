package memstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/window"
)

// BenchmarkLease grants one permit to one checker for every key.
func BenchmarkLease(b *testing.B) {
	for _, keys := range []int{1, 1000} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			s := New()
			shape := window.Shape{Length: time.Hour, Buckets: 1}
			batch := &storage.LeaseBatch{Now: begin, Rules: []storage.Rule{{Name: "rule", Shape: shape, Limit: 1e15}}}
			for i := range keys {
				ask := storage.LeaseRequest{Epoch: 1, Bucket: shape.Bucket(begin), Want: 1}
				batch.Keys = append(batch.Keys, storage.LeaseKey{Text: fmt.Sprintf("user:%06d", i), Requests: []storage.LeaseRequest{ask}})
			}
			b.ReportAllocs()
			known := int64(0)
			for b.Loop() {
				for i := range batch.Keys {
					batch.Keys[i].Requests[0].Known = known
				}
				leased, err := s.Lease(b.Context(), batch)
				if err != nil || leased.Keys[0].New != 1 {
					b.Fatal(leased, err)
				}
				known++
			}
			b.ReportMetric(float64(b.N*keys)/b.Elapsed().Seconds(), "permits/s")
		})
	}
}
