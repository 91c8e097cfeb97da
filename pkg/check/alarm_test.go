package check

import (
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/events"
)

// TestAlarmsDenyStrangers who are over their limit elsewhere, and bring the report of pending hits
// forward.
func TestAlarmsDenyStrangers(t *testing.T) {
	f, l := newFleetOf(t, 1, Options{}, 100, time.Minute)
	f.alarm(noon, 1, l, "never seen here", 100)
	d := atTime(noon, l).Check("never seen here", 1)
	expect(t, !d.Allowed, "a caller who is over the limit elsewhere passed here")
	f.alarm(noon, 1, l, "half", 50)
	equal(t, left(l, noon, "half"), 50, "left")
	atTime(noon+50*ms, f).Step()
	atTime(noon+52*ms, l).Check("half", 1)
	f.alarm(noon+54*ms, 1, l, "half", 60)
	atTime(noon+56*ms, f).Step()
	equal(t, hits(f.last())["half"], 1, "reported hits")
}

// TestAlarmsBringReportsForward of keys without a forecast to the next fast round that the floor
// allows, and wake the goroutine that steps; keys with one are reported in the rounds that they
// need.
func TestAlarmsBringReportsForward(t *testing.T) {
	for _, test := range []struct {
		why      string
		checkers uint32
		floor    time.Duration
		hits     int
		due      int64 // ms after noon
		woken    bool  // by the second alarm
	}{
		{"no forecast, hits pending", 1, 0, 1, 4, true},
		{"no forecast, none pending", 1, 0, 0, 50, false},
		{"a forecast, hits pending", 2, 0, 1, 32, false},
		{"a forecast, none pending", 2, 0, 0, 50, false},
		{"a floor of more than a fast interval", 1, 5 * time.Millisecond, 1, 8, true},
		{"a floor of many", 1, 20 * time.Millisecond, 1, 32, true},
		{"the timer's floor: never early", 1, 50 * time.Millisecond, 1, 50, false},
	} {
		f, l := newFleetOf(t, test.checkers, Options{HelloEvery: time.Hour, Tuning: tuning{FlushFloor: test.floor}}, 1000, time.Minute)
		f.alarm(noon, 1, l, "k", 500)
		hit(l, noon, "k", test.hits)
		f.woken()
		f.alarm(noon+ms, 1, l, "k", 501)
		equal(t, f.woken(), test.woken, "%s: woken", test.why)
		due := noon + test.due*ms
		equal(t, atTime(noon+ms, f).Step().UnixNano(), due, "%s: next step", test.why)
		before, then := len(f.reportsAt(due-1)), len(f.reportsAt(due))
		expect(t, before == 0 && then == test.hits, "%s: %d reports before, %d when due", test.why, before, then)
	}
}

func TestAlarmsThatDoNotFitAreIgnored(t *testing.T) {
	f, l := newFleetOf(t, 1, Options{}, 100, time.Minute)
	for name, change := range map[string]func(*events.Alarm){
		"another window":    func(a *events.Alarm) { a.Totals.Rules[0].WindowMs = 1000 },
		"other buckets":     func(a *events.Alarm) { a.Totals.Rules[0].Buckets = 60 },
		"another algorithm": func(a *events.Alarm) { a.Totals.Rules[0].Algorithm = events.Algorithm_FIXED_WINDOW },
		"another rule":      func(a *events.Alarm) { a.Totals.Rules[0].Name = "other" },
		"no such shard":     func(a *events.Alarm) { a.Shard = 7 },
	} {
		a := alarmOf(&l.core.Group, noon, 1, "k", admitted(100))
		change(a)
		f.receive(noon, events.KindAlarm, a)
		equal(t, left(l, noon, "k"), 100, "%s: left", name)
	}
}

// TestNewHitsAreWhatWasNotKnown: over all buckets, and never negative.
func TestNewHitsAreWhatWasNotKnown(t *testing.T) {
	_, l := fleetAndLimiter(t, Options{}, rule("r", 1000, 10*time.Second, 2))
	atTime(noon, l).Check("k", 5)
	c := counterOf(l, "k")
	c.Withdraw(noon)
	for _, test := range []struct {
		age   []int64
		value []uint64
		news  int64
	}{
		{[]int64{0, 1, 2}, []uint64{10, 20, 30}, 60},
		{[]int64{0, 1, 2}, []uint64{10, 20, 30}, 0},
		{[]int64{0, 1}, []uint64{5, 21}, 1},
		{[]int64{-1, 3, 2}, []uint64{99, 99, 31}, 1}, // of buckets that this counter does not have
	} {
		equal(t, (counter.Update{Admitted: counter.Totals{Newest: c.Newest, Age: test.age, Value: test.value}}).MergeInto(c), test.news, "ages %v, totals %v: new hits", test.age, test.value)
	}
	equal(t, c.Totals()[0], 15, "newest bucket: the 10 and the 5 pending")
}

// TestAlarmMovesTheWindow to the time when it comes, though nobody has checked the key since; an
// allowance is withdrawn first.
func TestAlarmMovesTheWindow(t *testing.T) {
	for _, both := range []bool{false, true} {
		f, l := newFleetOf(t, 2, Options{HelloEvery: time.Hour}, 1000, time.Second)
		f.alarm(noon, 1, l, "k", 400)
		hit(l, noon+10*ms, "k", 10)
		c := counterOf(l, "k")
		require(t, c.Allowance.Load()&counter.LeftMask != 0, "no allowance is out")
		now := noon + second + 500*ms
		if both {
			f.alarmRows(now, l, "k", admitted(70), denied(3))
		} else {
			f.alarm(now, 1, l, "k", 70)
		}
		equal(t, left(l, now, "k"), 1000-70-410/2, "with denied hits %v: left", both)
		for i, n := range c.Pending() {
			want := int64(i) * 10
			expect(t, n == want, "with denied hits %v: %d pending %d buckets ago, want %d", both, n, i, want)
		}
	}
}

// TestGenerations: totals of a new one replace those of the old, and older ones are ignored.
func TestGenerations(t *testing.T) {
	f, l := newFleetOf(t, 1, Options{}, 100, time.Minute)
	now := noon
	report := func() {
		t.Helper()
		atTime(now, l).Check("k", 1)
		now += 50 * ms
		atTime(now, f).Step()
	}
	want := func(why string, n int64) {
		t.Helper()
		equal(t, 100-left(l, now, "k"), n, why)
	}
	report()
	f.answerIn(now, 5, 70)
	want("generation 5", 70)
	report()
	f.answerIn(now, 6, 10)
	want("the new generation's totals replace the old", 10)
	report()
	f.answerIn(now, 5, 72)
	want("the store has gone back, after all that is known", 72)
	report()
	f.alarm(now, 6, l, "k", 10)
	f.answerIn(now, 5, 74)
	want("an answer that may be from before the new generation lands the report, and its totals are ignored", 73)
	report()
	atTime(now, l).Check("k", 3)
	f.alarm(now, 7, l, "k", 4)
	want("an alarm of a new generation while hits are in flight is a floor only", 77)
	f.answerIn(now, 7, 5)
	want("the answer replaces: 5, and 3 pending", 8)
	f.alarm(now, 6, l, "k", 90)
	want("an alarm of an older generation is ignored", 8)
	f.alarm(now, 8, l, "k", 2)
	want("an alarm of a new one while nothing is in flight replaces: 2, and 3 pending", 5)
}

// TestStoreLosses: another generation shows that the store has lost data, and so does an answer from
// a state before one that was known when its report was made. Other messages may have overtaken each
// other.
func TestStoreLosses(t *testing.T) {
	f, l := newFleetOf(t, 1, Options{}, 100, time.Minute)
	now := noon
	report := func() {
		atTime(now, l).Check("k", 1)
		now += 50 * ms
		atTime(now, f).Step()
	}
	answer := func(generation, version uint64) {
		m := f.refresh(1)
		m.Generation, m.Version = generation, version
		f.receive(now, events.KindRefresh, m)
	}
	alarm := func(generation, version uint64) {
		m := alarmOf(&l.core.Group, now, generation, "k", admitted(1))
		m.Version = version
		f.receive(now, events.KindAlarm, m)
	}
	want := func(n int64, why string) {
		t.Helper()
		equal(t, f.Stats().StoreLosses, n, why)
	}
	wantAt := func(at int64, why string) {
		t.Helper()
		equal(t, f.Stats().LastStoreLoss, at, why)
	}
	report()
	answer(5, 10)
	wantAt(0, "nothing is lost")
	report()
	alarm(5, 20)
	answer(5, 11)
	want(0, "an answer that may be from before the alarm")
	report()
	answer(5, 20)
	want(0, "a batch may change nothing")
	report()
	answer(5, 19)
	want(1, "it was known when the report was made")
	wantAt(now, "it is found now")
	report()
	answer(5, 20)
	want(1, "the store goes on from there")
	report()
	answer(6, 1)
	want(2, "an aggregator has noticed a loss")
	wantAt(now-50*ms*2, "long ago")
	report()
	alarm(5, 90)
	answer(6, 2)
	want(2, "an alarm from before that")
	report()
	answer(5, 95)
	want(3, "it has lost the generation itself")
}

// TestAnswersOfDeniedRows take no room, and land nothing.
func TestAnswersOfDeniedRows(t *testing.T) {
	f, l := newFleetOf(t, 2, Options{HelloEvery: time.Hour}, 100, time.Second)
	f.alarm(noon, 1, l, "k", 98)
	want := int64(2 - hit(l, noon, "k", 10))
	atTime(noon+50*ms, f).Step()
	r := f.last()
	require(t, len(r.Hits.Rules) == 2 && r.Hits.Rules[0].Denied && !r.Hits.Rules[1].Denied,
		"the report's rules are %v", r.Hits.Rules)
	c := counterOf(l, "k")
	expect(t, c.Is(counter.InFlight), "nothing is in flight")
	f.answerRows(noon+51*ms, 900, uint64(100-want))
	got := left(l, noon+51*ms, "k")
	expect(t, !c.Is(counter.InFlight) && got == want && c.Forecast().AnyDenied,
		"in flight: %v; %d left, want %d; any denied: %v", c.Is(counter.InFlight), got, want, c.Forecast().AnyDenied)
}

// TestAlarmForACounterThatHasLeft since it was looked up changes nothing.
func TestAlarmForACounterThatHasLeft(t *testing.T) {
	_, l := newFleetOf(t, 1, Options{}, 1000, time.Minute)
	atTime(noon, l).Check("k", 5)
	c := counterOf(l, "k")
	c.Withdraw(noon)
	c.State |= counter.Dead
	news := counter.Totals{Newest: c.Newest, Age: []int64{0}, Value: []uint64{600}}
	eager := l.core.Group.ObserveAlarm([]byte("k"), 0, counter.Update{Fleet: noon, Made: noon, Admitted: news})
	expect(t, !eager && c.Totals()[0] == 5, "eager: %v; %d hits", eager, c.Totals()[0])
}
