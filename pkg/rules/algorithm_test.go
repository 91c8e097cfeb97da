package rules

import (
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/window"
)

// What an algorithm makes of a rule's window, and a window's kind of its algorithm.
func TestAlgorithmAndWindowAgree(t *testing.T) {
	shape := func(kind window.Kind, buckets int) window.Shape {
		return window.Shape{Length: time.Second, Buckets: buckets, Kind: kind}
	}
	for _, tt := range []struct {
		why        string
		rule, want Rule // beside its name and limit of 5
	}{
		{"the default", Rule{Window: shape(0, 0)}, Rule{Window: shape(0, 1)}},
		{"a log is cut fine", Rule{Algorithm: SlidingLog, Window: shape(0, 0)},
			Rule{Algorithm: SlidingLog, Window: shape(window.Log, 100)}},
		{"or as it says", Rule{Algorithm: SlidingLog, Window: shape(0, 10)},
			Rule{Algorithm: SlidingLog, Window: shape(window.Log, 10)}},
		{"a burst is the limit", Rule{Algorithm: TokenBucket, Window: shape(0, 0)},
			Rule{Algorithm: TokenBucket, Burst: 5, Window: shape(window.Token, 50)}},
		{"unless it says so", Rule{Algorithm: LeakyBucket, Burst: 3, Window: shape(0, 0)},
			Rule{Algorithm: LeakyBucket, Burst: 3, Window: shape(window.Leaky, 50)}},
		{"the window's kind says which", Rule{Window: shape(window.Token, 4)},
			Rule{Algorithm: TokenBucket, Burst: 5, Window: shape(window.Token, 4)}},
		{"and so does a log's", Rule{Window: shape(window.Log, 0)},
			Rule{Algorithm: SlidingLog, Window: shape(window.Log, 100)}},
	} {
		tt.rule.Name, tt.rule.Limit = "r", 5
		got := newSet(t, tt.rule).Rules()[0]
		if got.Window != tt.want.Window || got.Algorithm != tt.want.Algorithm || got.Burst != tt.want.Burst {
			t.Errorf("%s: got %v, %+v, burst %d", tt.why, got.Algorithm, got.Window, got.Burst)
		}
	}
}
