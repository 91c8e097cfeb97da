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

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/check/internal/ruleset"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/window"
)

func inlineLimit(name string, limit int64) InlineLimit {
	return InlineLimit{Name: name, Window: window.Shape{Length: time.Minute, Buckets: 1, Fixed: true}, Limit: limit}
}

// checkInline fails the test on an error.
func checkInline(t testing.TB, c *Checker, now int64, o InlineLimit, key string, cost int64) Decision {
	t.Helper()
	d, err := atTime(now, c).tryInline(Charge, o, key, cost)
	must(t, err)
	return d
}

// TestInlineLimits: hits of one name and key share a count, and each is decided by its own limit,
// however limits change from hit to hit.
func TestInlineLimits(t *testing.T) {
	type counter struct{ name, key string }
	rapid.Check(t, func(t *rapid.T) {
		c := newChecker(&testing.T{}, Options{}, rule("a", 1, time.Minute, 1)) // not the callers' own "a"
		decided(t, atTime(noon, c).Check(user("k"), 1), true, "by the rule of the same name")
		limits := rapid.SliceOfN(rapid.Int64Range(1, 30), 1, 4).Draw(t, "limits")
		charged := map[counter]int64{}
		for range rapid.IntRange(1, 60).Draw(t, "hits") {
			of := rapid.SampledFrom([]counter{{"a", "k"}, {"a", "k"}, {"a", "l"}, {"b", "k"}}).Draw(t, "counter")
			limit := inlineLimit(of.name, rapid.SampledFrom(limits).Draw(t, "limit"))
			cost := rapid.Int64Range(1, 3).Draw(t, "cost")
			fits, status := charged[of]+cost <= limit.Limit, 0
			if !fits {
				status = 429
			}
			holds := func(what string, d Decision, err error) {
				require(t, err == nil && d.Allowed == fits && d.Remaining == max(limit.Limit-charged[of], 0) &&
					d.Limit == limit.Limit && d.Rule == "own "+of.name && d.Status == status,
					"%s: %d charged to %v, limit %d, cost %d: %+v, %v", what, charged[of], of, limit.Limit, cost, d, err)
			}
			d, err := atTime(noon, c).tryInline(Peek, limit, of.key, cost)
			holds("peeked", d, err)
			d, err = atTime(noon, c).tryInline(Charge, limit, of.key, cost)
			if fits {
				charged[of] += cost
			}
			holds("decided", d, err)
		}
		d, err := atTime(noon+60*second, c).tryInline(Charge, inlineLimit("a", 30), "k", 1)
		require(t, err == nil && d.Remaining == 29, "in the next window: %+v, %v", d, err)
		_, ok := c.Limiter("own a")
		require(t, !ok, "it passes for a rule")
	})
}

// TestInlineLimitsAreReported: counts of inline limits outlive a change of rules, are reported, and
// hear alarms.
func TestInlineLimitsAreReported(t *testing.T) {
	f := newFleet(t, Options{}, rule("r", 10, time.Minute, 1))
	o := inlineLimit("a", 10)
	checkInline(t, f.Checker, noon, inlineLimit("a", 50), "k", 1)
	checkInline(t, f.Checker, noon, o, "k", 1) // the lowest limit is reported
	checkInline(t, f.Checker, noon, inlineLimit("a", 80), "k", 1)
	reload(t, f.Checker, noon, rule("s", 10, time.Minute, 1))
	d := checkInline(t, f.Checker, noon, o, "k", 1)
	expect(t, d.Remaining == 6, "after a change of rules: %+v", d)
	atTime(noon+60*ms, f).Step()
	r := f.last()
	got := hits(r)
	expect(t, got["k"] == 4 && r.Hits.Rules[0].Name == "own a" && r.Hits.Rules[0].Limit == 10,
		"reported %v of %v", got, r.Hits.Rules)
	f.answer(noon+70*ms, 9) // others have had 5
	d = checkInline(t, f.Checker, noon+70*ms, o, "k", 1)
	expect(t, d.Allowed && d.Remaining == 0, "after the answer: %+v", d)
	f.receive(noon+80*ms, events.KindAlarm, alarmOf(&f.inline.Find("own a").Group, noon+80*ms, 1, "unseen", admitted(10)))
	decided(t, checkInline(t, f.Checker, noon+80*ms, o, "unseen", 1), false, "after an alarm")
	stats := f.Stats().Rules
	i := slices.IndexFunc(stats, func(s RuleStats) bool { return s.Rule == "own a" })
	expect(t, i >= 0 && stats[i].Charged == 5 && stats[i].Answered == 4 && stats[i].Denied == 1, "stats: %+v", stats)
}

func TestInlineLimitsRefused(t *testing.T) {
	c := newChecker(t, Options{}, rule("r", 1, time.Minute, 1))
	checkInline(t, c, noon, inlineLimit("taken", 5), "k", 1)
	shaped := func(name string, s window.Shape) InlineLimit { return InlineLimit{Name: name, Window: s, Limit: 5} }
	for _, test := range []struct {
		why   string
		limit InlineLimit
		want  string
	}{
		{"no name", inlineLimit("", 1), "want a name of 1 to 100 bytes"},
		{"a long name", inlineLimit(strings.Repeat("n", MaxInlineName+1), 1), "want a name of 1 to 100 bytes"},
		{"a control character", inlineLimit("a\nb", 1), "without control characters"},
		{"bad UTF-8", inlineLimit("a\xff", 1), "want a name"},
		{"no limit", inlineLimit("a", 0), "limit"},
		{"a negative limit", inlineLimit("a", -1), "limit"},
		{"a huge limit", inlineLimit("a", window.MaxCount+1), "limit"},
		{"no limit, of a known name", inlineLimit("taken", 0), "limit"},
		{"no window", shaped("a", window.Shape{}), "window"},
		{"a long window", shaped("a", window.Shape{Length: 367 * 24 * time.Hour, Buckets: 1, Fixed: true}), "at most"},
		{"a bucket that leaks", shaped("a", window.Shape{Length: time.Minute, Buckets: 60, Kind: window.Leaky}), "sliding or fixed"},
		{"another window of a known name", shaped("taken", window.Shape{Length: time.Hour, Buckets: 1, Fixed: true}), "earlier hits 1m0s"},
	} {
		d, err := atTime(noon, c).tryInline(Charge, test.limit, "k", 1)
		expect(t, err != nil && strings.Contains(err.Error(), test.want) && d == (Decision{}),
			"%s: %+v, %v; want %q", test.why, d, err, test.want)
		_, err = atTime(noon, c).tryInline(Peek, test.limit, "k", 1)
		expect(t, err != nil, "%s: a peek is not refused", test.why)
	}
}

// TestInlineLimitsAreBounded: names are bounded, and known ones go on; any number of limits may
// come of one.
func TestInlineLimitsAreBounded(t *testing.T) {
	c := newChecker(t, Options{}, rule("r", 1, time.Minute, 1))
	for i := range MaxInlineLimits {
		checkInline(t, c, noon, inlineLimit(fmt.Sprint(i), 2), "k", 1)
	}
	_, err := atTime(noon, c).tryInline(Charge, inlineLimit("one more", 2), "k", 1)
	expect(t, errors.Is(err, ErrInlineLimits), "one more: %v", err)
	known := checkInline(t, c, noon, inlineLimit("0", 2), "k", 1)
	expect(t, known.Allowed && known.Remaining == 0, "a known one: %+v", known)
	for limit := range int64(3 << 10) {
		d := checkInline(t, c, noon, inlineLimit("1", limit+1), "k", 1)
		require(t, d.Allowed == (limit > 0), "limit %d: %+v", limit+1, d)
	}
}

// TestInlineLimitsAtOnce: many callers make one limiter of a name, and no hit is lost.
func TestInlineLimitsAtOnce(t *testing.T) {
	c := newChecker(t, Options{}, rule("r", 1, time.Minute, 1))
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 200 {
				limit := int64(500 + (i+j)%2) // of the one or the other
				d, err := atTime(noon, c).tryInline(Charge, inlineLimit(fmt.Sprint(j%10), limit), "k", 1)
				expect(t, err == nil && d.Allowed && d.Limit == limit, "%+v, %v", d, err)
			}
		})
	}
	all.Wait()
	for j := range 10 {
		d, _ := atTime(noon, c).tryInline(Peek, inlineLimit(fmt.Sprint(j), 500), "k", 1)
		expect(t, d.Remaining == 500-8*20, "%d left", d.Remaining)
	}
}

// TestInlineLimitsOutnumberStamps: an allowance is never spent under another limit, however many
// limits have come since.
func TestInlineLimitsOutnumberStamps(t *testing.T) {
	c := newChecker(t, Options{}, rule("r", 10, time.Minute, 1))
	checkInline(t, c, noon, inlineLimit("a", 1_000_000), "k", 1) // leaves one behind
	kept := c.inline.Find("own a").Group.Lookup([]byte("k"))
	stamps := make(map[uint64]bool)
	for i := range int64(1 << 16) {
		of := inlineLimit("a", 2+i)
		_, terms, err := c.inline.Limiter(&c.host, (*ruleset.InlineLimit)(&of))
		require(t, err == nil && terms.Limit == 2+i, "limit %d: %+v, %v", 2+i, terms, err)
		v, _, _ := kept.Take(terms.Stamp, noon)
		require(t, v != counter.Allowed, "limit %d: spends what one of 1,000,000 has left behind", 2+i)
		require(t, terms.Restless || !stamps[terms.Stamp], "limit %d: has the stamp of another", 2+i)
		stamps[terms.Stamp] = true
	}
	last := inlineLimit("a", 5_000_000) // for which there is no stamp any more
	for i := range int64(4) {
		d := checkInline(t, c, noon, last, "l", 1)
		expect(t, d.Allowed && d.Remaining == last.Limit-1-i, "hit %d: %+v", i, d)
		decided(t, checkInline(t, c, noon, inlineLimit("a", 1), "l", 1), false, "a hit")
	}
}

// TestInlineLimitsAllocateNothing for a name and a limit that are known, with their buckets or
// without.
func TestInlineLimitsAllocateNothing(t *testing.T) {
	c := newChecker(t, Options{}, rule("r", 10, time.Minute, 1))
	for _, buckets := range []int{0, 1} {
		of := &InlineLimit{Name: "a", Window: window.Shape{Length: time.Minute, Buckets: buckets}, Limit: 1_000_000}
		check := func() { c.Do(Request{Inline: of, Key: "k"}) }
		check()
		equal(t, testing.AllocsPerRun(100, check), 0, "allocations with %d buckets", buckets)
	}
}
