package check

import (
	"context"
	"github.com/offpath-io/offpath/pkg/check/internal/fleetstate"
	"testing"
	"testing/synctest"
	"time"

	"github.com/offpath-io/offpath/pkg/rules"
)

// inRun runs a checker in a bubble of virtual time until f returns.
func inRun(t *testing.T, o Options, f func(t *testing.T, c *Checker, l *Limiter), list ...rules.Rule) {
	synctest.Test(t, func(t *testing.T) {
		c, l := checkerAndLimiter(t, o, list...)
		r := run(t, c)
		time.Sleep(time.Millisecond) // to the nearest of Run's looks at the clock
		f(t, c, l)
		r.end(nil)
		synctest.Wait()
		equal(t, c.Stats().Waiting, 0, "callers that still wait")
	})
}

// beginWait begins to wait in line.
func beginWait(ctx context.Context, l *Limiter, key string, cost int64) <-chan outcome {
	return begin(ctx, l.checker(), Request{Limiter: l, Key: key, Cost: cost, Mode: Reserve})
}

// TestWaitersPassAtTheRate of the rule, one after the other, whatever the algorithm.
func TestWaitersPassAtTheRate(t *testing.T) {
	log := rule("r", 10, time.Second, 100)
	log.Algorithm = rules.SlidingLog
	burst, deep := tokening(), queueing()
	burst.Burst, deep.Burst = 10, 30
	for _, r := range []rules.Rule{deep, burst, log, rule("r", 10, time.Second, 1)} {
		inRun(t, Options{}, func(t *testing.T, _ *Checker, l *Limiter) {
			begun := time.Now()
			passed := make(chan time.Duration, 20)
			for range 20 {
				go func() {
					d, err := l.checker().Wait(t.Context(), Request{Limiter: l, Key: "k", Mode: Reserve})
					expect(t, d.Allowed && err == nil, "%v: %+v, %v", r.Algorithm, d, err)
					passed <- time.Since(begun)
				}()
			}
			at, last := time.Duration(0), time.Duration(0)
			for i := range 20 {
				last, at = at, <-passed
				expect(t, r.Algorithm != rules.LeakyBucket || i <= 0 || at-last >= 90*time.Millisecond, "%v after %v", at, last)
			}
			expect(t, at >= 900*time.Millisecond && at <= 2100*time.Millisecond && l.checker().lines.Len() == 0,
				"%v: the last of 20 passed after %v; lines: %d", r.Algorithm, at, l.checker().lines.Len())
		}, r)
	}
}

// TestWaitEndsWithItsContext: the hit is given back, and no wait begins that the context cannot
// last.
func TestWaitEndsWithItsContext(t *testing.T) {
	inRun(t, Options{}, func(t *testing.T, c *Checker, l *Limiter) {
		l.Check("k", 5)
		l.tryReserve("k", 3)
		ctx, cancel := context.WithCancel(t.Context())
		waiting := beginWait(ctx, l, "k", 1)
		cancel()
		d := wantOutcome(t, waiting, "fails", "cancelled")
		expect(t, d.RetryAfter > 0 && c.Stats().Rules[0].Cancelled == 1, "%+v, %+v", d, c.Stats().Rules[0])
		ctx, cancel = context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		wantOutcome(t, beginWait(ctx, l, "k", 1), "denied", "a context too short")
		d = wantOutcome(t, beginWait(t.Context(), l, "k", 6), "denied", "never fits")
		expect(t, d.RetryAfter == Never, "%+v", d)
	}, tokening())
}

// TestWaitersInLineAreBounded by the room of a queue, by Options, and by the rule.
func TestWaitersInLineAreBounded(t *testing.T) {
	inRun(t, Options{}, func(t *testing.T, _ *Checker, l *Limiter) {
		for range 5 {
			l.tryReserve("k", 1)
		}
		wantOutcome(t, beginWait(t.Context(), l, "k", 1), "denied", "a full queue")
	}, queueing())
	inRun(t, Options{MaxWaiting: 1}, func(t *testing.T, _ *Checker, l *Limiter) {
		l.tryReserve("k", 1)
		wantOutcome(t, beginWait(t.Context(), l, "k", 1), "waits", "the only one")
		wantOutcome(t, beginWait(t.Context(), l, "other", 1), "passes", "one that need not wait")
		wantOutcome(t, beginWait(t.Context(), l, "other", 1), "denied", "one too many")
	}, queueing())
	r := rule("r", 1, time.Second, 10)
	r.OnLimit = rules.OnLimit{Queue: true, MaxWait: time.Second, MaxDepth: 1}
	inRun(t, Options{}, func(t *testing.T, _ *Checker, l *Limiter) {
		l.Check("k", 1)
		wantOutcome(t, beginWait(t.Context(), l, "k", 1), "denied", "longer than MaxWait")
		time.Sleep(300 * time.Millisecond)
		wantOutcome(t, beginWait(t.Context(), l, "k", 1), "waits", "the only one")
		wantOutcome(t, beginWait(t.Context(), l, "k", 1), "denied", "beyond MaxDepth")
	}, r)
}

// TestWaitByAllRules waits for the rule that denies, if that lets callers wait, and for no longer
// than it says.
func TestWaitByAllRules(t *testing.T) {
	quick := rule("quick", 1, 100*time.Millisecond, 1)
	quick.OnLimit = rules.OnLimit{Queue: true, MaxWait: time.Second, MaxDepth: 1}
	inRun(t, Options{}, func(t *testing.T, c *Checker, _ *Limiter) {
		waitBy := func(ctx context.Context, name string) <-chan outcome {
			return begin(ctx, c, Request{Attributes: user(name), Cost: 1, Mode: Reserve})
		}
		c.Check(user("kristie"), 1)
		for range 2 {
			begun, first := time.Now(), waitBy(t.Context(), "kristie")
			wantOutcome(t, first, "waits", "the first in line")
			second := wantOutcome(t, waitBy(t.Context(), "kristie"), "denied", "the second")
			expect(t, second.Rule == "quick" && second.Queue, "the second in line: %+v", second)
			o := <-first
			expect(t, o.d.Allowed && o.err == nil && time.Since(begun) <= 250*time.Millisecond,
				"the first in line: %+v after %v", o, time.Since(begun))
		}
		d := wantOutcome(t, waitBy(t.Context(), "kristie"), "denied", "a rule without a queue")
		expect(t, d.Rule == "slow", "a rule without a queue: %+v", d)
		short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		c.Check(user("other"), 1)
		wantOutcome(t, waitBy(short, "other"), "denied", "for longer than the context lasts")
	}, rule("slow", 3, time.Hour, 1), quick)
}

// TestWaitIsDeniedWhenRunEnds, in turn or not.
func TestWaitIsDeniedWhenRunEnds(t *testing.T) {
	windowed := rule("r", 1, time.Minute, 1)
	windowed.OnLimit = rules.OnLimit{Queue: true, MaxWait: time.Hour}
	for _, r := range []rules.Rule{windowed, queueing()} {
		inRun(t, Options{}, func(t *testing.T, c *Checker, l *Limiter) {
			l.tryReserve("k", 1)
			byRule := beginWait(context.Background(), l, "k", 1)
			wantOutcome(t, byRule, "waits", "by the rule")
			byAll := begin(context.Background(), c, Request{Attributes: user("k"), Cost: 1, Mode: Reserve})
			t.Cleanup(func() { // after Run
				wantOutcome(t, byRule, "denied", "by the rule")
				wantOutcome(t, byAll, "denied", "by all rules")
			})
		}, r)
	}
}

// TestWaitCountsDeniedHitsOnce: a hit that waits is not denied yet, so where denied hits count, a
// call counts once: when it passes, or gives up. One that never fits is denied at once, also where
// others wait.
func TestWaitCountsDeniedHitsOnce(t *testing.T) {
	r := rule("r", 5, time.Second, 1)
	r.Count = rules.All
	r.OnLimit = rules.OnLimit{Queue: true, MaxWait: 3 * time.Second}
	inRun(t, Options{}, func(t *testing.T, c *Checker, l *Limiter) {
		counts := func(charged, denied int64) {
			t.Helper()
			s := c.Stats().Rules[0]
			expect(t, s.Charged == charged && s.Denied == denied,
				"charged %d, denied %d, want %d and %d", s.Charged, s.Denied, charged, denied)
		}
		l.Check("k", 5)
		waiting := beginWait(t.Context(), l, "k", 1)
		d := wantOutcome(t, beginWait(t.Context(), l, "k", 6), "denied", "it never fits")
		expect(t, d.RetryAfter == Never, "it never fits: %+v", d)
		counts(5+6, 1)
		o := <-waiting
		expect(t, o.d.Allowed && o.err == nil, "in line: %+v", o)
		counts(5+6+1, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		d = wantOutcome(t, beginWait(ctx, l, "k", 5), "denied", "no time")
		expect(t, d.RetryAfter > 0, "%+v", d)
		counts(5+6+1+5, 2)
	}, r)
}

// TestWaitHearsOfNewRules: a caller that waits under an old limit does not sleep through a new one.
func TestWaitHearsOfNewRules(t *testing.T) {
	inRun(t, Options{}, func(t *testing.T, c *Checker, l *Limiter) {
		l.Check("k", 1)
		begun := time.Now()
		time.AfterFunc(time.Second, func() { reload(t, c, fleetstate.SystemTime(), rule("r", 100, time.Hour, 1)) })
		d, err := c.Wait(t.Context(), Request{Limiter: l, Key: "k", Mode: Reserve})
		waited := time.Since(begun)
		expect(t, d.Allowed && err == nil && waited == time.Second, "%+v, %v after %v", d, err, waited)
	}, rule("r", 1, time.Hour, 1))
}

// TestWaitersAreServedInOrder: who comes first passes first, by each algorithm of windows, by key
// and by attributes.
func TestWaitersAreServedInOrder(t *testing.T) {
	const callers = 40
	fixed, log := rule("r", 5, 100*time.Millisecond, 0), rule("r", 5, 100*time.Millisecond, 10)
	fixed.Algorithm, log.Algorithm = rules.FixedWindow, rules.SlidingLog
	for _, r := range []rules.Rule{rule("r", 5, 100*time.Millisecond, 1), rule("r", 5, 100*time.Millisecond, 10), fixed, log} {
		r.OnLimit = rules.OnLimit{Queue: true, MaxWait: time.Minute}
		inRun(t, Options{}, func(t *testing.T, c *Checker, l *Limiter) {
			type turn struct {
				caller int
				at     time.Time // those of one instant may be told in any order
			}
			passed := make(chan turn, callers)
			for i := range callers {
				go func() {
					of := Request{Limiter: l, Key: "a", Mode: Reserve}
					if i%2 == 0 {
						of = Request{Attributes: user("a"), Mode: Reserve}
					}
					d, err := c.Wait(t.Context(), of)
					expect(t, d.Allowed && err == nil, "%v: caller %d: %+v, %v", r.Algorithm, i, d, err)
					passed <- turn{i, time.Now()}
				}()
				time.Sleep(7 * time.Millisecond)
			}
			var order []turn
			out := 0
			for range callers {
				this := <-passed
				for _, before := range order {
					if before.caller > this.caller && before.at.Before(this.at) {
						out++
					}
				}
				order = append(order, this)
			}
			equal(t, out, 0, "%v in %d: pairs of %d out of order: %v", r.Algorithm, r.Window.Buckets, callers*(callers-1)/2, order)
		}, r)
	}
}

// TestLateTurnsAreDenied when MaxWait is over, and not passed before others.
func TestLateTurnsAreDenied(t *testing.T) {
	r := rule("r", 1, 100*time.Millisecond, 0)
	r.Algorithm, r.OnLimit = rules.FixedWindow, rules.OnLimit{Queue: true, MaxWait: 250 * time.Millisecond}
	inRun(t, Options{}, func(t *testing.T, c *Checker, l *Limiter) {
		l.Check("a", 1)
		var waiting []<-chan outcome
		for range 2 {
			waiting = append(waiting, beginWait(t.Context(), l, "a", 1),
				begin(t.Context(), c, Request{Attributes: user("a"), Cost: 1, Mode: Reserve}))
		}
		time.Sleep(250 * time.Millisecond)
		synctest.Wait()
		for i, want := range []string{"passes", "passes", "denied", "denied"} {
			d := wantOutcome(t, waiting[i], want, "in line")
			expect(t, d.Allowed || d.RetryAfter > 0, "%+v", d)
		}
	}, r)
}

// TestNobodyWaitsBehindOthersLimits: of one key, who has more of the limit, a limit of their own,
// or none at all, passes those who wait.
func TestNobodyWaitsBehindOthersLimits(t *testing.T) {
	set := parse(t, `
rules:
  - {name: r, key: [org], limit: 10/minute, on_limit: queue, max_wait: 2m, allow: {from: [inside]},
     priority: {by: tier, shares: {low: 20%, default: 100%}}, overrides: [{match: {plan: paid}, limit: 100/minute}]}
`)
	synctest.Test(t, func(t *testing.T) {
		c := checkerOf(t, Options{}, set)
		r := run(t, c)
		time.Sleep(time.Millisecond)
		c.try(Record, request("org=a tier=low"), 2)
		low := begin(t.Context(), c, Request{Attributes: request("org=a tier=low"), Cost: 1, Mode: Reserve})
		synctest.Wait()
		for _, who := range []string{"org=a", "org=a from=inside", "org=a plan=paid"} {
			begun := time.Now()
			d, err := c.Wait(t.Context(), Request{Attributes: request(who), Mode: Reserve})
			expect(t, d.Allowed && err == nil && time.Since(begun) == 0, "%s: %+v, %v after %v", who, d, err, time.Since(begun))
		}
		time.Sleep(2 * time.Minute)
		wantOutcome(t, low, "passes", "it had waited")
		r.end(nil)
		synctest.Wait()
	})
}

// TestWaitByTwoRules: a caller whom several rules limit passes when its turn has come, not before.
func TestWaitByTwoRules(t *testing.T) {
	for _, algorithm := range []string{"token_bucket, burst: 1", "leaky_bucket, burst: 5"} {
		synctest.Test(t, func(t *testing.T) {
			c := ofYAML(t, Options{}, "rules: [{name: a, key: [user], limit: 10/second, algorithm: "+algorithm+
				", on_limit: queue, max_wait: 5s}, {name: b, key: [user], limit: 1000/second}]")
			r := run(t, c)
			begun := time.Now()
			for i := range 5 {
				res, err := c.Wait(t.Context(), Request{Attributes: user("k"), Mode: Reserve})
				expect(t, err == nil && res.Allowed && res.Delay <= 0, "%s, caller %d: %+v, %v", algorithm, i, res, err)
			}
			took := time.Since(begun)
			expect(t, took >= 400*time.Millisecond, "%s: 5 callers at 10/s passed within %v", algorithm, took)
			r.end(nil)
		})
	}
}

// TestSenselessRequests charge nothing.
func TestSenselessRequests(t *testing.T) {
	const text = "rules: [{name: a, key: [user], limit: 10/hour}]"
	c, other := ofYAML(t, Options{}, text), ofYAML(t, Options{}, text)
	l := limiter(t, c, "a")
	for _, mode := range []Mode{Standing + 1, 99} {
		c.Do(Request{Attributes: user("k"), Mode: mode})
		c.Do(Request{Limiter: l, Key: "k", Mode: mode})
	}
	res := c.Do(Request{Key: "k"})
	expect(t, res.Err != nil && !res.Allowed, "without a limiter: %+v", res)
	res = other.Do(Request{Limiter: l, Key: "k"})
	expect(t, res.Err != nil && !res.Allowed, "with the limiter of another checker: %+v", res)
	for _, mode := range []Mode{Charge, Reserve, Peek} {
		for _, r := range []Request{{Key: "k", Mode: mode}, {Limiter: l, Key: "k", Mode: mode}} {
			res, err := other.Wait(t.Context(), r)
			expect(t, err != nil && err == res.Err && !res.Allowed, "a wait in mode %d: %+v, %v", mode, res, err)
		}
	}
	d := c.Do(Request{Limiter: l, Key: "k", Mode: Peek})
	expect(t, d.Remaining == 10, "%d remain of 10", d.Remaining)
}
