package check

import (
	"math"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/events"
)

// join tells the checker how many there are, at a time of its own clock that is so far behind the fleet's.
func (f *fleet) join(now int64, checkers uint32, behind int64) {
	f.t.Helper()
	f.receive(now, events.KindWelcome, &events.Welcome{
		Epoch: f.Epoch(), Sent: now, Shards: 1, Time: now + behind, Checkers: checkers,
	})
}

// newFleetOf is newFleet with so many checkers.
func newFleetOf(t testing.TB, checkers uint32, o Options, limit int64, length time.Duration) (*fleet, *Limiter) {
	t.Helper()
	setDefault(&o.Epoch, 1) // the phase of error diffusion hangs on it
	f := newFleet(t, o, rule("r", limit, length, 1))
	f.join(noon, checkers, 0)
	return f, limiter(t, f.Checker, "r")
}

// ahead returns a live key's forecast, or nil.
func (l *Limiter) ahead(key string) *ahead {
	if c := l.holds([]byte(key)); c != nil {
		return c.ahead()
	}
	return nil
}

// rows reads a report: admitted or denied hits by key, and how many rows have them.
func rows(r *events.Report, denied bool) (hits map[string]uint64, n int) {
	hits = make(map[string]uint64)
	kind := ofAdmitted
	if denied {
		kind = ofDenied
	}
	eachKey(r.Hits, kind, func(_ uint32, key []byte, t totals) {
		n++
		for _, v := range t.value {
			hits[string(key)] += v
		}
	})
	return hits, n
}

// answerRows answers the last report, by the totals of its rows for the newest bucket.
func (f *fleet) answerRows(now int64, totals ...uint64) {
	f.t.Helper()
	r := f.last()
	m := &events.Refresh{Epoch: r.Epoch, Shard: r.Shard, Sequence: r.Sequence, Generation: 1, Version: r.Sequence, Total: totals}
	for range totals {
		m.KeyCells, m.Age = append(m.KeyCells, 1), append(m.Age, 0)
	}
	f.receive(now, events.KindRefresh, m)
}

// TestForecastComesNearTheLimit: not before there would be a quarter of the limit in all if every checker had
// admitted as many, but at once then, by own hits or by what others say.
func TestForecastComesNearTheLimit(t *testing.T) {
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
		{"none wanted", 8, Options{NoForecast: true}, 1000, false},
		{"the smallest limit that is worth it", 2, Options{}, fewestForForecast, true},
		{"a smaller one", 2, Options{}, fewestForForecast - 1, false},
	} {
		f, l := newFleetOf(t, test.checkers, test.o, test.limit, time.Minute)
		passed := int64(0)
		for ; l.ahead("own") == nil && passed < test.limit; passed++ {
			if d := l.CheckAt(noon, "own", 1); !d.Allowed {
				t.Fatalf("%s: hit %d denied: %+v", test.why, passed, d)
			}
		}
		quarter, n := test.limit/4, int64(test.checkers)
		if has := l.ahead("own") != nil; has != test.has {
			t.Errorf("%s: a forecast: %v", test.why, has)
		} else if has && (passed < quarter/n || passed > quarter/n+2) {
			t.Errorf("%s: the forecast came after %d hits, want about %d", test.why, passed, quarter/n)
		}
		f.alarm(noon, 1, l, "far", quarter-n-1)
		f.alarm(noon, 1, l, "told", quarter+1)
		if l.ahead("far") != nil || (l.ahead("told") != nil) != test.has {
			t.Errorf("%s: by an alarm: %v, far from the limit: %v", test.why, l.ahead("told") != nil, l.ahead("far") != nil)
		}
	}
}

// TestAllowancesEndWhereTheForecastBegins: a key that is told of has no more of it left than up to there.
func TestAllowancesEndWhereTheForecastBegins(t *testing.T) {
	f, l := newFleetOf(t, 4, Options{}, 1000, time.Minute)
	l.CheckAt(noon, "k", 1)
	f.alarm(noon, 1, l, "k", 150)
	l.CheckAt(noon, "k", 1)
	if word := l.holds([]byte("k")).allowance.Load(); word&leftMask > 25 || word&leftMask < 20 {
		t.Errorf("an allowance of %d, want the 250 less 152, by four", word&leftMask)
	}
	// A hit that does not fit leaves no more.
	l.CheckAt(noon, "k", 900)
	if word := l.holds([]byte("k")).allowance.Load(); word&leftMask > 25 || word&leftMask < 20 {
		t.Errorf("an allowance of %d after a hit that did not fit", word&leftMask)
	}
}

// TestForecastGoesAfterASilence: it takes more memory than a cell.
func TestForecastGoesAfterASilence(t *testing.T) {
	f, l := newFleetOf(t, 2, Options{HelloEvery: time.Hour}, 1000, time.Hour)
	for range 260 {
		l.CheckAt(noon, "k", 1)
		l.CheckAt(noon, "busy", 1)
		l.CheckAt(noon, "now and then", 1)
	}
	now := noon
	for end := noon + 60*second; now < end; now += 50 * ms {
		l.CheckAt(now, "busy", 1)
		if (now-noon)%(3*second) == 0 {
			l.CheckAt(now, "now and then", 1)
		}
		before := len(f.tape.reports)
		f.Step(now)
		if len(f.tape.reports) > before {
			r := f.last()
			all := make([]uint64, r.Hits.Keys())
			for i := range all {
				all[i] = 300
			}
			f.answerRows(now, all...)
		}
		if now > noon+10*second && l.ahead("now and then") == nil {
			t.Fatalf("%d s on, a key that is used every three seconds has lost its forecast", (now-noon)/second)
		}
		if now == noon+4*second && l.ahead("k") == nil {
			t.Error("four seconds of silence were too long")
		}
	}
	if l.ahead("k") != nil {
		t.Error("after a minute of silence there is still a forecast")
	}
	if l.ahead("busy") == nil || l.ahead("now and then") == nil {
		t.Error("a key in use has lost its forecast")
	}
	if got := left(l, now, "k"); got != 700 {
		t.Errorf("%d left, want what was known: 700", got)
	}
	if l.CheckAt(now, "k", 1); l.ahead("k") == nil {
		t.Error("the key came again and got no forecast")
	}
}

// TestIdleCellsHaveNoForecast: it takes more memory than what is worth remembering.
func TestIdleCellsHaveNoForecast(t *testing.T) {
	f, l := newFleetOf(t, 2, Options{MaxLiveKeys: 4}, 1000, time.Minute)
	if err := f.idle.open(10); err != nil {
		t.Fatal(err)
	}
	defer f.idle.close()
	for range 400 {
		l.CheckAt(noon, "k", 1)
	}
	f.Step(noon + 50*ms)
	f.answer(noon+51*ms, 400)
	had := l.ahead("k") != nil
	for _, key := range []string{"a", "b", "c"} {
		l.CheckAt(noon+52*ms, key, 1)
	}
	f.Step(noon + 100*ms)
	f.idle.cache.Wait()
	old := l.recall("k")
	if !had || old == nil || l.holds([]byte("k")) != nil {
		t.Fatalf("the key had a forecast: %v; remembered: %v", had, old != nil)
	}
	if old.ahead() != nil {
		t.Error("a key that has made room for others still has its forecast")
	}
}

// TestWindowOfACell: what a forecast is told of it.
func TestWindowOfACell(t *testing.T) {
	f := newFleet(t, Options{Epoch: 1}, rule("r", 1000, 10*time.Second, 2))
	f.join(noon, 2, 0)
	l := limiter(t, f.Checker, "r")
	hit := func(at int64, n int) {
		for range n {
			l.CheckAt(at, "k", 1)
		}
	}
	hit(noon, 300)
	hit(noon+5*second, 20)
	hit(noon+11*second, 3)
	want := func(what string, now int64, free, freed, unreported float64) {
		t.Helper()
		c := l.holds([]byte("k"))
		c.mu.Lock()
		defer c.mu.Unlock()
		_, at := c.room(c.limiter.terms.Load(), now)
		w := c.window(c.limiter.terms.Load(), at)
		if w.Limit != 1000 || w.Free != free || math.Abs(w.Freed*1e9-freed) > 1e-6 || w.Unreported != unreported {
			t.Errorf("%s: %+v", what, w)
		}
	}
	want("all pending; the 300 leave at 60 a second", noon+11*second, 1000-23-0.8*300, 60, 23+0.8*300)
	f.Step(noon + 11*second)
	hit(noon+11*second, 4)
	want("in flight, but for 4", noon+11*second, 1000-27-0.8*300, 60, 27+0.8*300)
	r := f.last()
	f.receive(noon+11*second, events.KindRefresh, &events.Refresh{
		Epoch: r.Epoch, Sequence: r.Sequence, Generation: 1, KeyCells: []uint32{3}, Age: []int64{0, 1, 2}, Total: []uint64{3, 20, 300},
	})
	want("answered, but for the 4", noon+11*second, 1000-27-0.8*300, 60, 4)
	f.Step(noon + 12*second)
	want("these in flight", noon+12*second, 1000-27-0.6*300, 60, 4)
	f.answer(noon+12*second, 7)
	want("all answered", noon+12*second, 1000-27-0.6*300, 60, 0)
}

// TestRemainingWithAForecast: what is left after the hit, by what is known and what is expected, whichever is less.
func TestRemainingWithAForecast(t *testing.T) {
	f, l := newFleetOf(t, 2, Options{}, 1000, time.Minute)
	f.alarm(noon, 1, l, "k", 500)
	first := l.CheckAt(noon, "k", 2).Remaining
	if first > 497 || first < 490 {
		t.Errorf("%d remain of 500 after a hit of 2, want a little less than 498", first)
	}
	if second := l.CheckAt(noon, "k", 3).Remaining; second != first-3 {
		t.Errorf("%d remain after %d and a hit of 3", second, first)
	}
}

// TestPhasesSpread: checkers whose names follow each other do not admit their first hits at once.
func TestPhasesSpread(t *testing.T) {
	var seen [10]int
	for epoch := range uint64(200) {
		f, l := newFleetOf(t, 2, Options{Epoch: epoch + 1}, 1000, time.Minute)
		f.alarm(noon, 1, l, "k", 500)
		seen[min(l.ahead("k").Denials(0.001)/100, 9)]++
	}
	for i, n := range seen {
		if n < 10 || n > 35 {
			t.Errorf("of 200 phases %d are in the %dth tenth: %v", n, i+1, seen)
		}
	}
}

// TestRemainingGoesDownByOne: whatever part of the room an allowance has, every decision tells all that is left. (Nearer the
// limit there is a forecast, which reckons with others' hits too.)
func TestRemainingGoesDownByOne(t *testing.T) {
	for _, limit := range []int64{40, 1000, 4000} {
		_, l := newFleetOf(t, 8, Options{}, limit, time.Second)
		for left := limit - 1; left >= limit-limit/40; left-- {
			if d := l.CheckAt(noon, "k", 1); d.Remaining != left {
				t.Fatalf("limit %d: %+v, want %d to be left", limit, d, left)
			}
		}
	}
}
