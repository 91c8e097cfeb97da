package memstore

import (
	"strconv"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/testing/storetest"
	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/window"
)

func TestContract(t *testing.T) {
	storetest.Run(t, func(testing.TB) storetest.Harness {
		s := New()
		return storetest.Harness{
			Store: s,
			Other: s,
			Now:   time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).UnixNano(),
			Ledger: func(t testing.TB) aggregate.Ledger {
				l, err := s.Ledger(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				return l
			},
			Lose: func(testing.TB) { s.Lose() },
			Snapshot: func(testing.TB) func() {
				copied := s.Snapshot()
				return func() { s.Restore(copied) }
			},
			Expiries: func(testing.TB) []int64 { return s.expiries() },
		}
	})
}

// expiries lists when marks, counts and leases expire.
func (s *Store) expiries() []int64 {
	var all []int64
	for _, shard := range s.shards {
		for _, m := range shard.marks {
			all = append(all, m.expires)
		}
		for _, r := range shard.rules {
			for _, g := range []generation[counter]{r.young, r.old} {
				for _, k := range g.byText {
					all = append(all, k.expires)
				}
			}
		}
		for _, l := range shard.leases {
			for _, g := range []generation[lease]{l.young, l.old} {
				for _, k := range g.byText {
					all = append(all, aggregate.ExpiryOf(l.shape, k.held[len(k.held)-1].Bucket))
				}
			}
		}
	}
	return all
}

func TestMarksExpire(t *testing.T) {
	s := New()
	fold := &aggregate.Fold{Marks: []aggregate.Mark{{Epoch: 1, Sequence: 5}}}
	for _, step := range []struct {
		after    time.Duration
		repeated bool
	}{
		{0, false},
		{23 * time.Hour, true}, // which does not prolong it
		{24 * time.Hour, false},
	} {
		fold.Now = int64(1_800_000_000*time.Second + step.after)
		applied, err := s.Apply(t.Context(), fold)
		if err != nil || (len(applied.Repeated) > 0) != step.repeated {
			t.Errorf("after %v: %v, %v", step.after, applied.Repeated, err)
		}
	}
}

// What has expired is forgotten, though nobody ever walks over the keys.
func TestMemoryIsGivenBack(t *testing.T) {
	s := New()
	second := window.Shape{Length: time.Second, Buckets: 1}
	now := int64(1_800_000_000 * time.Second)
	sequence := uint64(0)
	apply := func(rule, key string) {
		sequence++
		_, err := s.Apply(t.Context(), &aggregate.Fold{
			Now:    now,
			Marks:  []aggregate.Mark{{Epoch: sequence, Sequence: 1}},
			Rules:  []aggregate.Rule{{Name: rule, Shape: second}},
			Ledger: make([]aggregate.Tally, 1),
			Keys:   []aggregate.Key{{Text: key, Cells: []aggregate.Cell{{Bucket: second.Bucket(now), Count: 1}}}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	most := 0
	for i := range 10_000 { // 100 keys a second
		apply("rule", strconv.Itoa(i))
		apply(strconv.Itoa(i/1000), "key")
		now += int64(10 * time.Millisecond)
		if i%50 == 0 {
			most = max(most, len(s.expiries())-len(s.shards[0].marks))
			for _, r := range s.shards[0].rules {
				for key, k := range r.young.byText {
					if len(k.cells) > 4 {
						t.Fatalf("key %s has %d buckets of 1 s after %d ms", key, len(k.cells), 10*i)
					}
				}
			}
		}
	}
	if most > 1000 {
		t.Errorf("up to %d keys in memory", most)
	}
	now += int64(25 * time.Hour)
	apply("last", "key")
	if shard := s.shards[0]; len(shard.rules) != 1 || len(shard.marks) != 1 {
		t.Errorf("in the end: %d rules, %d marks", len(shard.rules), len(shard.marks))
	}
}

// A bucket of the future stays until its time comes, whatever else its key does meanwhile.
func TestTheFutureIsKept(t *testing.T) {
	s := New()
	second := window.Shape{Length: time.Second, Buckets: 1}
	now := int64(1_800_000_000 * time.Second)
	apply := func(ahead int64) []aggregate.Cell {
		applied, err := s.Apply(t.Context(), &aggregate.Fold{
			Now:    now,
			Rules:  []aggregate.Rule{{Name: "rule", Shape: second}},
			Ledger: make([]aggregate.Tally, 1),
			Keys:   []aggregate.Key{{Text: "key", Cells: []aggregate.Cell{{Bucket: second.Bucket(now) + ahead, Count: 1}}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return applied.Totals[0]
	}
	apply(30)
	for range 30 {
		apply(0)
		now += int64(time.Second)
	}
	if got := apply(0); len(got) != 2 || got[1].Count != 2 {
		t.Errorf("totals: %v", got)
	}
}

// A key that is never idle keeps no more counts than its windows need.
func TestCountsOfWhatDrainsAreSettled(t *testing.T) {
	s, shape := New(), window.Shape{Length: time.Second, Buckets: 10, Kind: window.Token}
	for i := range int64(100) {
		now := i * int64(shape.BucketSize())
		_, err := s.Apply(t.Context(), &aggregate.Fold{
			Now: now, Marks: []aggregate.Mark{{Epoch: 1, Sequence: uint64(i) + 1}}, Ledger: make([]aggregate.Tally, 1),
			Rules: []aggregate.Rule{{Name: "r", Shape: shape, Limit: 1, Burst: 1}},
			Keys:  []aggregate.Key{{Text: "a", Cells: []aggregate.Cell{{Bucket: i, Count: 1}}}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range s.shards[0].rules {
		if k := r.find("a"); len(k.cells) > shape.Live()+shape.Buckets+1 {
			t.Errorf("%d counts", len(k.cells))
		}
	}
}
