package memstore

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/window"
)

// Permits that have expired are forgotten, and so are the checkers that had them.
func TestMemoryOfLeasesIsGivenBack(t *testing.T) {
	s := New()
	second := window.Shape{Length: time.Second, Buckets: 1}
	now := int64(1_800_000_000 * time.Second)
	lease := func(rule, key string, epoch uint64) {
		_, err := s.Lease(t.Context(), &aggregate.LeaseFold{
			Now:   now,
			Rules: []aggregate.Rule{{Name: rule, Shape: second, Limit: 1000}},
			Keys:  []aggregate.LeaseKey{{Text: key, Asks: []aggregate.Ask{{Epoch: epoch, Bucket: second.Bucket(now), Want: 1}}}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	most := 0
	for i := range 10_000 { // 100 keys a second, and 100 checkers of one key
		lease("rule", strconv.Itoa(i), 1)
		lease("rule", "key", uint64(i)+1)
		lease(strconv.Itoa(i/1000), "key", 1)
		now += int64(10 * time.Millisecond)
		if i%50 > 0 {
			continue
		}
		most = max(most, len(s.expiries()))
		for _, l := range s.shards[0].leases {
			k := l.find("key")
			if k != nil && (len(k.held) > 4 || len(k.byEpoch) > 400) {
				t.Fatalf("after %d ms: %d buckets of 1 s, %d checkers", 10*i, len(k.held), len(k.byEpoch))
			}
		}
	}
	if most > 1000 {
		t.Errorf("up to %d keys in memory", most)
	}
	now += int64(time.Hour)
	lease("last", "key", 1)
	if n := len(s.shards[0].leases); n != 1 {
		t.Errorf("in the end: %d rules", n)
	}
}

// BenchmarkLease grants one permit to one checker for every key.
func BenchmarkLease(b *testing.B) {
	for _, keys := range []int{1, 1000} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			s := New()
			shape := window.Shape{Length: time.Hour, Buckets: 1}
			now := int64(1_800_000_000 * time.Second)
			fold := &aggregate.LeaseFold{Now: now, Rules: []aggregate.Rule{{Name: "rule", Shape: shape, Limit: 1e15}}}
			for i := range keys {
				ask := aggregate.Ask{Epoch: 1, Bucket: shape.Bucket(now), Want: 1}
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
