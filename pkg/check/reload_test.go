package check

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// reload puts rules in force, as the next revision.
func reload(t testing.TB, c *Checker, now int64, list ...rules.Rule) {
	t.Helper()
	must(t, atTime(now, c).SetRules(setOf(t, list...), c.Revision()+1))
}

// sumOf is what all rules have counted, those that have gone too.
func sumOf(s Stats) RuleStats {
	all := s.Removed
	for _, r := range s.Rules {
		all.add(r)
	}
	return all
}

// TestLimitChangesAtOnce under a key that has an allowance, or a block; what has passed counts.
func TestLimitChangesAtOnce(t *testing.T) {
	for _, test := range []struct {
		why   string
		link  bool
		first int64
		hits  int
		then  []int64 // further limits, one after the other
		left  int64   // -1: the next hit is denied
	}{
		{"raised: a blocked key is free", false, 5, 6, []int64{8}, 2},
		{"raised by one", false, 5, 6, []int64{6}, 0},
		{"lowered: an allowance ends at once", false, 1000, 5, []int64{5}, -1},
		{"lowered, but there is room", false, 1000, 5, []int64{7}, 1},
		{"lowered below what has passed", false, 1000, 50, []int64{7}, -1},
		{"lowered, and raised to what has passed", false, 5, 6, []int64{3, 5}, -1},
		{"raised, and lowered to what has passed", false, 5, 6, []int64{1000, 5}, -1},
		{"lowered, and raised: what is left is as before", false, 1000, 5, []int64{5, 1000}, 994},
		{"raised in a fleet", true, 5, 6, []int64{8}, 2},
		{"lowered in a fleet", true, 1000, 5, []int64{5}, -1},
	} {
		t.Run(test.why, func(t *testing.T) {
			r := rule("r", test.first, time.Minute, 1)
			c := newChecker(t, Options{}, r)
			if test.link {
				c = newFleet(t, Options{}, r).Checker
			}
			l := limiter(t, c, "r")
			hit(l, noon, "k", test.hits) // the sixth of five is denied, which blocks the key
			for _, r.Limit = range test.then {
				reload(t, c, noon, r)
			}
			d := atTime(noon, l).Check("k", 1)
			expect(t, d.Allowed == (test.left >= 0) && d.Limit == r.Limit && d.Remaining == max(test.left, 0), "%+v", d)
			expect(t, l.Rule().Limit == r.Limit && limiter(t, c, "r") == l,
				"the limiter has not followed its rule: %+v", l.Rule())
		})
	}
}

// TestLoweredLimitIsReported: deferred keys of a fleet that are near their limit now are reported
// in the next round, and no others.
func TestLoweredLimitIsReported(t *testing.T) {
	for _, test := range []struct {
		why    string
		limit  int64
		report bool
	}{
		{"far below the new limit too", 900_000, false},
		{"a quarter of the new limit, if all checkers have as many", 160, true},
		{"at the new limit", 20, true},
		{"a limit without forecasts, half used", 40, true},
		{"a quarter of a limit without forecasts, if all checkers have as many", 99, true},
	} {
		r, other := rule("r", 1_000_000, time.Minute, 1), rule("other", 1000, time.Minute, 1)
		f := newFleet(t, Options{}, r, other)
		f.welcomeOf(noon, 2)
		atTime(noon+60*ms, f).Step()
		sent := len(f.tape.reports)
		inform(limiter(t, f.Checker, "r"), "k")
		inform(limiter(t, f.Checker, "other"), "k")
		hit(limiter(t, f.Checker, "r"), noon+61*ms, "k", 20)
		atTime(noon+61*ms, limiter(t, f.Checker, "other")).Check("k", 1)
		atTime(noon+120*ms, f).Step() // deferred: they wait
		require(t, len(f.tape.reports) == sent, "%s: a deferred key is reported", test.why)
		r.Limit = test.limit
		reload(t, f.Checker, noon+130*ms, r, other)
		atTime(noon+136*ms, f).Step()
		if reported := len(f.tape.reports) > sent; reported != test.report {
			t.Errorf("%s: reported: %v", test.why, reported)
		} else if reported {
			of := f.last().Hits.Rules[0]
			expect(t, hits(f.last())["k"] == 20 && of.GetRevision() == 1 && of.GetLimit() == uint64(test.limit),
				"%s: the report is %v", test.why, f.last())
		}
	}
}

// TestChangesThatStartAnotherCounter, or not.
func TestChangesThatStartAnotherCounter(t *testing.T) {
	was := rule("r", 10, time.Minute, 2)
	for _, test := range []struct {
		why    string
		change func(*rules.Rule)
		clean  bool
	}{
		{"limit", func(r *rules.Rule) { r.Limit = 20 }, false},
		{"outage", func(r *rules.Rule) { r.OnOutage = rules.Closed }, false},
		{"missing", func(r *rules.Rule) { r.OnMissing = rules.Deny }, false},
		{"key: another text is another key anyway", func(r *rules.Rule) { r.Key = []string{"ip"} }, false},
		{"window", func(r *rules.Rule) { r.Window.Length = time.Hour }, true},
		{"buckets", func(r *rules.Rule) { r.Window.Buckets = 6 }, true},
		{"algorithm", func(r *rules.Rule) { r.Window = window.Shape{Length: time.Minute, Buckets: 1, Fixed: true} }, true},
		{"enforcement", func(r *rules.Rule) { r.Enforcement = rules.Strict }, true},
		{"name", func(r *rules.Rule) { r.Name = "s" }, true},
	} {
		t.Run(test.why, func(t *testing.T) {
			f := newFleet(t, Options{}, was)
			old := limiter(t, f.Checker, "r")
			hit(old, noon, "k", 4)
			r := was
			test.change(&r)
			reload(t, f.Checker, noon, r)
			l := limiter(t, f.Checker, r.Name)
			require(t, (l != old) == test.clean, "another limiter: %v", l != old)
			if !test.clean {
				equal(t, left(l, noon, "k"), r.Limit-4, "left")
				return
			}
			expect(t, r.Enforcement != rules.Async || left(l, noon, "k") == r.Limit, "%d left of %d", left(l, noon, "k"), r.Limit)
			// The old limiter still decides for its holders, and its hits are reported.
			d := atTime(noon, old).Check("k", 1)
			expect(t, d.Allowed && d.Remaining == 5, "the old one says %+v", d)
			atTime(noon+60*ms, f).Step()
			equal(t, hits(f.last())["k"], 5, "reported hits")
		})
	}
}

// TestOrderOfRules: of rules that deny alike the first in the set is named, in whatever order they
// came.
func TestOrderOfRules(t *testing.T) {
	a, b, d := rule("a", 1, time.Minute, 1), rule("b", 1, time.Minute, 1), rule("d", 1, time.Minute, 1)
	c := newChecker(t, Options{}, a, b, d)
	kristie := user("kristie")
	atTime(noon, c).Check(kristie, 1)
	for _, list := range [][]rules.Rule{{a, b, d}, {d, b, a}, {b, d, a}, {b, a}, {d, b, a}} {
		reload(t, c, noon, list...)
		got := atTime(noon, c).Check(kristie, 1)
		expect(t, !got.Allowed && got.Rule == list[0].Name, "%+v, want it denied by %s", got, list[0].Name)
	}
}

// TestRuleComesBack with its counts, when it is put in force again.
func TestRuleComesBack(t *testing.T) {
	f, l := fleetAndLimiter(t, Options{}, rule("r", 10, time.Minute, 1), rule("s", 10, time.Minute, 1))
	atTime(noon, l).Check("k", 4)
	reload(t, f.Checker, noon, rule("s", 10, time.Minute, 1))
	_, ok := f.Limiter("r")
	expect(t, !ok, "there is a limiter of a rule that has gone")
	equal(t, atTime(noon, f).Check(user("k"), 5).Rule, "s", "deciding rule")
	reload(t, f.Checker, noon, rule("r", 8, time.Minute, 1), rule("s", 10, time.Minute, 1))
	expect(t, limiter(t, f.Checker, "r") == l && left(l, noon, "k") == 4,
		"it has come back as another one, or with %d left", left(l, noon, "k"))
}

func TestBadSetsAreRefused(t *testing.T) {
	c := newChecker(t, Options{Revision: 7}, rule("r", 10, time.Minute, 1))
	set := parse(t, "rules: [{name: s, key: [user], limit: 10/minute}]")
	err := c.SetRules(nil, 8)
	expect(t, err != nil && strings.Contains(err.Error(), "no rules"), "no set: %v", err)
	for _, want := range []string{"revision 6", "revision 7"} {
		err := c.SetRules(set, 6)
		expect(t, err != nil && strings.Contains(err.Error(), want), "an old revision: %v", err)
	}
	limiter(t, c, "r")
	expect(t, c.Revision() == 7 && c.Stats().Revision == 7 && c.Rules() != set, "revision %d", c.Revision())
	err = c.SetRules(set, 7)
	expect(t, err == nil && c.Rules() == set, "the same revision: %v", err)
	limiter(t, c, "s")
}

// TestEqualRulesChangeNothing: allowances outlive an equal set, and one that changes another rule.
func TestEqualRulesChangeNothing(t *testing.T) {
	c, l := checkerAndLimiter(t, Options{}, rule("r", 100, time.Minute, 1), rule("s", 100, time.Minute, 1))
	atTime(noon, l).Check("k", 1)
	word := func() uint64 { return l.core.Group.Lookup([]byte("k")).Allowance.Load() }
	before := word()
	reload(t, c, noon, rule("r", 100, time.Minute, 1), rule("s", 100, time.Minute, 1))
	reload(t, c, noon, rule("s", 3, time.Minute, 1), rule("r", 100, time.Minute, 1))
	expect(t, word() == before && before&counter.LeftMask != 0, "the allowance was %x, is %x", before, word())
	reload(t, c, noon, rule("r", 99, time.Minute, 1))
	equal(t, word(), 0, "allowance")
}

// TestFormerLimitersGo when a rule's window changes again and again under traffic, and no hit is
// forgotten.
func TestFormerLimitersGo(t *testing.T) {
	swaps := 10_000
	if testing.Short() {
		swaps = 1500
	}
	link := new(echo)
	c := newChecker(t, Options{Link: link, MaxIdleKeys: -1}, rule("r", 10, time.Minute, 1))
	now, most := noon, 0
	step := func() { link.step(c, now); now += 500 * ms }
	step()
	for i := range swaps {
		list := []rules.Rule{rule("r", 10, time.Minute+time.Duration(i%(swaps/2))*time.Second, 1)}
		if i%2 == 0 { // and one that comes and goes by other names
			list = append(list, rule(fmt.Sprint("s", i), 10, time.Minute, 1))
		}
		reload(t, c, now, list...)
		for _, r := range list {
			atTime(now, limiter(t, c, r.Name)).Check("k", 1)
		}
		step()
		most = max(most, len(c.retirees.retired))
	}
	reload(t, c, now, rule("r", 10, time.Minute, 1))
	for range 200 {
		step()
	}
	expect(t, most <= 500 && len(c.retirees.retired) == 0,
		"%d limiters were retired at a time, %d are now", most, len(c.retirees.retired))
	expect(t, c.Stats().LiveKeys <= 1, "%d counters are left", c.Stats().LiveKeys)
	collected(t, c)
	reload(t, c, now, rule("r", 10, time.Minute, 1))
	equal(t, len(c.retirees.released), 0, "limiters still known of")
	s := c.Stats()
	expect(t, len(s.Rules) == 1 && s.Rules[0].Rule == "r", "%+v", s.Rules)
	all, want := sumOf(s), int64(swaps+swaps/2)
	expect(t, all.Charged == want && all.Answered == want, "%+v, want %d charged and answered", all, want)
}

// TestLimiterIsUsedAfterItsRule: hits of a rule that has gone long ago are reported all the same,
// and if the rule comes back the limiter is the rule's.
func TestLimiterIsUsedAfterItsRule(t *testing.T) {
	link := new(echo)
	c := newChecker(t, Options{Link: link, MaxIdleKeys: -1}, rule("r", 10, time.Second, 1), rule("s", 10, time.Minute, 1))
	now := noon
	pass := func(d time.Duration) {
		for until := now + int64(d); now < until; now += 50 * ms {
			link.step(c, now)
		}
	}
	l := limiter(t, c, "r")
	pass(time.Second)
	atTime(now, l).Check("k", 2)
	reload(t, c, now, rule("s", 10, time.Minute, 1))
	pass(time.Minute)
	require(t, l.core.Group.Released.Load() && len(c.Stats().Rules) == 1 && c.Stats().Removed.Charged == 2,
		"it has not been released: %+v", c.Stats())
	hit(l, now, "k", 12)
	equal(t, sumOf(c.Stats()).Charged, 2+10, "hits charged, at once")
	pass(100 * time.Millisecond)
	s := c.Stats()
	r := s.Rules[1]
	expect(t, len(s.Rules) == 2 && r.Rule == "r" && r.Charged == 10 && r.Answered == 10 && r.Denied == 2,
		"it is used again, and %+v", s.Rules)
	pass(time.Minute)
	s = c.Stats()
	expect(t, len(s.Rules) == 1 && s.Removed.Charged == 12 && s.Removed.Answered == 12, "it has not been released again: %+v", s)
	reload(t, c, now, rule("r", 5, time.Second, 1))
	expect(t, limiter(t, c, "r") == l && !l.core.Group.Released.Load() && left(l, now, "k") == 5, "it has not come back")
	pass(time.Minute)
}

// collected waits until no caller holds a limiter that has been released.
func collected(t *testing.T, c *Checker) {
	t.Helper()
	for range 10 {
		runtime.GC() // pools give up what they hold in the second
	}
	for id, g := range c.retirees.released {
		require(t, g.limiter.Value() == nil, "somebody holds the limiter %+v", id)
	}
}

// TestRulesThatComeAndGoAreCountedOnce: more rules than one flush looks at retire, come back, and
// retire again.
func TestRulesThatComeAndGoAreCountedOnce(t *testing.T) {
	var all []rules.Rule
	for i := range 100 {
		all = append(all, rule(fmt.Sprint("r", i), 100, time.Hour, 1))
	}
	none := rule("none", 1, time.Hour, 1)
	for _, o := range []Options{{}, {Link: new(tape)}} {
		c := newChecker(t, o, all...)
		atTime(noon, c).Check(user("kristie"), 1)
		for i, list := range [][]rules.Rule{{none}, all, {none}, all, {none}} {
			reload(t, c, noon+int64(i), list...)
			equal(t, sumOf(c.Stats()).Charged, 100, "hits charged, after %d sets", i+1)
		}
	}
}
