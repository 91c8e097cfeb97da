package check

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
)

func parse(t testing.TB, text string) *rules.Set {
	t.Helper()
	set, err := rules.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// whileReloading calls f again and again from several goroutines, while the sets take turns, until that is enough.
func whileReloading(t *testing.T, c *Checker, swaps int, enough func() bool, f func(), sets ...*rules.Set) {
	t.Helper()
	var over atomic.Bool
	var asking sync.WaitGroup
	for range 4 {
		asking.Go(func() {
			for !over.Load() {
				f()
			}
		})
	}
	end := time.Now().Add(2 * time.Minute)
	for i := 0; i < swaps || !enough(); i++ {
		if time.Now().After(end) {
			t.Error("too tame: what is asked for has not happened")
			break
		}
		if err := c.SetRules(sets[i%len(sets)], uint64(i)); err != nil {
			t.Error(err)
		}
		if i%64 == 0 { // let the others have their turn
			runtime.Gosched()
		}
	}
	over.Store(true)
	asking.Wait()
}

// often is how many changes of rules are enough to meet every moment of a decision.
func often() int {
	if testing.Short() {
		return 2_000
	}
	return 20_000
}

// TestNoDecisionMixesTwoSets: in either set one of two rules is used up, each time another, and in a third the rule
// that is used up matches nothing. A decision that took a part of each would let a hit pass.
func TestNoDecisionMixesTwoSets(t *testing.T) {
	const text = "rules: [{name: a, match: {api: %s}, key: [user], limit: %s/hour}, {name: b, match: {api: %s}, key: [user], limit: %s/hour}]"
	first := parse(t, fmt.Sprintf(text, "x", "1", "x", "1000000"))
	second := parse(t, fmt.Sprintf(text, "x", "1000000", "x", "1"))
	third := parse(t, "rules: [{name: b, match: {api: x}, key: [user], limit: 1/hour}, {name: a, match: {api: y}, key: [user], limit: 1000000/hour}]")
	c, err := New(Options{Rules: first})
	if err != nil {
		t.Fatal(err)
	}
	attrs := identity.Attributes{{Name: "api", Value: "x"}, {Name: "user", Value: "k"}}
	if !c.Check(attrs, 1).Allowed {
		t.Fatal("not even the first hit passes")
	}
	var mixed, asked atomic.Int64
	whileReloading(t, c, often(), func() bool { return asked.Load() > 1000 }, func() {
		asked.Add(1)
		if d := c.Check(attrs, 1); d.Allowed || d.Limit != 1 {
			mixed.Add(1)
		}
	}, first, second, third, second)
	if n := mixed.Load(); n > 0 {
		t.Errorf("%d decisions are of no set", n)
	}
}

// TestNoDecisionMixesTwoLimits asks one limiter, whose limit goes up and down about what has passed: what passes says
// that it did so by the higher limit, and what does not, by the lower.
func TestNoDecisionMixesTwoLimits(t *testing.T) {
	high := parse(t, "rules: [{name: r, key: [user], limit: 1000000000/hour}]")
	low := parse(t, "rules: [{name: r, key: [user], limit: 10/hour}]")
	c, err := New(Options{Rules: high})
	if err != nil {
		t.Fatal(err)
	}
	l := limiter(t, c, "r")
	for range 10 {
		l.Check("k", 1)
	}
	var mixed, passed, denied atomic.Int64
	passed.Store(10)
	enough := func() bool { return passed.Load() > 100 && denied.Load() > 100 }
	whileReloading(t, c, often()/4, enough, func() {
		d := l.Check("k", 1)
		switch {
		case d.Allowed && d.Limit == 1000000000 && d.Remaining > 900_000_000:
			passed.Add(1)
		case !d.Allowed && d.Limit == 10 && d.Remaining == 0:
			denied.Add(1)
		default:
			mixed.Add(1)
		}
	}, low, high)
	if n := mixed.Load(); n > 0 {
		t.Errorf("%d decisions are of neither limit", n)
	}
	c.Step(ownTime())
	s := c.Stats().Rules[0]
	if s.Charged != passed.Load() || s.Allowed != passed.Load() || s.Denied != denied.Load() {
		t.Errorf("%+v, want %d passed and %d denied", s, passed.Load(), denied.Load())
	}
}

// TestReloadUnderWay changes everything about the rules, their order too, while Run is at work and requests wait for
// permits: nobody waits for ever, and nothing is lost.
func TestReloadUnderWay(t *testing.T) {
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
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	old := limiter(t, c, "a")
	var passed, calls atomic.Int64
	whileReloading(t, c, often()/10, func() bool { return calls.Load() > 1000 }, func() {
		i := calls.Add(1)
		attrs := identity.Attributes{{Name: "user", Value: fmt.Sprint("k", i%5)}, {Name: "ip", Value: "i"}}
		switch i % 4 {
		case 0:
			if old.Check("k1", 1).Allowed {
				passed.Add(1)
			}
		case 1:
			ctx, cancel := context.WithTimeout(ctx, time.Millisecond)
			defer cancel()
			if d, _ := c.Acquire(ctx, attrs, 1); d.Allowed {
				passed.Add(1)
			}
		default:
			if c.Check(attrs, 1).Allowed {
				passed.Add(1)
			}
		}
	}, sets...)
	stop()
	<-ended
	s := c.Stats()
	all := s.Removed
	for _, r := range s.Rules {
		all.add(r)
	}
	if all.Charged < passed.Load() || all.Pending+all.InFlight+all.Overflow+all.Answered+all.Lost != all.Charged || s.Waiting != 0 {
		t.Errorf("%d requests passed: %+v, %d wait", passed.Load(), all, s.Waiting)
	}
	t.Logf("%d of %d requests passed", passed.Load(), calls.Load())
}
