package check

import (
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/forecast"
	"github.com/offpath-io/offpath/pkg/window"
)

func TestStretch(t *testing.T) {
	for _, test := range []struct {
		why     string
		length  time.Duration
		buckets int
		want    int64
	}{
		{"one bucket", time.Second, 1, 1},
		{"two", time.Second, 2, 1},
		{"as long as a census", time.Second, 100, 13},
		{"at most half of the window", 100 * time.Millisecond, 100, 50},
		{"an eighth, as denied hits are told so seldom", time.Minute, 100, 12},
	} {
		if got := stretch(window.Shape{Length: test.length, Buckets: test.buckets}); got != test.want {
			t.Errorf("%s: %d of %d buckets of %v, want %d", test.why, got, test.buckets, test.length, test.want)
		}
	}
}

func TestTotalsOfStretches(t *testing.T) {
	news := totals{newest: 27, age: []int64{0, 2, 7, 8, 17, 18}, value: []uint64{1, 2, 4, 8, 16, 32}}
	if got, want := news.of(2, 10), (forecast.Totals{7, 24}); got != want { // 20 to 27, 10 to 19
		t.Errorf("stretch 2 and the one before: %v, want %v", got, want)
	}
	if got, want := news.of(27, 1), (forecast.Totals{1, 0}); got != want {
		t.Errorf("single buckets: %v, want %v", got, want)
	}
	if got := news.from(20); got != 7 {
		t.Errorf("from bucket 20: %d, want 7", got)
	}
}
