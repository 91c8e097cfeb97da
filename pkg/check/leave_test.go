package check

import (
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/forecast"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// TestForecastsAreToldWhatLeaves: a forecast that saw no room finds some when hits have left at once, as its Ease tells.
func TestForecastsAreToldWhatLeaves(t *testing.T) {
	logged, fixed := rule("log", 1000, time.Second, 10), rule("fixed", 1000, time.Second, 1)
	logged.Algorithm, logged.Window.Kind = rules.SlidingLog, window.Log
	fixed.Algorithm, fixed.Window.Fixed = rules.FixedWindow, true
	c := newChecker(t, Options{}, logged, fixed, rule("sliding", 1000, time.Second, 1))
	fleet := forecast.Fleet{Checkers: 2, Tick: 4 * ms}
	for _, test := range []struct {
		rule   string
		oldest int64 // buckets ago
		by     int64 // new buckets
		leaves bool
	}{
		{"log", 10, 1, true},
		{"log", 9, 1, false},
		{"log", 9, 2, true},
		{"fixed", 0, 1, true},
		{"sliding", 1, 1, false},
	} {
		l := limiter(t, c, test.rule)
		cell := newCell(l, "k", noon)
		cell.setAhead(&ahead{Key: *forecast.New(noon, fleet, 0), inFlight: make([]int64, l.live)})
		cell.totals()[test.oldest] = 400
		cell.ahead().Look(noon, forecast.Window{Limit: 1000}, fleet)
		cell.foreseeLeaving(test.by)
		if hits, _ := cell.ahead().Ease(); (hits > 0) != test.leaves {
			t.Errorf("%s, 400 hits %d buckets ago, %d later: %d hits at ease, want some: %v", test.rule, test.oldest, test.by, hits, test.leaves)
		}
	}
}
