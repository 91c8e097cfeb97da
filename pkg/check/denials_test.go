package check

import (
	"fmt"
	"github.com/offpath-io/offpath/pkg/check/internal/fleetstate"
	"strings"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/check/internal/forecast"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
)

// TestDenialsAreCounted: hits that are turned away without the lock are counted as soon as a report
// is made, each once, in Stats and in the report.
func TestDenialsAreCounted(t *testing.T) {
	f, l := newFleetOf(t, 2, Options{}, 100, time.Second)
	f.alarm(noon, 1, l, "k", 100)
	now, denied := noon+ms, 0
	check := func(n int) {
		t.Helper()
		for range n {
			d := atTime(now, l).Check("k", 1)
			require(t, !d.Allowed && d.RetryAfter > 0 && d.Remaining == 0 && d.Rule == "r", "%+v", d)
			denied++
		}
	}
	report := func(want uint64) {
		t.Helper()
		atTime(now, f).Step()
		got, n := rows(f.last(), true)
		expect(t, got["k"] == want && n == 1 && f.last().Hits.Rules[0].Denied == true,
			"reported %v denied in %d rows, want %d", got, n, want)
		s := f.Stats().Rules[0]
		expect(t, s.Denied == int64(denied) && s.Allowed == 0 && s.Charged == 0 && unreported(s) == 0,
			"stats %+v, want %d denied", s, denied)
		f.answerRows(now, uint64(denied), 100)
	}
	check(50)
	word := l.core.Group.Lookup([]byte("k")).Allowance.Load()
	expect(t, word&counter.Blocked != 0 && word&counter.LeftMask != 0, "word %x: turned away with the lock", word)
	now = noon + 50*ms
	report(50)
	check(1)
	now += 3 * ms // within a run
	check(20)
	now += 2 * ms // it is over: the next hit looks again
	check(3)
	atTime(now, l).Check("k", 5) // nobody lets that pass, so it tells nothing of the demand
	denied++
	now = noon + 100*ms
	report(24)
	equal(t, len(f.reportsAt(noon+150*ms)), 0, "reports, though nothing has come")
}

// TestDeniedHitsOfSlowWindowsWait: they ask for a report in one full round of many only, but in
// that one they do.
func TestDeniedHitsOfSlowWindowsWait(t *testing.T) {
	for _, test := range []struct {
		window    time.Duration
		most, few int // full rounds that are asked for, of 200
	}{{time.Second, 200, 200}, {10 * time.Second, 23, 22}, {time.Hour, 4, 3}} {
		f, l := newFleetOf(t, 2, Options{HelloEvery: time.Hour}, 100, test.window)
		asked := 0
		for i := range int64(200) {
			now := noon + i*forecast.FullInterval
			f.alarm(now, 1, l, "k", 1000)
			f.host.Rounds.Wanted.Store(0)
			passes(l, now, 10)
			if f.host.Rounds.Wanted.Load()&fleetstate.NextFull != 0 {
				asked++
			}
		}
		expect(t, asked <= test.most && asked >= test.few,
			"window %v: %d of 200 full rounds are asked for, want %d to %d", test.window, asked, test.few, test.most)
	}
}

// unreported is how many hits of a rule no aggregator has answered for.
func unreported(r RuleStats) int64 { return r.InFlight + r.Pending }

// TestDenialsOfOthersAreAskedFor with own hits, once it is known that there are any.
func TestDenialsOfOthersAreAskedFor(t *testing.T) {
	f, l := newFleetOf(t, 2, Options{}, 100, time.Minute)
	f.alarm(noon, 1, l, "k", 60)
	atTime(noon, l).Check("k", 1)
	atTime(noon+50*ms, f).Step()
	_, n := rows(f.last(), true)
	expect(t, n == 0, "asked for denied hits, though nobody has any")
	f.answerRows(noon+51*ms, 61)
	atTime(noon+52*ms, l).Check("k", 1)
	f.alarmRows(noon+53*ms, l, "k", admitted(61), denied(7))
	atTime(noon+100*ms, f).Step()
	got, n := rows(f.last(), true)
	expect(t, n == 1 && got["k"] == 0 && len(f.last().Hits.Age) == 1, "asked in %d rows, with %v denied", n, got)
	wantLeft(t, l, noon+100*ms, 38, "denied hits limit nothing")
	f.answerRows(noon+101*ms, 7, 62)
	s := f.Stats().Rules[0]
	expect(t, s.Answered == 2 && unreported(s) == 0, "stats: %+v", s)
}

// TestAnotherRulesDenialCostsNothing: nor does it save up, however many there are.
func TestAnotherRulesDenialCostsNothing(t *testing.T) {
	wide, narrow := rule("wide", 1e6, time.Minute, 1), rule("narrow", 1, time.Minute, 1)
	narrow.Key = []string{"ip"}
	f := newFleet(t, Options{Epoch: 1}, wide, narrow)
	f.join(noon, 2, 0)
	l := limiter(t, f.Checker, "wide")
	attrs := request("user=k ip=192.0.2.1")
	f.alarm(noon, 1, l, "k", 990_000)
	now := noon + ms
	charged := int64(passes(l, now, 400))         // then a demand is known, and only a part passes
	for !atTime(now, f).Check(attrs, 1).Allowed { // the narrow rule's only hit
	}
	charged++
	before := f.Stats().Rules[0]
	for range 1000 {
		d := atTime(now, f).Check(attrs, 1)
		require(t, !d.Allowed, "%+v", d)
	}
	denied := f.Stats().Rules[0]
	passed := passes(l, now, 100)
	part := l.ahead("k").Part
	want := 100 * part
	expect(t, part >= 0.1 && part <= 0.9 && float64(passed) >= want-3 && float64(passed) <= want+3,
		"%d of 100 hits passed, of which a part of %v may", passed, part)
	// Once a hit passes here, all do until one is charged.
	n := denied.Denied - before.Denied
	expect(t, n <= 10, "%d of 1000 hits were denied here too", n)
	expect(t, denied.Charged == before.Charged && left(l, now, "k") == 1e6-990_000-charged-int64(passed),
		"charged before %+v, after %+v; %d left", before, denied, left(l, now, "k"))
}

// TestOnlyWhoDeniesCountsIt: a rule that would have let the hit pass has not decided.
func TestOnlyWhoDeniesCountsIt(t *testing.T) {
	c := newChecker(t, Options{}, rule("wide", 1000, time.Minute, 1), rule("narrow", 1, time.Minute, 1))
	for range 5 {
		atTime(noon, c).Check(user("k"), 1)
	}
	c.reporter.Step(noon, true)
	s := c.Stats().Rules
	expect(t, s[0].Allowed == 1 && s[0].Denied == 0 && s[1].Allowed == 1 && s[1].Denied == 4, "%+v", s)
}

// TestDeniedWithoutACell: there is no room for the wide rule's key, and the narrow rule denies.
func TestDeniedWithoutACell(t *testing.T) {
	wide, narrow := rule("wide", 1000, time.Minute, 1), rule("narrow", 1, time.Minute, 1)
	narrow.Key = []string{"ip"}
	c := newChecker(t, Options{MaxLiveKeys: 1}, wide, narrow)
	both, ip := request("user=k ip=192.0.2.1"), request("ip=192.0.2.1")
	for i, step := range []struct {
		at                int64 // in minutes: each has a bucket of its own
		attrs             identity.Attributes
		cost              int64
		allowed           bool
		charged, overflow [2]int64 // of wide and narrow
	}{
		{0, ip, 1, true, [2]int64{0, 1}, [2]int64{}}, // takes the only place
		{0, both, 1, false, [2]int64{0, 1}, [2]int64{}},
		{2, both, 3, false, [2]int64{0, 1}, [2]int64{}},
		{2, both, 1, true, [2]int64{1, 2}, [2]int64{1, 0}}, // the wide rule has no place to count it
	} {
		d, s := atTime(noon+step.at*60*second, c).Check(step.attrs, step.cost), c.Stats().Rules
		charged, overflow := [2]int64{s[0].Charged, s[1].Charged}, [2]int64{s[0].Overflow, s[1].Overflow}
		decider := d.Allowed || d.Rule == "narrow"
		expect(t, d.Allowed == step.allowed && decider && charged == step.charged && overflow == step.overflow,
			"hit %d: %+v, charged %v, overflow %v", i, d, charged, overflow)
		expect(t, step.cost <= 1 || d.RetryAfter == Never, "above the limit: %+v", d)
	}
}

// TestDearHitsAreNoDemand: hits that cost more than there is room for, or than the limit, take no
// room from cheap ones that fit, and the fleet does not hear of them.
func TestDearHitsAreNoDemand(t *testing.T) {
	for _, tt := range []struct {
		checkers           uint32
		known, cheap, cost int64 // hits known of 1000, those that come, and what a dear one costs
	}{
		{2, 600, 380, 401}, {2, 950, 20, 51}, {8, 600, 380, 401}, {8, 950, 20, 51}, {100, 900, 60, 101},
		{2, 600, 380, 1e12},
	} {
		f, l := newFleetOf(t, tt.checkers, Options{}, 1000, time.Minute)
		f.alarmMade(noon, noon, l, "k", tt.known)
		why := fmt.Sprintf("%+v", tt)
		for i := range tt.cheap {
			at := noon + i*ms
			for range 10 {
				d := wantHit(t, l, at, tt.cost, false, why)
				require(t, tt.cost <= 1000 || d.RetryAfter == Never, "%s: %+v", why, d)
			}
			wantHit(t, l, at, 1, true, why)
		}
		atTime(noon+second, f).Step()
		got, _ := rows(f.last(), true)
		expect(t, got["k"] == 0, "%s: %d denied hits are reported", why, got["k"])
		f.answerRows(noon+second, uint64(tt.known+tt.cheap))
		atTime(noon+second, l).Check("k", tt.cost)
		atTime(noon+2*second, f).Step()
		equal(t, len(f.tape.reports), 1, "%s: reports, one of nothing", why)
	}
}

// TestOnDenied: Options.OnDenied hears of as many denials as are counted, by key, in whichever way.
func TestOnDenied(t *testing.T) {
	several := []rules.Rule{rule("a", 5, time.Hour, 1), rule("b", 3, time.Hour, 1)}
	listed := rule("listed", 5, time.Hour, 1)
	listed.Deny = []rules.List{{Attribute: "user", Values: []string{"k"}}}
	shadow := rule("shadow", 2, time.Hour, 1)
	shadow.Shadow = true
	closed := rule("closed", 5, time.Hour, 1)
	closed.OnOutage = rules.Closed
	h := hasher(t, keySecret)
	for _, test := range []struct {
		why   string
		o     Options
		rules []rules.Rule
		key   string
	}{
		{"a small limit", Options{}, several[:1], "k"},
		{"two rules", Options{}, several, "k"},
		{"a forecast", Options{Link: new(tape)}, []rules.Rule{rule("r", 200, time.Hour, 1)}, "k"},
		{"no room", Options{MaxLiveKeys: 1}, []rules.Rule{closed}, "k"},
		{"a block", Options{}, several[:1], "blocked"},
		{"a block of one", Options{}, several, "blocked"},
		{"a deny list", Options{}, []rules.Rule{listed}, "k"},
		{"shadow", Options{}, []rules.Rule{shadow}, "k"},
		{"hashed keys", Options{KeyHash: h}, several[:1], "k"},
	} {
		heard := map[string]int64{}
		test.o.OnDenied = func(rule, key string, decisions int64) { heard[rule+" "+strings.Clone(key)] += decisions }
		c := newChecker(t, test.o, test.rules...)
		if test.o.Link != nil {
			c = newFleet(t, test.o, test.rules...).Checker
		}
		c.SetBlocks([]Block{{"a", "blocked", time.Unix(0, noon+second)}})
		atTime(noon, c).Check(user("first"), 1)
		for range 300 {
			atTime(noon, c).Check(user(test.key), 1)
			atTime(noon, limiter(t, c, test.rules[0].Name)).Check(test.key, 1)
		}
		atTime(noon+second, c).Step()
		reported := test.key
		if test.o.KeyHash != nil {
			reported = h.Hash(test.key)
		}
		denied := int64(0)
		for _, s := range c.Stats().Rules {
			if denied += s.Denied; heard[s.Rule+" "+reported] != s.Denied {
				t.Errorf("%s: rule %s: %d counted, heard of %v", test.why, s.Rule, s.Denied, heard)
			}
		}
		expect(t, denied != 0, "%s: nothing was denied", test.why)
	}
}
