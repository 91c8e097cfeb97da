package check

import (
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/events"
)

// TestNewsIsWhatWasNotKnown: over all buckets, and never less than none.
func TestNewsIsWhatWasNotKnown(t *testing.T) {
	f := newFleet(t, Options{}, rule("r", 1000, 10*time.Second, 2))
	l := limiter(t, f.Checker, "r")
	l.CheckAt(noon, "k", 5)
	c := l.holds([]byte("k"))
	c.settle(noon)
	for _, test := range []struct {
		age   []int64
		value []uint64
		news  int64
	}{
		{[]int64{0, 1, 2}, []uint64{10, 20, 30}, 60},
		{[]int64{0, 1, 2}, []uint64{10, 20, 30}, 0},
		{[]int64{0, 1}, []uint64{5, 21}, 1},
		{[]int64{-1, 3, 2}, []uint64{99, 99, 31}, 1}, // of buckets that this cell does not have
	} {
		if got := (word{admitted: totals{newest: c.newest, age: test.age, value: test.value}}).mergeInto(c); got != test.news {
			t.Errorf("ages %v, totals %v: %d hits of news, want %d", test.age, test.value, got, test.news)
		}
	}
	if got := c.totals()[0]; got != 15 {
		t.Errorf("the newest bucket has %d, want the 10 and the 5 pending", got)
	}
}

// TestAlarmInANewBucket: the cell's buckets are those of the time when the alarm comes, though nobody has checked
// the key since the last; and an allowance that is out is taken back first.
func TestAlarmInANewBucket(t *testing.T) {
	for _, both := range []bool{false, true} {
		f, l := newFleetOf(t, 2, Options{HelloEvery: time.Hour}, 1000, time.Second)
		f.alarm(noon, 1, l, "k", 400)
		for range 10 {
			l.CheckAt(noon+10*ms, "k", 1)
		}
		c := l.holds([]byte("k"))
		if c.allowance.Load()&leftMask == 0 {
			t.Fatal("no allowance is out")
		}
		now := noon + second + 500*ms
		if both {
			f.alarmBoth(now, l, "k", 70, 3)
		} else {
			f.alarm(now, 1, l, "k", 70)
		}
		if got := left(l, now, "k"); got != 1000-70-410/2 {
			t.Errorf("with denied hits %v: %d left, want 1000 less 70 and half of 410", both, got)
		}
		for i, n := range c.pending() {
			if want := int64(i) * 10; n != want {
				t.Errorf("with denied hits %v: %d pending %d buckets ago, want %d", both, n, i, want)
			}
		}
	}
}

// TestAlarmOfANewGeneration replaces what was known, unless hits are in flight.
func TestAlarmOfANewGeneration(t *testing.T) {
	f, l := newFleetOf(t, 2, Options{}, 1000, time.Minute)
	f.alarm(noon, 5, l, "k", 700)
	f.alarm(noon, 6, l, "k", 300)
	if got := left(l, noon, "k"); got != 700 {
		t.Errorf("%d left, want what the new generation says", got)
	}
}

// TestAlarmsHurryKeysWithoutAForecast: others are reported in the rounds that they need.
func TestAlarmsHurryKeysWithoutAForecast(t *testing.T) {
	for _, test := range []struct {
		why      string
		checkers uint32
		total    int64
		hits     int
		due      int64 // ms after noon
	}{
		{"no forecast, hits pending", 1, 500, 1, 8},
		{"no forecast, none pending", 1, 500, 0, 50},
		{"a forecast, hits pending", 2, 500, 1, 32},
		{"a forecast, none pending", 2, 500, 0, 50},
	} {
		f, l := newFleetOf(t, test.checkers, Options{HelloEvery: time.Hour}, 1000, time.Minute)
		f.alarm(noon, 1, l, "k", test.total)
		for range test.hits {
			l.CheckAt(noon+ms, "k", 1)
		}
		f.alarm(noon+5*ms, 1, l, "k", test.total+1)
		if next := f.Step(noon + 5*ms); next != noon+test.due*ms {
			t.Errorf("%s: due %d ms after noon, want %d", test.why, (next-noon)/ms, test.due)
		}
	}
}

// TestAnswersOfDeniedRows: a row of denied hits lands nothing and is of no bucket but the newest.
func TestAnswersOfDeniedRows(t *testing.T) {
	f, l := newFleetOf(t, 2, Options{HelloEvery: time.Hour}, 100, time.Second)
	f.alarm(noon, 1, l, "k", 98)
	want := int64(2)
	for range 10 {
		if l.CheckAt(noon, "k", 1).Allowed {
			want--
		}
	}
	f.Step(noon + 50*ms)
	r := f.last()
	if len(r.Hits.Rules) != 2 || !r.Hits.Rules[0].Denied || r.Hits.Rules[1].Denied {
		t.Fatalf("the report's rules are %v", r.Hits.Rules)
	}
	c := l.holds([]byte("k"))
	if !c.is(inFlight) {
		t.Error("nothing is in flight")
	}
	f.receive(noon+51*ms, events.KindRefresh, &events.Refresh{
		Epoch: r.Epoch, Sequence: r.Sequence, Generation: 1, Version: 1,
		KeyCells: []uint32{1, 1}, Age: []int64{0, 0}, Total: []uint64{900, uint64(100 - want)},
	})
	if got := left(l, noon+51*ms, "k"); c.is(inFlight) || got != want {
		t.Errorf("in flight: %v; %d left, want %d: denied hits take no room", c.is(inFlight), got, want)
	}
	if !c.ahead().anyDenied {
		t.Error("nobody has denied any")
	}
}

// TestAlarmForACellThatHasLeft since it was looked up: it tells nothing any more, and nothing is hurried for it.
func TestAlarmForACellThatHasLeft(t *testing.T) {
	f, l := newFleetOf(t, 1, Options{}, 1000, time.Minute)
	l.CheckAt(noon, "k", 5)
	c := l.holds([]byte("k"))
	c.settle(noon)
	c.state |= dead
	news := totals{newest: c.newest, age: []int64{0}, value: []uint64{600}}
	if eager := l.alarm(&f.behind.shards[0], []byte("k"), word{fleet: noon, made: noon, admitted: news}); eager || c.totals()[0] != 5 {
		t.Errorf("eager: %v; %d hits", eager, c.totals()[0])
	}
}
