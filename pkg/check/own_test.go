package check

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/offpath-io/offpath/pkg/window"
)

func ownLimit(name string, limit int64) Own {
	return Own{Name: name, Window: window.Shape{Length: time.Minute, Buckets: 1, Fixed: true}, Limit: limit}
}

// checkOwn fails the test on an error.
func checkOwn(t testing.TB, c *Checker, now int64, o Own, key string, cost int64) Decision {
	t.Helper()
	d, err := c.CheckOwnAt(now, o, key, cost)
	must(t, err)
	return d
}

// TestOwnLimits: hits of one name and key share a count, whatever limit each brings along.
func TestOwnLimits(t *testing.T) {
	c := newChecker(t, Options{}, rule("a", 1, time.Minute, 1))
	decided(t, limiter(t, c, "a").CheckAt(noon, "k", 1), true, "a rule of the same name, which is another")
	for i, step := range []struct {
		why       string
		name, key string
		limit     int64
		cost      int64
		allowed   bool
		remaining int64
	}{
		{"the first hit", "a", "k", 3, 1, true, 2},
		{"two more", "a", "k", 3, 2, true, 0},
		{"the limit is reached", "a", "k", 3, 1, false, 0},
		{"a higher limit has room at once", "a", "k", 5, 1, true, 1},
		{"the lower one has none, whatever the higher left behind", "a", "k", 3, 1, false, 0},
		{"nor a lower one still", "a", "k", 1, 1, false, 0},
		{"the higher one has what is left", "a", "k", 5, 1, true, 0},
		{"and no more", "a", "k", 5, 1, false, 0},
		{"another key", "a", "other", 3, 1, true, 2},
		{"another name", "b", "k", 3, 1, true, 2},
		{"more than the limit never fits", "b", "k", 3, 4, false, 2},
	} {
		o := ownLimit(step.name, step.limit)
		peek, err := c.PeekOwnAt(noon, o, step.key, step.cost)
		d := checkOwn(t, c, noon, o, step.key, step.cost)
		expect(t, d.Allowed == step.allowed && d.Remaining == step.remaining && d.Limit == step.limit && d.Rule == "own "+step.name,
			"step %d, %s: %+v", i, step.why, d)
		before := step.remaining // which a peek does not change
		if step.allowed {
			before += step.cost
		}
		expect(t, err == nil && peek.Allowed == d.Allowed && peek.Limit == d.Limit && peek.Remaining == before,
			"step %d, %s: peeked %+v, %v", i, step.why, peek, err)
		expect(t, d.Allowed || d.Status == 429, "step %d, %s: status %d", i, step.why, d.Status)
	}
	d := checkOwn(t, c, noon+60*second, ownLimit("a", 3), "k", 1)
	expect(t, d.Allowed && d.Remaining == 2, "in the next window: %+v", d)
	_, ok := c.Limiter("own a")
	expect(t, !ok, "it passes for a rule")
}

// TestOwnLimitsAreReported: counts of own limits outlive a change of rules, are reported, and hear alarms.
func TestOwnLimitsAreReported(t *testing.T) {
	f := newFleet(t, Options{}, rule("r", 10, time.Minute, 1))
	o := ownLimit("a", 10)
	checkOwn(t, f.Checker, noon, ownLimit("a", 50), "k", 1)
	checkOwn(t, f.Checker, noon, o, "k", 1) // the lowest limit is reported
	checkOwn(t, f.Checker, noon, ownLimit("a", 80), "k", 1)
	reload(t, f.Checker, noon, rule("s", 10, time.Minute, 1))
	d := checkOwn(t, f.Checker, noon, o, "k", 1)
	expect(t, d.Remaining == 6, "after a change of rules: %+v", d)
	f.Step(noon + 60*ms)
	r := f.last()
	got := hits(r)
	expect(t, got["k"] == 4 && r.Hits.Rules[0].Name == "own a" && r.Hits.Rules[0].Limit == 10,
		"reported %v of %v", got, r.Hits.Rules)
	f.answer(noon+70*ms, 9) // others have had 5
	d = checkOwn(t, f.Checker, noon+70*ms, o, "k", 1)
	expect(t, d.Allowed && d.Remaining == 0, "after the answer: %+v", d)
	f.alarm(noon+80*ms, 1, f.own.find("own a"), "unseen", 10)
	decided(t, checkOwn(t, f.Checker, noon+80*ms, o, "unseen", 1), false, "after an alarm")
	stats := f.Stats().Rules
	i := slices.IndexFunc(stats, func(s RuleStats) bool { return s.Rule == "own a" })
	expect(t, i >= 0 && stats[i].Charged == 5 && stats[i].Answered == 4 && stats[i].Denied == 1, "stats: %+v", stats)
}

func TestOwnLimitsRefused(t *testing.T) {
	c := newChecker(t, Options{}, rule("r", 1, time.Minute, 1))
	checkOwn(t, c, noon, ownLimit("taken", 5), "k", 1)
	shaped := func(name string, s window.Shape) Own { return Own{Name: name, Window: s, Limit: 5} }
	for _, test := range []struct {
		why  string
		own  Own
		want string
	}{
		{"no name", ownLimit("", 1), "want a name of 1 to 100 bytes"},
		{"a long name", ownLimit(strings.Repeat("n", MaxOwnName+1), 1), "want a name of 1 to 100 bytes"},
		{"a control character", ownLimit("a\nb", 1), "without control characters"},
		{"bad UTF-8", ownLimit("a\xff", 1), "want a name"},
		{"no limit", ownLimit("a", 0), "limit"},
		{"a negative limit", ownLimit("a", -1), "limit"},
		{"a huge limit", ownLimit("a", window.MaxCount+1), "limit"},
		{"no limit, of a known name", ownLimit("taken", 0), "limit"},
		{"no window", shaped("a", window.Shape{}), "window"},
		{"a long window", shaped("a", window.Shape{Length: 367 * 24 * time.Hour, Buckets: 1, Fixed: true}), "at most"},
		{"a bucket that leaks", shaped("a", window.Shape{Length: time.Minute, Buckets: 60, Kind: window.Leaky}), "sliding or fixed"},
		{"another window of a known name", shaped("taken", window.Shape{Length: time.Hour, Buckets: 1, Fixed: true}), "earlier hits 1m0s"},
	} {
		d, err := c.CheckOwnAt(noon, test.own, "k", 1)
		expect(t, err != nil && strings.Contains(err.Error(), test.want) && d == (Decision{}),
			"%s: %+v, %v; want %q", test.why, d, err, test.want)
		_, err = c.PeekOwnAt(noon, test.own, "k", 1)
		expect(t, err != nil, "%s: a peek is not refused", test.why)
	}
}

// TestOwnLimitsAreBounded: names are bounded, and known ones go on; any number of limits may come of one.
func TestOwnLimitsAreBounded(t *testing.T) {
	c := newChecker(t, Options{}, rule("r", 1, time.Minute, 1))
	for i := range MaxOwn {
		checkOwn(t, c, noon, ownLimit(fmt.Sprint(i), 2), "k", 1)
	}
	_, err := c.CheckOwnAt(noon, ownLimit("one more", 2), "k", 1)
	expect(t, errors.Is(err, ErrManyOwn), "one more: %v", err)
	known := checkOwn(t, c, noon, ownLimit("0", 2), "k", 1)
	expect(t, known.Allowed && known.Remaining == 0, "a known one: %+v", known)
	for limit := range int64(3 * mostOwnLimits) {
		d := checkOwn(t, c, noon, ownLimit("1", limit+1), "k", 1)
		require(t, d.Allowed == (limit > 0), "limit %d: %+v", limit+1, d)
	}
	n := len(c.own.named("1").terms)
	expect(t, n <= mostOwnLimits, "%d limits are remembered", n)
}

// TestOwnLimitsAreExact: however limits change from hit to hit, each hit is decided by its own.
func TestOwnLimitsAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newChecker(&testing.T{}, Options{}, rule("r", 1, time.Minute, 1))
		limits := rapid.SliceOfN(rapid.Int64Range(1, 30), 1, 4).Draw(t, "limits")
		var charged int64
		for range rapid.IntRange(1, 60).Draw(t, "hits") {
			limit, cost := rapid.SampledFrom(limits).Draw(t, "limit"), rapid.Int64Range(1, 3).Draw(t, "cost")
			d, err := c.CheckOwnAt(noon, ownLimit("a", limit), "k", cost)
			require(t, err == nil && d.Allowed == (charged+cost <= limit),
				"%d charged, limit %d, cost %d: %+v, %v", charged, limit, cost, d, err)
			if d.Allowed {
				charged += cost
			}
		}
	})
}

// TestOwnLimitsAtOnce: many callers make one limiter of a name, and no hit is lost.
func TestOwnLimitsAtOnce(t *testing.T) {
	c := newChecker(t, Options{}, rule("r", 1, time.Minute, 1))
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 200 {
				limit := int64(500 + (i+j)%2) // of the one or the other
				d, err := c.CheckOwnAt(noon, ownLimit(fmt.Sprint(j%10), limit), "k", 1)
				expect(t, err == nil && d.Allowed && d.Limit == limit, "%+v, %v", d, err)
			}
		})
	}
	all.Wait()
	for j := range 10 {
		d, _ := c.PeekOwnAt(noon, ownLimit(fmt.Sprint(j), 500), "k", 1)
		expect(t, d.Remaining == 500-8*20, "%d left", d.Remaining)
	}
}

// TestOwnLimitsOutnumberStamps: an allowance is never spent under another limit, however many limits have come since.
func TestOwnLimitsOutnumberStamps(t *testing.T) {
	c := newChecker(t, Options{}, rule("r", 10, time.Minute, 1))
	checkOwn(t, c, noon, ownLimit("a", 1_000_000), "k", 1) // leaves one behind
	cell := c.own.find("own a").holds([]byte("k"))
	stamps := make(map[uint64]bool)
	for i := range int64(1 << 16) {
		_, terms, err := c.own.limiter(c, ownLimit("a", 2+i))
		require(t, err == nil && terms.limit == 2+i, "limit %d: %+v, %v", 2+i, terms, err)
		v, _, _ := cell.take(terms.stamp, noon)
		require(t, v != allowed, "limit %d: spends what one of 1,000,000 has left behind", 2+i)
		require(t, terms.restless || !stamps[terms.stamp], "limit %d: has the stamp of another", 2+i)
		stamps[terms.stamp] = true
	}
	last := ownLimit("a", 5_000_000) // for which there is no stamp any more
	for i := range int64(4) {
		d := checkOwn(t, c, noon, last, "l", 1)
		expect(t, d.Allowed && d.Remaining == last.Limit-1-i, "hit %d: %+v", i, d)
		decided(t, checkOwn(t, c, noon, ownLimit("a", 1), "l", 1), false, "a hit")
	}
}
