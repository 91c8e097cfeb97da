package check

import (
	"context"
	"fmt"
	"github.com/offpath-io/offpath/pkg/check/internal/fleetstate"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/rules"
)

// whileReloading calls f again and again from several goroutines, while the sets take turns, until
// that is enough.
func whileReloading(t *testing.T, c *Checker, now func() int64, swaps int, enough func() bool, f func(), sets ...*rules.Set) {
	t.Helper()
	stop := meanwhile(4, func(int) { f() })
	for i := 0; i < swaps || !enough(); i++ {
		if err := atTime(now(), c).SetRules(sets[i%len(sets)], uint64(i)); err != nil {
			t.Error(err)
		}
		if i%64 == 0 { // let the others have their turn
			runtime.Gosched()
		}
	}
	stop()
}

func atNoon() int64 { return noon }

// often is how many changes of rules are enough to meet every moment of a decision.
func often() int {
	if testing.Short() {
		return 2_000
	}
	return 20_000
}

// TestDecisionsAreOfOneSet: in each of two sets another one of two rules is used up, and in a third
// the rule that is used up matches nothing. A decision by parts of two would let a hit pass.
func TestDecisionsAreOfOneSet(t *testing.T) {
	const text = "rules: [{name: a, match: {api: x}, key: [user], limit: %d/hour}, " +
		"{name: b, match: {api: x}, key: [user], limit: %d/hour}]"
	first := parse(t, fmt.Sprintf(text, 1, 1_000_000))
	second := parse(t, fmt.Sprintf(text, 1_000_000, 1))
	third := parse(t, "rules: [{name: b, match: {api: x}, key: [user], limit: 1/hour}, "+
		"{name: a, match: {api: y}, key: [user], limit: 1000000/hour}]")
	c, err := New(Options{Rules: first, Now: testNow})
	must(t, err)
	attrs := request("api=x user=k")
	require(t, atTime(noon, c).Check(attrs, 1).Allowed, "not even the first hit passes")
	var mixed, asked atomic.Int64
	whileReloading(t, c, atNoon, often(), func() bool { return asked.Load() > 1000 }, func() {
		asked.Add(1)
		if d := atTime(noon, c).Check(attrs, 1); d.Allowed || d.Limit != 1 {
			mixed.Add(1)
		}
	}, first, second, third, second)
	equal(t, mixed.Load(), 0, "decisions of no set")
}

// TestDecisionsAreOfOneLimit that goes up and down about what has passed: an allowed hit says the
// higher one, a denied hit the lower one.
func TestDecisionsAreOfOneLimit(t *testing.T) {
	high := parse(t, "rules: [{name: r, key: [user], limit: 1000000000/hour}]")
	low := parse(t, "rules: [{name: r, key: [user], limit: 10/hour}]")
	c, err := New(Options{Rules: high, Now: testNow})
	must(t, err)
	l := limiter(t, c, "r")
	hit(l, noon, "k", 10)
	var mixed, passed, denied atomic.Int64
	passed.Store(10)
	enough := func() bool { return passed.Load() > 100 && denied.Load() > 100 }
	whileReloading(t, c, atNoon, often()/4, enough, func() {
		d := atTime(noon, l).Check("k", 1)
		switch {
		case d.Allowed && d.Limit == 1_000_000_000 && d.Remaining > 900_000_000:
			passed.Add(1)
		case !d.Allowed && d.Limit == 10 && d.Remaining == 0:
			denied.Add(1)
		default:
			mixed.Add(1)
		}
	}, low, high)
	equal(t, mixed.Load(), 0, "decisions of neither limit")
	atTime(noon, c).Step()
	s := c.Stats().Rules[0]
	expect(t, s.Charged == passed.Load() && s.Allowed == passed.Load() && s.Denied == denied.Load(),
		"%+v, want %d passed and %d denied", s, passed.Load(), denied.Load())
}

// TestReloadDuringRun of everything about the rules, their order too, while requests wait for
// permits: nobody waits for ever, and nothing is lost.
func TestReloadDuringRun(t *testing.T) {
	const (
		a = "{name: a, key: [user], limit: 50/second}"
		b = "{name: b, key: [user], limit: 40/second, enforcement: strict}"
		d = "{name: d, key: [user], limit: 1000/hour, buckets: 60}"
	)
	var sets []*rules.Set
	for _, list := range []string{a + "," + b, b + "," + a, d + "," + b + "," + a, a, a + "," + d,
		"{name: b, key: [user], limit: 30/minute}, {name: a, key: [ip], limit: 5/second}", b} {
		sets = append(sets, parse(t, "rules: ["+list+"]"))
	}
	c, err := New(Options{Rules: sets[0], Link: new(tape), DrainTimeout: time.Millisecond})
	must(t, err)
	r := run(t, c)
	old := limiter(t, c, "a")
	var passed, calls atomic.Int64
	whileReloading(t, c, fleetstate.SystemTime, often()/10, func() bool { return calls.Load() > 1000 }, func() {
		i := calls.Add(1)
		attrs := request(fmt.Sprintf("user=k%d ip=i", i%5))
		switch i % 4 {
		case 0:
			if old.Check("k1", 1).Allowed {
				passed.Add(1)
			}
		case 1:
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			if r, _ := c.Wait(ctx, Request{Attributes: attrs}); r.Allowed {
				passed.Add(1)
			}
		default:
			if c.Check(attrs, 1).Allowed {
				passed.Add(1)
			}
		}
	}, sets...)
	r.stop()
	<-r.ended
	s := c.Stats()
	all := sumOf(s)
	sum := all.Pending + all.InFlight + all.Overflow + all.Answered + all.Lost
	expect(t, all.Charged >= passed.Load() && sum == all.Charged && s.Waiting == 0,
		"%d requests passed: %+v, %d wait", passed.Load(), all, s.Waiting)
	t.Logf("%d of %d requests passed", passed.Load(), calls.Load())
}
