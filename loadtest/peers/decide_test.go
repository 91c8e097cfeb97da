package peers

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// far is out of reach: no key is hit so often in a second.
var far = quota{limit: 1_000_000_000, window: time.Second}

// inProcessLimiters are those that decide from their own memory, each with a quota that it never
// reaches.
var inProcessLimiters = []struct {
	name string
	make func(testing.TB, quota) *subject
	far  quota
}{
	{"offpath", newOffpath, far},
	{"offpath-idle", newIdleOffpath, far},
	{"floor-xsync", newXsyncFloor(false), far},
	{"floor-flat", newFlatFloor(false), far},
	{"floor-xsync-recording", newXsyncFloor(true), far},
	{"floor-flat-recording", newFlatFloor(true), far},
	{"xtime", newXTime, far},
	// Its intervals must not end within a run: the refill of a large bucket gives back too little.
	{"sethvargo", newSethvargo, quota{limit: 1 << 50, window: 24 * time.Hour}},
	{"ulule", newUlule, far},
	{"throttled", newThrottled, far},
	{"throttled-lru", newThrottledLRU, far},
}

// BenchmarkDecide measures one decision in process, of cost 1, on every core at once: offpath with
// its reporter running into an in-memory bus (1 ms each way), and limiters that keep to themselves.
//
// The timed part reads no clock. p50 and p99 are from a pass before it, of the same load for 500
// ms, in which one decision in 16 is clocked; clock-ns is what the clock adds to each of these.
func BenchmarkDecide(b *testing.B) {
	for _, keys := range []string{"hot", "zipf", "uniform"} {
		for _, l := range inProcessLimiters {
			row{
				name:       "limiter=" + l.name + "/keys=" + keys,
				traffic:    inProcess.traffic(keys),
				make:       func(t testing.TB) *subject { return l.make(t, l.far) },
				showKeys:   true,
				clockEvery: 16,
			}.run(b)
		}
	}
}

// tight is a quota that is soon used up, and not filled again while a test runs.
var tight = quota{limit: 10, window: time.Hour}

// limits asks for more than tight's limit of each key, and returns how many hits were admitted.
func limits(s *subject) (all int64, err error) {
	for _, key := range []string{"a", "b"} {
		before := all
		for range 100 {
			ok, err := s.decide(key)
			if err != nil {
				return all, err
			}
			if ok {
				all++
			}
		}
		if all-before != tight.limit {
			return all, fmt.Errorf("%d hits of key %s were admitted, want %d", all-before, key, tight.limit)
		}
	}
	return all, nil
}

// A limiter that does not limit would be no rival. What offpath has counted, in its ledger too, is
// held against what was admitted.
func TestLimitersLimit(t *testing.T) {
	limiters := map[string]func(testing.TB, quota) *subject{}
	for _, l := range inProcessLimiters {
		limiters[l.name] = l.make
	}
	for _, l := range networkLimiters {
		limiters[l.name+" in Redis"] = l.make
	}
	for name, begin := range limiters {
		for _, missed := range []int64{0, 1} {
			if missed > 0 && !strings.HasPrefix(name, "offpath") {
				continue // nobody asks the others
			}
			s := begin(t, tight)
			admitted, err := limits(s)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if s.close == nil {
				continue
			}
			if err := s.close(admitted + missed); (err != nil) != (missed > 0) {
				t.Errorf("%s: with %d hits missed: %v", name, missed, err)
			}
		}
	}
}
