package memstore

import (
	"strconv"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/testing/storetest"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/window"
)

func TestContract(t *testing.T) {
	storetest.Run(t, func(testing.TB) storetest.Harness {
		s := New()
		return storetest.Harness{
			Store: s,
			Other: s,
			Now:   time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).UnixNano(),
			Ledger: func(t testing.TB) storage.Ledger {
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
					all = append(all, storage.ExpiryOf(l.shape, k.held[len(k.held)-1].Bucket))
				}
			}
		}
	}
	return all
}

const begin = int64(1_800_000_000 * time.Second)

var epoch uint64 // of the last report

// hit adds a hit to a bucket of a key, in a report of its own.
func hit(t *testing.T, s *Store, now int64, rule storage.Rule, key string, bucket int64) storage.Applied {
	t.Helper()
	epoch++
	applied, err := s.Apply(t.Context(), &storage.Batch{
		Now:    now,
		Marks:  []storage.Mark{{Epoch: epoch, Sequence: 1}},
		Rules:  []storage.Rule{rule},
		Ledger: make([]storage.Tally, 1),
		Keys:   []storage.Key{{Text: key, Cells: []storage.Cell{{Bucket: bucket, Count: 1}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return applied
}

func TestMarksExpire(t *testing.T) {
	s := New()
	batch := &storage.Batch{Marks: []storage.Mark{{Epoch: 1, Sequence: 5}}}
	for _, step := range []struct {
		after    time.Duration
		repeated bool
	}{
		{0, false},
		{23 * time.Hour, true}, // which does not prolong it
		{24 * time.Hour, false},
	} {
		batch.Now = begin + int64(step.after)
		applied, err := s.Apply(t.Context(), batch)
		if err != nil || (len(applied.Repeated) > 0) != step.repeated {
			t.Errorf("after %v: %v, %v", step.after, applied.Repeated, err)
		}
	}
}

// What has expired is forgotten, though nobody ever walks over the keys: counts, permits, and the
// checkers that had these.
func TestMemoryIsGivenBack(t *testing.T) {
	second := window.Shape{Length: time.Second, Buckets: 1}
	now := begin
	count := func(s *Store, rule, key string, _ uint64) {
		hit(t, s, now, storage.Rule{Name: rule, Shape: second}, key, second.Bucket(now))
	}
	lease := func(s *Store, rule, key string, epoch uint64) {
		_, err := s.Lease(t.Context(), &storage.LeaseBatch{
			Now:   now,
			Rules: []storage.Rule{{Name: rule, Shape: second, Limit: 1000}},
			Keys:  []storage.LeaseKey{{Text: key, Requests: []storage.LeaseRequest{{Epoch: epoch, Bucket: second.Bucket(now), Want: 1}}}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, add := range map[string]func(s *Store, rule, key string, epoch uint64){"counts": count, "leases": lease} {
		s := New()
		most := 0
		for i := range 5000 { // 100 keys a second, and 100 checkers of one key
			add(s, "rule", strconv.Itoa(i), 1)
			add(s, "rule", "key", uint64(i)+1)
			add(s, strconv.Itoa(i/1000), "key", 1)
			if now += int64(10 * time.Millisecond); i%50 > 0 {
				continue
			}
			shard := s.shards[0]
			most = max(most, len(s.expiries())-len(shard.marks))
			for _, r := range shard.rules {
				if k := r.find("key"); k != nil && len(k.cells) > 4 {
					t.Fatalf("%s: after %d ms: %d buckets of 1 s", name, 10*i, len(k.cells))
				}
			}
			for _, l := range shard.leases {
				if k := l.find("key"); k != nil && (len(k.held) > 4 || len(k.byEpoch) > 400) {
					t.Fatalf("%s: after %d ms: %d buckets of 1 s, %d checkers", name, 10*i, len(k.held), len(k.byEpoch))
				}
			}
		}
		if most == 0 || most > 1000 {
			t.Errorf("%s: up to %d keys in memory", name, most)
		}
		now += int64(25 * time.Hour)
		add(s, "last", "key", 1)
		shard := s.shards[0]
		if rules, marks := len(shard.rules)+len(shard.leases), len(shard.marks); rules != 1 || marks > 1 {
			t.Errorf("%s: in the end %d rules, %d marks", name, rules, marks)
		}
	}
}

// A bucket of the future stays until its time comes, whatever else its key does meanwhile.
func TestTheFutureIsKept(t *testing.T) {
	s, now := New(), begin
	second := window.Shape{Length: time.Second, Buckets: 1}
	add := func(ahead int64) []storage.Cell {
		return hit(t, s, now, storage.Rule{Name: "rule", Shape: second}, "key", second.Bucket(now)+ahead).Totals[0]
	}
	add(30)
	for range 30 {
		add(0)
		now += int64(time.Second)
	}
	if got := add(0); len(got) != 2 || got[1].Count != 2 {
		t.Errorf("totals: %v", got)
	}
}

// A key that is never idle keeps no more counts than its windows need.
func TestCountsOfWhatDrainsAreSettled(t *testing.T) {
	s, shape := New(), window.Shape{Length: time.Second, Buckets: 10, Kind: window.Token}
	for i := range int64(100) {
		hit(t, s, i*int64(shape.BucketSize()), storage.Rule{Name: "r", Shape: shape, Limit: 1, Burst: 1}, "a", i)
	}
	for _, r := range s.shards[0].rules {
		if k := r.find("a"); len(k.cells) > shape.Live()+shape.Buckets+1 {
			t.Errorf("%d counts", len(k.cells))
		}
	}
}
