package check

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/events"
)

// TestForecastBeginsAtAQuarterOfTheLimit if every checker had admitted as many: not before, but at
// once then, by own hits or by what others report.
func TestForecastBeginsAtAQuarterOfTheLimit(t *testing.T) {
	for _, test := range []struct {
		why      string
		checkers uint32
		o        Options
		limit    int64
		has      bool
	}{
		{"two checkers", 2, Options{}, 1000, true},
		{"eight", 8, Options{}, 1000, true},
		{"alone", 1, Options{}, 1000, false},
		{"switched off", 8, Options{Tuning: tuning{NoForecast: true}}, 1000, false},
		{"the smallest limit that is worth it", 2, Options{}, counter.FewestForForecast, true},
		{"a smaller one", 2, Options{}, counter.FewestForForecast - 1, false},
	} {
		f, l := newFleetOf(t, test.checkers, test.o, test.limit, time.Minute)
		passed := int64(0)
		for ; l.ahead("own") == nil && passed < test.limit; passed++ {
			d := atTime(noon, l).Check("own", 1)
			require(t, d.Allowed, "%s: hit %d denied: %+v", test.why, passed, d)
		}
		quarter, n := test.limit/4, int64(test.checkers)
		has := l.ahead("own") != nil
		expect(t, has == test.has && (!has || passed >= quarter/n && passed <= quarter/n+2),
			"%s: a forecast: %v, after %d hits, want about %d", test.why, has, passed, quarter/n)
		f.alarm(noon, 1, l, "far", quarter-n-1)
		f.alarm(noon, 1, l, "near", quarter+1)
		far, near := l.ahead("far") != nil, l.ahead("near") != nil
		expect(t, !far && near == test.has, "%s: by an alarm near the limit: %v, far from it: %v", test.why, near, far)
	}
}

// TestAllowancesEndWhereTheForecastBegins, divided by the number of checkers, also after a hit that
// does not fit.
func TestAllowancesEndWhereTheForecastBegins(t *testing.T) {
	f, l := newFleetOf(t, 4, Options{}, 1000, time.Minute)
	atTime(noon, l).Check("k", 1)
	f.alarm(noon, 1, l, "k", 150)
	for _, cost := range []int64{1, 900} {
		atTime(noon, l).Check("k", cost)
		word := l.core.Group.Lookup([]byte("k")).Allowance.Load()
		expect(t, word&counter.LeftMask <= 25 && word&counter.LeftMask >= 20, "after a hit of %d an allowance of %d", cost, word&counter.LeftMask)
	}
}

// TestForecastEndsWhenAKeyFallsSilent, since it takes more memory than a counter.
func TestForecastEndsWhenAKeyFallsSilent(t *testing.T) {
	f, l := newFleetOf(t, 2, Options{HelloEvery: time.Hour}, 1000, time.Hour)
	for _, key := range []string{"k", "busy", "seldom"} {
		hit(l, noon, key, 260)
	}
	now := noon
	for end := noon + 60*second; now < end; now += 50 * ms {
		atTime(now, l).Check("busy", 1)
		if (now-noon)%(3*second) == 0 {
			atTime(now, l).Check("seldom", 1)
		}
		for _, r := range f.reportsAt(now) {
			f.answerRows(now, slices.Repeat([]uint64{300}, r.Hits.Keys())...)
		}
		require(t, now <= noon+10*second || l.ahead("seldom") != nil,
			"%d s on, a key that is used every three seconds has lost its forecast", (now-noon)/second)
		expect(t, now != noon+4*second || l.ahead("k") != nil, "four seconds of silence were too long")
	}
	expect(t, l.ahead("k") == nil && l.ahead("busy") != nil && l.ahead("seldom") != nil,
		"after a minute the wrong keys have a forecast")
	equal(t, left(l, now, "k"), 700, "left by what was known")
	atTime(now, l).Check("k", 1)
	expect(t, l.ahead("k") != nil, "the key came again and got no forecast")
}

// TestForecastOutlivesAnEmptyWindow: what it has learnt in one burst is of use in the next, though
// all hits of the first have left the window.
func TestForecastOutlivesAnEmptyWindow(t *testing.T) {
	f, l := newFleetOf(t, 2, Options{HelloEvery: time.Hour}, 1000, time.Second)
	for now := noon; now < noon+20*second; now += 50 * ms {
		if (now-noon)%(3*second) == 0 {
			hit(l, now, "k", 260)
		}
		for range f.reportsAt(now) {
			f.answerRows(now, 260)
		}
		require(t, l.ahead("k") != nil, "%v after the first burst the forecast is gone", time.Duration(now-noon))
	}
}

// TestIdleCellsHaveNoForecast, since it takes more memory than it is worth.
func TestIdleCellsHaveNoForecast(t *testing.T) {
	f, l := newFleetOf(t, 2, Options{MaxLiveKeys: 4}, 1000, time.Minute)
	openIdle(t, f.Checker, 10)
	hit(l, noon, "k", 400)
	atTime(noon+50*ms, f).Step()
	f.answer(noon+51*ms, 400)
	had := l.ahead("k") != nil
	for _, key := range []string{"a", "b", "c"} {
		atTime(noon+52*ms, l).Check(key, 1)
	}
	atTime(noon+100*ms, f).Step()
	f.host.Idle.Wait()
	old := l.core.Group.Recall("k")
	require(t, had && old.Counter != nil && l.core.Group.Lookup([]byte("k")) == nil, "the key had a forecast: %v; remembered: %v", had, old.Counter != nil)
	expect(t, old.Forecast() == nil, "a key that has made room for others still has its forecast")
}

// TestForecastsAreBounded: a quarter of the keys that there may be have one, until they are silent.
// A key without one is decided by what is known, and a look at a key takes none.
func TestForecastsAreBounded(t *testing.T) {
	f, l := newFleetOf(t, 2, Options{MaxLiveKeys: 12, HelloEvery: time.Hour}, 1000, 24*time.Hour)
	foreseen := func(want string, when string) {
		t.Helper()
		with := ""
		for _, key := range []string{"a", "b", "c", "d", "e"} {
			if l.ahead(key) != nil {
				with += key
			}
		}
		equal(t, with, want, when+": keys with a forecast")
	}
	for _, key := range []string{"a", "b", "c", "d", "e"} {
		equal(t, hit(l, noon, key, 400), 400, "hits of %s", key)
	}
	foreseen("abc", "at first")
	equal(t, hit(l, noon, "d", 1000), 600, "more hits of d")
	now := noon
	for ; now < noon+3*int64(time.Minute); now += 5 * second {
		for _, m := range f.reportsAt(now) {
			f.receive(now, events.KindRefresh, answerTo(m))
		}
	}
	foreseen("", "after a silence")
	for range 5 {
		atTime(now, f).Do(Request{Limiter: l, Key: "e", Mode: Peek})
	}
	for _, key := range []string{"e", "d", "c", "b", "a"} {
		hit(l, now, key, 1)
	}
	foreseen("cde", "later")
}

// TestFewForecastsGoToQuietKeys: in a large fleet every key gets a forecast with its first hit, as
// each checker might have had one. These leave half of all forecasts to keys that are known to be
// used.
func TestFewForecastsGoToQuietKeys(t *testing.T) {
	_, l := newFleetOf(t, 300, Options{MaxLiveKeys: 100}, 1000, time.Minute)
	quiet := 0
	for i := range 50 {
		key := fmt.Sprint("quiet ", i)
		atTime(noon, l).Check(key, 1)
		if l.ahead(key) != nil {
			quiet++
		}
	}
	hit(l, noon, "busy", 300)
	expect(t, quiet == 12 && l.ahead("busy") != nil, "%d quiet keys have a forecast, the busy one: %v", quiet, l.ahead("busy") != nil)
}

// TestForecastsThatAreGoneCount until their memory is free: callers who walk through keys have one
// made and dropped for each.
func TestForecastsThatAreGoneCount(t *testing.T) {
	f, l := newFleetOf(t, 2, Options{MaxLiveKeys: 40, MaxIdleKeys: -1, HelloEvery: time.Hour}, 100, time.Hour)
	now, walked := noon, 0
	walk := func() int {
		made := map[string]bool{}
		for end := now + 10*second; now < end; {
			var keys []string
			for range 10 {
				walked++
				keys = append(keys, fmt.Sprint("k", walked))
			}
			for _, key := range keys {
				hit(l, now, key, 30)
			}
			for range 5 {
				for _, m := range f.reportsAt(now) {
					f.receive(now, events.KindRefresh, answerTo(m))
				}
				for _, key := range keys {
					if l.ahead(key) != nil {
						made[key] = true
					}
				}
				now += 10 * ms
			}
		}
		return len(made)
	}
	equal(t, walk(), 10, "forecasts of 2,000 keys in 10 s")
	for end := now + int64(time.Minute); now < end; now += second {
		atTime(now, f).Step()
	}
	equal(t, walk(), 10, "forecasts of 2,000 keys a minute later")
}

// TestDeferralEndsWithoutAForecast, where there are too many, as it does with one.
func TestDeferralEndsWithoutAForecast(t *testing.T) {
	f, l := newFleetOf(t, 4, Options{MaxLiveKeys: 4}, 1000, time.Minute)
	hit(l, noon, "another", 300)
	inform(l, "k")
	hit(l, noon, "k", 1)
	for now := noon; now < noon+200*ms; now += 10 * ms {
		for _, m := range f.reportsAt(now) {
			f.receive(now, events.KindRefresh, answerTo(m))
		}
	}
	hit(l, noon+200*ms, "k", 999)
	require(t, l.ahead("another") != nil && l.ahead("k") == nil, "not the other key has the forecast")
	at := f.reportOf("k", noon+200*ms, noon+20*second)
	expect(t, at < 50*time.Millisecond, "its hits are reported after %v", at)
}

// TestForecastsLeaveSoon, within two minutes of silence, also where their counter is not looked at
// for hours, since they take several times its memory.
func TestForecastsLeaveSoon(t *testing.T) {
	f, l := newFleetOf(t, 4, Options{HelloEvery: time.Hour}, 1000, 24*time.Hour)
	now, all := noon, 0
	for _, hits := range []int{1, 400, 1} {
		all += hits
		hit(l, now, "k", hits)
		atTime(now+50*ms, f).Step()
		f.answer(now+51*ms, int64(all))
		require(t, (l.ahead("k") != nil) == (now > noon), "%v after noon", time.Duration(now-noon))
		for end := now + int64(time.Hour); now < end; now += int64(10 * time.Second) {
			atTime(now, f).Step()
			left := l.ahead("k") == nil
			require(t, left || now < end-int64(58*time.Minute), "the key has a forecast after two minutes of silence")
		}
	}
	require(t, f.Stats().LiveKeys == 1, "the key itself is gone")
}

// TestWindowOfACell is what a forecast learns of it.
func TestWindowOfACell(t *testing.T) {
	f, l := fleetAndLimiter(t, Options{Epoch: 1}, rule("r", 1000, 10*time.Second, 2))
	f.join(noon, 2, 0)
	hit(l, noon, "k", 300)
	hit(l, noon+5*second, "k", 20)
	now := noon + 11*second
	hit(l, now, "k", 3)
	want := func(what string, now int64, used, unreported float64) {
		t.Helper()
		c := l.core.Group.Lookup([]byte("k")).Lock()
		defer c.Unlock()
		terms := c.Group.Limits.Load()
		_, at := c.Room(terms, now)
		w := c.Window(terms, at)
		// The 300 leave at 60 a second.
		expect(t, w.Limit == 1000 && w.Free == 1000-used && math.Abs(w.Freed*1e9-60) <= 1e-6 && w.Unreported == unreported,
			"%s: %+v", what, w)
	}
	want("all pending", now, 23+0.8*300, 23+0.8*300)
	atTime(now, f).Step()
	hit(l, now, "k", 4)
	want("in flight, but for 4", now, 27+0.8*300, 27+0.8*300)
	m := f.refresh(3, 20, 300)
	m.KeyCells, m.Age = []uint32{3}, []int64{0, 1, 2}
	f.receive(now, events.KindRefresh, m)
	want("answered, but for the 4", now, 27+0.8*300, 4)
	atTime(now+second, f).Step()
	want("these in flight", now+second, 27+0.6*300, 4)
	f.answer(now+second, 7)
	want("all answered", now+second, 27+0.6*300, 0)
}

// TestRemaining is what is left after the hit: by what is known, whatever part of it an allowance
// has; and nearer the limit by what is expected of others, if that is less.
func TestRemaining(t *testing.T) {
	for _, limit := range []int64{40, 1000, 4000} {
		_, l := newFleetOf(t, 8, Options{}, limit, time.Second)
		for left := limit - 1; left >= limit-limit/40; left-- {
			d := atTime(noon, l).Check("k", 1)
			require(t, d.Remaining == left, "limit %d: %+v, want %d to be left", limit, d, left)
		}
	}
	f, l := newFleetOf(t, 2, Options{}, 1000, time.Minute)
	f.alarmMade(noon, noon, l, "k", 400)
	now := noon + 100*ms
	f.alarmMade(now, now, l, "k", 500)
	first := atTime(now, l).Check("k", 2).Remaining
	second := atTime(now, l).Check("k", 3).Remaining
	expect(t, first <= 497 && first >= 490 && second == first-3,
		"of 500 a hit of 2 leaves %d, want a little less than 498, and one of 3 more %d", first, second)
}

// TestCheckersDoNotAdmitTogether: the phases of checkers with consecutive epochs are spread evenly.
func TestCheckersDoNotAdmitTogether(t *testing.T) {
	var seen [10]int
	for epoch := range uint64(200) {
		f, l := newFleetOf(t, 2, Options{Epoch: epoch + 1}, 1000, time.Minute)
		f.alarm(noon, 1, l, "k", 500)
		seen[min(l.ahead("k").Denials(0.001)/100, 9)]++
	}
	for i, n := range seen {
		expect(t, n >= 10 && n <= 35, "%d of 200 phases are in tenth %d: %v", n, i+1, seen)
	}
}
