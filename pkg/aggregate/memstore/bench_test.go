package memstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/window"
)

// BenchmarkLease grants one permit to one checker for every key.
func BenchmarkLease(b *testing.B) {
	for _, keys := range []int{1, 1000} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			s := New()
			shape := window.Shape{Length: time.Hour, Buckets: 1}
			fold := &aggregate.LeaseFold{Now: begin, Rules: []aggregate.Rule{{Name: "rule", Shape: shape, Limit: 1e15}}}
			for i := range keys {
				ask := aggregate.Ask{Epoch: 1, Bucket: shape.Bucket(begin), Want: 1}
				fold.Keys = append(fold.Keys, aggregate.LeaseKey{Text: fmt.Sprintf("user:%06d", i), Asks: []aggregate.Ask{ask}})
			}
			b.ReportAllocs()
			known := int64(0)
			for b.Loop() {
				for i := range fold.Keys {
					fold.Keys[i].Asks[0].Known = known
				}
				leased, err := s.Lease(b.Context(), fold)
				if err != nil || leased.Keys[0].New != 1 {
					b.Fatal(leased, err)
				}
				known++
			}
			b.ReportMetric(float64(b.N*keys)/b.Elapsed().Seconds(), "permits/s")
		})
	}
}
