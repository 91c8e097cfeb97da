package check

import (
	"fmt"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/rules"
)

// letPass counts how many of n hits pass, and verifies how fresh the decisions are.
func letPass(t *testing.T, l *Limiter, now int64, key string, n int, want Freshness) (passed int) {
	t.Helper()
	for range n {
		d := atTime(now, l).Check(key, 1)
		require(t, d.Freshness == want && (d.Allowed || d.RetryAfter > 0), "want it %v, and a denial with a time: %+v", want, d)
		if d.Allowed {
			passed++
		}
	}
	return passed
}

// TestFreshnessFallsInSteps of silence, and is back at one message; by default after three hellos.
func TestFreshnessFallsInSteps(t *testing.T) {
	o := Options{HelloEvery: time.Second, StaleAfter: 2 * time.Second, ShareAfter: 5 * time.Second, OutageAfter: 20 * time.Second, Tuning: tuning{NoForecast: true}}
	open, closed := rule("open", 100, time.Minute, 1), rule("closed", 100, time.Minute, 1)
	open.OnOutage, closed.OnOutage = rules.Open, rules.Closed
	f := newFleet(t, o, rule("share", 100, time.Minute, 1), open, closed)
	f.welcomeOf(noon, 4)
	for _, step := range []struct {
		silence             time.Duration
		freshness           Freshness
		share, open, closed int // of 1000 hits, how many pass
	}{
		{0, Fresh, 100, 100, 100},
		{2 * time.Second, Fresh, 100, 100, 100},
		{2*time.Second + 1, Stale, 100, 100, 100},
		{5 * time.Second, Stale, 100, 100, 100},
		{5*time.Second + 1, LocalShare, 25, 25, 25},
		{20 * time.Second, LocalShare, 25, 25, 25},
		{20*time.Second + 1, Outage, 25, 1000, 0},
		{48 * time.Hour, Outage, 25, 1000, 0},
	} {
		now, key := noon+int64(step.silence), fmt.Sprint(step.silence)
		atTime(now, f).Step()
		passed := func(name string, want Freshness) int {
			return letPass(t, limiter(t, f.Checker, name), now, key, 1000, want)
		}
		equal(t, passed("share", min(step.freshness, LocalShare)), step.share, "%v of silence: passed by share", step.silence)
		equal(t, passed("open", step.freshness), step.open, "%v of silence: passed by open", step.silence)
		equal(t, passed("closed", step.freshness), step.closed, "%v of silence: passed by closed", step.silence)
	}
	now := noon + 49*3600*second
	f.welcomeOf(now, 4)
	got := f.Stats().Heard
	expect(t, got > 0 && got <= time.Second, "heard just now: %v ago, where 0 is never", got)
	equal(t, letPass(t, limiter(t, f.Checker, "open"), now, "again", 1000, Fresh), 100, "passed after a message")

	f = newFleet(t, Options{HelloEvery: time.Second}, open)
	for i, at := range []time.Duration{3 * time.Second, 3*time.Second + 1, 9 * time.Second} {
		atTime(noon+int64(at), f).Step()
		letPass(t, limiter(t, f.Checker, "open"), noon+int64(at), "k", 1, []Freshness{Fresh, Stale, Stale}[i])
	}
}

// TestLocalShareOfAWindow is a share of what was left when the silence began; own hits leave the
// window.
func TestLocalShareOfAWindow(t *testing.T) {
	f := newFleet(t, Options{HelloEvery: time.Second, ShareAfter: 5 * time.Second, Tuning: tuning{NoForecast: true}}, rule("r", 100, 10*time.Second, 1))
	f.welcomeOf(noon, 4)
	l := limiter(t, f.Checker, "r")
	f.alarm(noon, 1, l, "busy", 90)
	for _, step := range []struct {
		at          int64 // seconds; at 20 everything has left the window
		key         string
		least, most int
	}{
		{6, "busy", 2, 3}, // a quarter of the 10 that others had left
		{6, "idle", 25, 25},
		{20, "idle", 25, 25},
	} {
		now := noon + step.at*second
		atTime(now, f).Step()
		got := letPass(t, l, now, step.key, 50, LocalShare)
		expect(t, got >= step.least && got <= step.most, "%+v: %d passed", step, got)
	}
	expect(t, !atTime(noon+20*second, l).Check("other", 30).Allowed, "a cost of 30 passed in a share of 25")
}

// TestLocalSharesAddUp: all checkers together admit no more than there was room for.
func TestLocalSharesAddUp(t *testing.T) {
	sum := 0
	for i := range uint64(8) {
		f, l := fleetAndLimiter(t, Options{HelloEvery: time.Second, Epoch: i + 1}, rule("r", 1000, time.Hour, 1))
		f.welcomeOf(noon, 8)
		f.alarm(noon, 1, l, "k", 880)
		atTime(noon+15*second, f).Step()
		sum += letPass(t, l, noon+15*second, "k", 200, LocalShare)
	}
	equal(t, sum, 120, "passed by all checkers")
}

// TestLocalShareBelowOne: a limit of 3 is about 3 in a fleet of 8, over many keys, and no checker
// admits more than one hit of a key.
func TestLocalShareBelowOne(t *testing.T) {
	const keys, checkers = 2000, 8
	sum := 0
	for i := range uint64(checkers) {
		o := Options{ExpectCheckers: checkers, Epoch: i + 1}
		f := unwelcomed(t, o, rule("r", 3, time.Minute, 1), rule("exact", 16, time.Minute, 1))
		atTime(noon, f).Step()
		l := limiter(t, f.Checker, "r")
		for k := range keys {
			n := letPass(t, l, noon, fmt.Sprint(k), 4, LocalShare)
			sum += n
			require(t, n <= 1, "checker %d has %d of key %d", i, n, k)
		}
		equal(t, letPass(t, limiter(t, f.Checker, "exact"), noon, "k", 9, LocalShare), 2, "passed of 16 at checker %d of 8", i)
	}
	mean := float64(sum) / keys
	expect(t, mean >= 2.8 && mean <= 3.2, "of a limit of 3 %.2f pass", mean)
}

// TestNeverHeard: a checker that has heard nothing goes by its own hits, or by its share if it
// expects others; and never into an outage.
func TestNeverHeard(t *testing.T) {
	for _, test := range []struct {
		expect    int
		freshness Freshness
		passed    int
	}{{0, Local, 100}, {1, Local, 100}, {2, LocalShare, 50}} {
		f := unwelcomed(t, Options{ExpectCheckers: test.expect}, rule("r", 100, time.Minute, 1))
		for _, now := range []int64{noon, noon + int64(time.Hour)} {
			atTime(now, f).Step()
			got := letPass(t, limiter(t, f.Checker, "r"), now, fmt.Sprint(now), 200, test.freshness)
			heard := f.Stats().Heard
			expect(t, got == test.passed && heard == 0, "%+v: %d passed; heard %v ago", test, got, heard)
		}
	}
}

// TestFleetSizeIsKnownOrExpected: a welcome of an aggregator that does not know yet how many
// checkers there are changes nothing, and ExpectCheckers is the least.
func TestFleetSizeIsKnownOrExpected(t *testing.T) {
	for _, test := range []struct {
		why    string
		expect int
		told   []uint32
		size   int  // by Stats
		share  int  // of a limit of 120
		shared bool // with others, as far as is known
	}{
		{"told", 0, []uint32{8}, 8, 15, true},
		{"told, then not known", 0, []uint32{8, 0, 0}, 8, 15, true},
		{"told again", 0, []uint32{8, 0, 4}, 4, 30, true},
		{"alone", 0, []uint32{1}, 1, 120, false},
		{"alone, then not known", 0, []uint32{1, 0}, 1, 120, false},
		{"never told", 0, []uint32{0}, 0, 120, true},
		{"never told, expected", 6, []uint32{0}, 6, 20, true},
		{"told fewer than expected", 6, []uint32{1}, 6, 20, true},
		{"told more than expected", 6, []uint32{8}, 8, 15, true},
		{"one expected, none told", 1, []uint32{0}, 1, 120, true},
	} {
		f := unwelcomed(t, Options{HelloEvery: time.Second, ExpectCheckers: test.expect}, rule("r", 120, time.Minute, 1))
		atTime(noon, f).Step()
		for _, n := range test.told {
			f.welcomeOf(noon, n)
		}
		l := limiter(t, f.Checker, "r")
		hit(l, noon, "far", 40) // a third of the limit
		equal(t, l.ahead("far") != nil, test.shared, "%s: there is a forecast", test.why)
		equal(t, f.Stats().Checkers, test.size, "%s: checkers", test.why)
		atTime(noon+11*second, f).Step()
		equal(t, letPass(t, l, noon+11*second, "k", 200, LocalShare), test.share, "%s: passed of a share", test.why)
	}
}

// TestSilenceEndsAllowances: what a check left before the silence does not hold when something else
// decides. A report without an answer keeps the flush from withdrawing it.
func TestSilenceEndsAllowances(t *testing.T) {
	for _, o := range []Options{{}, {Tuning: tuning{NoForecast: true}}} {
		for _, limit := range []int64{40, 1000} {
			o.HelloEvery = time.Second
			r := rule("r", limit, time.Hour, 1)
			r.OnOutage = rules.Closed
			f, l := fleetAndLimiter(t, o, r)
			f.welcomeOf(noon, 8)
			atTime(noon, l).Check("other", 1) // goes into the report that nobody answers
			atTime(noon+100*ms, f).Step()
			atTime(noon+200*ms, l).Check("k", 1)
			for now := noon + 200*ms; now < noon+15*second; now += 100 * ms {
				atTime(now, f).Step()
			}
			n := letPass(t, l, noon+15*second, "k", int(limit), LocalShare)
			expect(t, int64(n) <= limit/8, "%+v: %d passed of a share of %d", o, n, limit/8)
			atTime(noon+302*second, f).Step()
			equal(t, letPass(t, l, noon+302*second, "k", int(limit), Outage), 0, "passed in an outage that closes")
		}
	}
}

// TestShareHoldsForEver, by every algorithm: from the eleventh minute of silence on, one checker of
// four lets a quarter of the limit pass in each window, and no more of a burst.
func TestShareHoldsForEver(t *testing.T) {
	for _, a := range []rules.Algorithm{rules.SlidingWindow, rules.FixedWindow, rules.SlidingLog, rules.TokenBucket, rules.LeakyBucket} {
		r := rule("r", 40, 10*time.Second, 0)
		r.Algorithm = a
		f, l := fleetAndLimiter(t, Options{HelloEvery: time.Second}, r)
		f.welcomeOf(noon, 4)
		atTime(noon, l).Check("other", 1) // goes into the report that nobody answers
		atTime(noon+100*ms, f).Step()
		passed, start := 0, noon+660*second
		for now := start; now < start+100*second; now += 100 * ms {
			atTime(now, f).Step()
			passed += letPass(t, l, now, "k", 2, LocalShare)
		}
		expect(t, passed >= 90 && passed <= 110, "%v: %d passed in 10 windows, want at most 10 each, and 10 more at first", a, passed)
	}
}

// TestShareOutlastsReports: when the report that nobody has answered is given up, after 20 hours,
// what this checker let pass of its share of a day's limit still counts against that; and it is
// reported when somebody is there again.
func TestShareOutlastsReports(t *testing.T) {
	r := rule("r", 100, 24*time.Hour, 0)
	r.Algorithm = rules.FixedWindow
	f, l := fleetAndLimiter(t, Options{}, r)
	midnight := noon + 12*3600*second
	f.welcomeOf(noon, 4)
	atTime(noon, l).Check("other", 1) // goes into the report that nobody answers
	atTime(noon+100*ms, f).Step()
	passed, now := 0, midnight
	for ; now < midnight+23*3600*second; now += 60 * second {
		atTime(now, f).Step()
		passed += letPass(t, l, now, "k", 2, LocalShare)
	}
	expect(t, passed >= 25 && passed <= 26 && f.Stats().ReportsGivenUp == 1, "%d passed of a share of 25", passed)
	f.welcomeOf(now, 4)
	atTime(now, f).Step()
	reported, _ := rows(f.last(), false)
	equal(t, reported["k"], uint64(passed), "reported")
}

// TestShareHoldsForManyKeys: while nobody takes reports, or ever has, keys whose hits have left
// every window make room for others, which would pass without a limit.
func TestShareHoldsForManyKeys(t *testing.T) {
	for _, welcomed := range []bool{true, false} {
		f := unwelcomed(t, Options{MaxLiveKeys: 100, ExpectCheckers: 4}, rule("r", 40, time.Second, 1))
		atTime(noon, f).Step()
		if welcomed {
			f.welcomeOf(noon, 4)
		}
		l, passed, now := limiter(t, f.Checker, "r"), 0, noon
		for key := range 3000 {
			now += 50 * ms
			atTime(now, f).Step()
			passed += hit(l, now, fmt.Sprint(key), 1)
		}
		s := f.Stats()
		expect(t, passed == 3000 && s.Rules[0].Overflow == 0, "welcomed %v: %d of 3000 pass, %d without a limit, with %d keys",
			welcomed, passed, s.Rules[0].Overflow, s.LiveKeys)
		equal(t, letPass(t, l, now, "one more", 50, LocalShare), 10, "passed of a share of 10")
	}
}

// TestOutageGoesByOnOutage, for a key that was used up too; nobody knows what is beyond the limit
// then.
func TestOutageGoesByOnOutage(t *testing.T) {
	r := rule("r", 40, time.Hour, 1)
	r.OnOutage = rules.Open
	f, l := fleetAndLimiter(t, Options{HelloEvery: time.Second}, r)
	f.welcomeOf(noon, 8)
	letPass(t, l, noon, "k", 50, Fresh)
	atTime(noon+302*second, f).Step()
	equal(t, letPass(t, l, noon+302*second, "k", 50, Outage), 50, "passed in an outage that opens")
	c := ofYAML(t, Options{}, `
rules:
  - {name: r, key: [user], limit: 10/minute, on_outage: open, throttle: soft, soft: {exceed: 10%}}
  - {name: dark, key: [user], limit: 10/minute, on_outage: closed, shadow: true}
`)
	c.host.SetFreshness(0, Outage)
	d := atTime(noon, c).Check(user("a"), 11)
	expect(t, d.Allowed && !d.Exceeded && d.Shadow == "dark" && d.Freshness == Outage, "%+v", d)
}
