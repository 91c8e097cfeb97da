package check

import (
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/forecast"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// What forecasts are given: others' rate, totals by stretches of buckets, and what leaves the window.

// TestOthersRate: others' rate is what passes there while own hits pass too, known one step later.
func TestOthersRate(t *testing.T) {
	type step struct{ own, news int64 }
	again := func(n int, s step) (all []step) {
		for range n {
			all = append(all, s)
		}
		return all
	}
	for _, test := range []struct {
		why   string
		steps []step // 10 ms each
		want  float64
	}{
		{"nobody", nil, 0},
		{"alone", again(20, step{3, 0}), 0},
		{"seven hits of others, one own", again(40, step{1, 7}), 0.7},
		{"only others: a caller who is elsewhere now", again(40, step{0, 10}), 0},
		{"first others, then this one", append(append(again(20, step{0, 10}), step{10, 10}), again(20, step{10, 0})...), 0},
		{"a checker that dies", append(again(40, step{1, 7}), again(60, step{1, 0})...), 0.002},
	} {
		var o others
		at := noon
		for _, s := range test.steps {
			at += 10 * ms
			o.own += s.own
			o.hear(at, s.news)
		}
		if got := o.rate() * 1e6; got < test.want-0.001 || got > test.want+0.001 {
			t.Errorf("%s: %v hits a ms, want %v", test.why, got, test.want)
		}
	}
}

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

// TestForecastsHearWhatLeaves: a forecast that saw no room finds some when hits have left at once.
func TestForecastsHearWhatLeaves(t *testing.T) {
	logged, fixed := rule("log", 1000, time.Second, 10), rule("fixed", 1000, time.Second, 1)
	logged.Algorithm, logged.Window.Kind = rules.SlidingLog, window.Log
	fixed.Algorithm, fixed.Window.Fixed = rules.FixedWindow, true
	c := newChecker(t, Options{}, logged, fixed, rule("sliding", 1000, time.Second, 1))
	fleet := forecast.Fleet{Checkers: 2, Tick: 4 * ms}
	for _, test := range []struct {
		rule       string
		oldest, by int64 // buckets ago, and new buckets
		leaves     bool
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

// TestTimesSaturate: no number of checkers in a message makes many hits few.
func TestTimesSaturate(t *testing.T) {
	for _, factor := range []int64{1, 8, 1<<32 - 1} {
		if got := times([]int64{1, events.MaxCount}, factor); got[0] != factor || got[1] <= events.MaxCount/2 {
			t.Errorf("times %d: %d", factor, got)
		}
	}
}

// TestForecastsOutliveWrongTimes: a message of a clock far ahead does not make all later ones old.
func TestForecastsOutliveWrongTimes(t *testing.T) {
	for _, made := range []int64{noon - ms, noon + 3600*second, 1<<63 - 1, -1 << 63} {
		f, l := newFleetOf(t, 4, Options{}, 1000, time.Minute)
		f.alarmMade(noon, noon-ms, l, "k", 400)
		f.alarmMade(noon+ms, made, l, "k", 401)
		for i := int64(1); i < 20; i++ {
			at := noon + i*20*ms
			f.alarmMade(at, at-ms, l, "k", 400+10*i)
		}
		o := l.ahead("k").Look(noon+400*ms, forecast.Window{Limit: 1000, Free: 400}, forecast.Fleet{Checkers: 4, Tick: 4 * ms})
		if perSecond := o.Demand * 1e9; perSecond < 300 || perSecond > 800 { // 500
			t.Errorf("after a message made at %d: %.0f hits per second are expected", made, perSecond)
		}
	}
}
