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

// TestOwnLimits: hits of one name and key share a count, and each is decided by its own limit,
// however limits change from hit to hit.
func TestOwnLimits(t *testing.T) {
	type counter struct{ name, key string }
	rapid.Check(t, func(t *rapid.T) {
		c := newChecker(&testing.T{}, Options{}, rule("a", 1, time.Minute, 1)) // not the callers' own "a"
		decided(t, c.CheckAt(noon, user("k"), 1), true, "by the rule of the same name")
		limits := rapid.SliceOfN(rapid.Int64Range(1, 30), 1, 4).Draw(t, "limits")
		charged := map[counter]int64{}
		for range rapid.IntRange(1, 60).Draw(t, "hits") {
			of := rapid.SampledFrom([]counter{{"a", "k"}, {"a", "k"}, {"a", "l"}, {"b", "k"}}).Draw(t, "counter")
			own := ownLimit(of.name, rapid.SampledFrom(limits).Draw(t, "limit"))
			cost := rapid.Int64Range(1, 3).Draw(t, "cost")
			fits, status := charged[of]+cost <= own.Limit, 0
			if !fits {
				status = 429
			}
			holds := func(what string, d Decision, err error) {
				require(t, err == nil && d.Allowed == fits && d.Remaining == max(own.Limit-charged[of], 0) &&
					d.Limit == own.Limit && d.Rule == "own "+of.name && d.Status == status,
					"%s: %d charged to %v, limit %d, cost %d: %+v, %v", what, charged[of], of, own.Limit, cost, d, err)
			}
			d, err := c.PeekOwnAt(noon, own, of.key, cost)
			holds("peeked", d, err)
			d, err = c.CheckOwnAt(noon, own, of.key, cost)
			if fits {
				charged[of] += cost
			}
			holds("decided", d, err)
		}
		d, err := c.CheckOwnAt(noon+60*second, ownLimit("a", 30), "k", 1)
		require(t, err == nil && d.Remaining == 29, "in the next window: %+v, %v", d, err)
		_, ok := c.Limiter("own a")
		require(t, !ok, "it passes for a rule")
	})
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
