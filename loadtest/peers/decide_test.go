package peers

import (
	"testing"
	"time"
)

// far is out of reach: no key is hit so often in a second.
var far = quota{limit: 1_000_000_000, window: time.Second}

// inProcessLimiters are those that decide from their own memory, each with a quota that it never
// reaches.
var inProcessLimiters = []struct {
	name string
	make func(quota) (*subject, error)
	far  quota
}{
	{"offpath", newOffpath, far},
	{"xtime", newXTime, far},
	// Its intervals must not end within a run: the refill of a large bucket gives back too little.
	{"sethvargo", newSethvargo, quota{limit: 1 << 50, window: 24 * time.Hour}},
	{"ulule", newUlule, far},
	{"throttled", newThrottled, far},
	{"throttled-lru", newThrottledLRU, far},
}

// BenchmarkDecide measures one decision in process, of cost 1, on every core at once: offpath with its
// reporter running into an in-memory bus (1 ms each way), and limiters that keep to themselves.
//
// The timed part reads no clock. p50 and p99 are from a pass before it, of the same load for 500 ms,
// in which one decision in 16 is clocked; clock-ns is what the clock adds to each of these.
func BenchmarkDecide(b *testing.B) {
	for _, keys := range []string{"hot", "zipf", "uniform"} {
		for _, l := range inProcessLimiters {
			row{
				name:       "limiter=" + l.name + "/keys=" + keys,
				traffic:    inProcess.traffic(keys),
				make:       func() (*subject, error) { return l.make(l.far) },
				showKeys:   true,
				clockEvery: 16,
			}.run(b)
		}
	}
}

// A limiter that does not limit would be no rival.
func TestInProcessLimitersLimit(t *testing.T) {
	for _, l := range inProcessLimiters {
		t.Run(l.name, func(t *testing.T) {
			s, err := l.make(tight)
			if err != nil {
				t.Fatal(err)
			}
			admitted := limits(t, s)
			if s.close == nil {
				return
			}
			if err := s.close(admitted); err != nil {
				t.Error(err)
			}
		})
	}
}

// tight is a quota that is soon used up, and not filled again while a test runs.
var tight = quota{limit: 10, window: time.Hour}

// limits fails unless each key is admitted tight's limit, and returns how many hits were, of all keys.
func limits(t *testing.T, s *subject) (all int64) {
	t.Helper()
	for _, key := range []string{"a", "b"} {
		admitted := int64(0)
		for range 100 {
			ok, err := s.decide(key)
			if err != nil {
				t.Fatal(err)
			}
			if ok {
				admitted++
			}
		}
		if admitted != tight.limit {
			t.Errorf("%d hits of key %s were admitted, want %d", admitted, key, tight.limit)
		}
		all += admitted
	}
	return all
}

// What offpath has counted is held against what was admitted.
func TestOffpathMissesAHit(t *testing.T) {
	s, err := newOffpath(tight)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.close(limits(t, s) + 1); err == nil {
		t.Error("no error, with one hit more admitted than charged")
	}
}
