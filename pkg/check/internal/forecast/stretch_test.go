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
		expect(t, got == test.want, "%s: %d of %d buckets of %v, want %d", test.why, got, test.buckets, test.length, test.want)
	}
}

func TestTotalsOfStretches(t *testing.T) {
	news := Series{Newest: 27, Age: []int64{0, 2, 7, 8, 17, 18}, Value: []uint64{1, 2, 4, 8, 16, 32}}
	ten, single := news.of(2, 10), news.of(27, 1)
	expect(t, ten == Totals{7, 24}, "buckets 20 to 27, and 10 to 19: %v", ten)
	expect(t, single == Totals{1, 0}, "single buckets: %v", single)
	near(t, "from bucket 20", news.from(20), 7, 0)
}
