package rules

import (
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/window"
)

// What an algorithm makes of a rule's window, and a window's kind of its algorithm.
func TestAlgorithmAndWindowAgree(t *testing.T) {
	for _, tt := range []struct {
		why  string
		rule Rule // beside its name and limit of 5
		want Rule
	}{
		{"the default", Rule{Window: window.Shape{Length: time.Second}},
			Rule{Window: window.Shape{Length: time.Second, Buckets: 1}}},
		{"a log is cut fine", Rule{Algorithm: SlidingLog, Window: window.Shape{Length: time.Second}},
			Rule{Algorithm: SlidingLog, Window: window.Shape{Length: time.Second, Buckets: 100, Kind: window.Log}}},
		{"or as it says", Rule{Algorithm: SlidingLog, Window: window.Shape{Length: time.Second, Buckets: 10}},
			Rule{Algorithm: SlidingLog, Window: window.Shape{Length: time.Second, Buckets: 10, Kind: window.Log}}},
		{"a burst is the limit", Rule{Algorithm: TokenBucket, Window: window.Shape{Length: time.Minute}},
			Rule{Algorithm: TokenBucket, Burst: 5, Window: window.Shape{Length: time.Minute, Buckets: 60, Kind: window.Token}}},
		{"unless it says so", Rule{Algorithm: LeakyBucket, Burst: 3, Window: window.Shape{Length: time.Second}},
			Rule{Algorithm: LeakyBucket, Burst: 3, Window: window.Shape{Length: time.Second, Buckets: 50, Kind: window.Leaky}}},
		{"the window's kind says which", Rule{Window: window.Shape{Length: time.Second, Buckets: 4, Kind: window.Token}},
			Rule{Algorithm: TokenBucket, Burst: 5, Window: window.Shape{Length: time.Second, Buckets: 4, Kind: window.Token}}},
		{"and so does a log's", Rule{Window: window.Shape{Length: time.Second, Kind: window.Log}},
			Rule{Algorithm: SlidingLog, Window: window.Shape{Length: time.Second, Buckets: 100, Kind: window.Log}}},
	} {
		tt.rule.Name, tt.rule.Limit, tt.rule.Key = "r", 5, []string{"user"}
		set, err := NewSet(tt.rule)
		if err != nil {
			t.Errorf("%s: %v", tt.why, err)
			continue
		}
		if got := set.Rules()[0]; got.Window != tt.want.Window || got.Algorithm != tt.want.Algorithm || got.Burst != tt.want.Burst {
			t.Errorf("%s: got %v, %+v, burst %d", tt.why, got.Algorithm, got.Window, got.Burst)
		}
	}
	for why, r := range map[string]Rule{
		"two kinds":            {Algorithm: TokenBucket, Window: window.Shape{Length: time.Second, Kind: window.Log}},
		"a fixed window's two": {Algorithm: FixedWindow, Window: window.Shape{Length: time.Second, Kind: window.Log}},
		"a fixed token bucket": {Algorithm: TokenBucket, Window: window.Shape{Length: time.Second, Fixed: true}},
	} {
		r.Name, r.Limit, r.Key = "r", 5, []string{"user"}
		if set, err := NewSet(r); err == nil {
			t.Errorf("%s: taken as %+v", why, set.Rules()[0])
		}
	}
}
