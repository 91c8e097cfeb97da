package counter

import (
	"github.com/offpath-io/offpath/pkg/check/internal/fleetstate"
	"slices"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/forecast"
	"github.com/offpath-io/offpath/pkg/window"
)

const (
	ms     = int64(time.Millisecond)
	second = int64(time.Second)
	noon   = 20_000*24*3600*second + 12*3600*second
)

func groupOf(shape window.Shape, limit int64) *Group {
	h, g := new(Host), new(Group)
	h.Init(fleetstate.Config{MaxLiveKeys: 1 << 10, ExpectCheckers: 1})
	g.Init(h, "r", shape, false)
	g.Limits.Store(&Limits{Limit: limit, Capacity: limit})
	return g
}

// TestRefundsStayWithTheirBuckets in a counter, which counts 30, 20 and 10 hits, of which 3, 2 and
// 11 are refunded.
func TestRefundsStayWithTheirBuckets(t *testing.T) {
	merge := func(c Locked, news bool, age []int64, value ...uint64) {
		if got := (Totals{Newest: c.Newest, Age: age, Value: value}).mergeRefunds(c); got != news {
			t.Errorf("%v of %v: news: %v, want %v", value, age, got, news)
		}
	}
	for why, step := range map[string]struct {
		do   func(c Locked)
		want []int64
	}{
		"never below 0":        {func(Locked) {}, []int64{27, 18, 0}},
		"a bucket later":       {func(c Locked) { c.rotate(noon + 30*second) }, []int64{0, 27, 18}},
		"long after":           {func(c Locked) { c.rotate(noon + 3600*second) }, []int64{0, 0, 0}},
		"a clock that is back": {func(c Locked) { c.pullBack(1) }, []int64{45, 0, 0}},
		"a store without data": {func(c Locked) { c.forgetBase() }, []int64{0, 0, 0}},
		"an older message":     {func(c Locked) { merge(c, false, []int64{0, 1, 7}, 2, 2, 9) }, []int64{27, 18, 0}},
		"a newer one":          {func(c Locked) { merge(c, true, []int64{0, 1}, 2, 5) }, []int64{27, 15, 0}},
	} {
		g := groupOf(window.Shape{Length: time.Minute, Buckets: 2}, 100)
		c, learnt := New(g, "k", noon), New(g, "k", noon)
		copy(c.Totals(), []int64{30, 20, 10})
		c.mayRefund()
		copy(c.more.refunded, []int64{3, 2, 11})
		learnt.Learn(c) // from the idle cache
		for _, c := range []Locked{c, learnt} {
			step.do(c)
			limits, at := g.Limits.Load(), g.Shape.End(c.Newest-1) // when the bucket begins
			n, freed := c.Count(limits, at), c.freed(limits, at)
			if net := c.net(); !slices.Equal(net, step.want) || n != g.Shape.Count(step.want, at) ||
				freed != float64(step.want[2])/float64(g.Shape.BucketSize()) {
				t.Errorf("%s: %v, counts %v, %v leave per ns; want %v", why, net, n, freed, step.want)
			}
		}
	}
}

// TestForecastsHearWhatLeaves: a forecast that saw no room finds some when hits have left at once.
func TestForecastsHearWhatLeaves(t *testing.T) {
	logged := window.Shape{Length: time.Second, Buckets: 10, Kind: window.Log}
	fixed := window.Shape{Length: time.Second, Buckets: 1, Fixed: true}
	sliding := window.Shape{Length: time.Second, Buckets: 1}
	fleet := forecast.Fleet{Checkers: 2, FastInterval: 4 * ms}
	for _, test := range []struct {
		shape      window.Shape
		oldest, by int64 // buckets ago, and new buckets
		leaves     bool
	}{
		{logged, 10, 1, true},
		{logged, 9, 1, false},
		{logged, 9, 2, true},
		{fixed, 0, 1, true},
		{sliding, 1, 1, false},
	} {
		g := groupOf(test.shape, 1000)
		c := New(g, "k", noon)
		c.needMore().forecast = &Forecast{Key: *forecast.New(noon, fleet, 0, 1), inFlight: make([]int64, g.Live)}
		c.Totals()[test.oldest] = 400
		c.Forecast().Look(noon, forecast.Window{Limit: 1000}, fleet)
		c.foreseeLeaving(test.by)
		if hits, _ := c.Forecast().Ease(); (hits > 0) != test.leaves {
			t.Errorf("%+v, of 400 hits: %d hits at ease", test, hits)
		}
	}
}

// TestStrictChecksReadTheClock: the last tick may be long ago, and permits would be spent after
// their bucket.
func TestStrictChecksReadTheClock(t *testing.T) {
	now := noon
	h := new(Host)
	h.Init(fleetstate.Config{Now: func() time.Time { return time.Unix(0, now) }})
	h.Clock.Tick(now)
	now += 5 * ms
	if loose, strict := h.Time(false), h.Time(true); loose != noon || strict != now {
		t.Errorf("%d and, strict, %d ms after the tick, want 0 and 5", (loose-noon)/ms, (strict-noon)/ms)
	}
}

// TestRebucketForgetsTraffic: after a clock was set back its times lie in the future, and a hit
// that is thinned would wait until then.
func TestRebucketForgetsTraffic(t *testing.T) {
	g := groupOf(window.Shape{Length: time.Minute, Buckets: 2}, 10)
	g.Host.Size.Store(8)
	c := New(g, "k", noon)
	c.Totals()[0] = 9
	c.noteOthers(g.Limits.Load(), noon, 9)
	if c.thinning() == nil {
		t.Fatal("nothing is known of others' hits")
	}
	c.Counter.Rebucket(-int64(time.Hour), noon-int64(time.Hour))
	if c.thinning() != nil {
		t.Error("what was known of the key's traffic is kept")
	}
}
