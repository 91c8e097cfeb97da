package forecast

import (
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/window"
)

// TestStretch: how many buckets are counted together.
func TestStretch(t *testing.T) {
	for _, test := range []struct {
		why     string
		length  time.Duration
		buckets int
		want    int64
	}{
		{"one bucket", time.Second, 1, 1},
		{"two", time.Second, 2, 1},
		{"as long as a full round", time.Second, 100, 13},
		{"at most half of the window", 100 * time.Millisecond, 100, 50},
		{"an eighth, as denied hits are told so seldom", time.Minute, 100, 12},
	} {
		got := stretchOf(window.Shape{Length: test.length, Buckets: test.buckets})
		if got != test.want {
			t.Errorf("%s: %d of %d buckets of %v, want %d", test.why, got, test.buckets, test.length, test.want)
		}
	}
}

func TestTotalsOfStretches(t *testing.T) {
	news := Series{Newest: 27, Age: []int64{0, 2, 7, 8, 17, 18}, Value: []uint64{1, 2, 4, 8, 16, 32}}
	if got := news.of(2, 10); got != (Totals{7, 24}) { // 20 to 27, 10 to 19
		t.Errorf("stretch 2 and the one before: %v", got)
	}
	if got := news.of(27, 1); got != (Totals{1, 0}) {
		t.Errorf("single buckets: %v", got)
	}
	if got := news.from(20); got != 7 {
		t.Errorf("from bucket 20: %v", got)
	}
}
