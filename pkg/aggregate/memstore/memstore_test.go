package memstore

import (
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/storetest"
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

// expiries lists when marks and keys expire.
func (s *Store) expiries() []int64 {
	var all []int64
	for _, shard := range s.shards {
		for _, m := range shard.marks {
			all = append(all, m.expires)
		}
		for _, r := range shard.rules {
			for _, keys := range []keys{r.young, r.old} {
				for _, k := range keys.byText {
					all = append(all, aggregate.ExpiryOf(r.shape, k.cells[len(k.cells)-1].Bucket))
				}
			}
		}
	}
	return all
}
