package check

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/offpath-io/offpath/pkg/rules"
)

// inRun runs a checker in a bubble of virtual time until f returns.
func inRun(t *testing.T, o Options, f func(t *testing.T, c *Checker, l *Limiter), list ...rules.Rule) {
	synctest.Test(t, func(t *testing.T) {
		c, l := checkerAndLimiter(t, o, list...)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Run(ctx) }()
		time.Sleep(time.Millisecond) // to the nearest of Run's looks at the clock
		f(t, c, l)
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if n := c.Stats().Waiting; n != 0 {
			t.Errorf("%d wait still", n)
		}
	})
}

// beginWait begins a Wait of key k.
func beginWait(t *testing.T, l *Limiter) <-chan outcome {
	return begin(func() (Decision, error) { return l.Wait(t.Context(), "k", 1) })
}

// mustDeny calls f, which has to deny without an error.
func mustDeny(t *testing.T, why string, f func() (Decision, error)) Decision {
	t.Helper()
	d, err := f()
	if d.Allowed || err != nil {
		t.Errorf("%s: %+v, %v", why, d, err)
	}
	return d
}

// TestWaitersPassAtTheRate of the rule, one after the other, whatever the algorithm.
func TestWaitersPassAtTheRate(t *testing.T) {
	log := rule("r", 10, time.Second, 100)
	log.Algorithm = rules.SlidingLog
	burst, deep := tokening(), queueing()
	burst.Burst, deep.Burst = 10, 30
	for _, r := range []rules.Rule{deep, burst, log, rule("r", 10, time.Second, 1)} {
		inRun(t, Options{}, func(t *testing.T, c *Checker, l *Limiter) {
			begun := time.Now()
			var mu sync.Mutex
			var passed []time.Duration
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() {
					d, err := l.Wait(t.Context(), "k", 1)
					mu.Lock()
					defer mu.Unlock()
					if !d.Allowed || err != nil {
						t.Errorf("%v: %+v, %v", r.Algorithm, d, err)
					}
					passed = append(passed, time.Since(begun))
				})
			}
			all.Wait()
			last := passed[len(passed)-1]
			if last < 900*time.Millisecond || last > 2100*time.Millisecond {
				t.Errorf("%v: the last of 20 passed after %v", r.Algorithm, last)
			}
			for i := range passed {
				if r.Algorithm == rules.LeakyBucket && i > 0 && passed[i]-passed[i-1] < 90*time.Millisecond {
					t.Errorf("%v after %v", passed[i], passed[i-1])
				}
			}
			if len(l.queues.byKey) != 0 {
				t.Errorf("%v: some wait still", r.Algorithm)
			}
		}, r)
	}
}

// TestWaitEndsWithItsContext: the hit is given back, and no wait begins that the context cannot last.
func TestWaitEndsWithItsContext(t *testing.T) {
	inRun(t, Options{}, func(t *testing.T, c *Checker, l *Limiter) {
		l.Check("k", 5)
		l.Reserve("k", 3)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(20*time.Millisecond, cancel)
		d, err := l.Wait(ctx, "k", 1)
		if d.Allowed || !errors.Is(err, context.Canceled) || d.RetryAfter <= 0 || c.Stats().Rules[0].Cancelled != 1 {
			t.Errorf("%+v, %v, %+v", d, err, c.Stats().Rules[0])
		}
		ctx, cancel = context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		begun := time.Now()
		mustDeny(t, "a context too short", func() (Decision, error) { return l.Wait(ctx, "k", 1) })
		d = mustDeny(t, "what never fits", func() (Decision, error) { return l.Wait(t.Context(), "k", 6) })
		if time.Since(begun) != 0 || d.RetryAfter != Never {
			t.Errorf("%+v after %v", d, time.Since(begun))
		}
	}, tokening())
}

// TestWaitersInLineAreBounded by the room of a queue, by Options, and by the rule.
func TestWaitersInLineAreBounded(t *testing.T) {
	full := func(l *Limiter) {
		for range 5 {
			l.Reserve("k", 1)
		}
	}
	inRun(t, Options{}, func(t *testing.T, c *Checker, l *Limiter) {
		full(l)
		begun := time.Now()
		mustDeny(t, "a full queue", func() (Decision, error) { return l.Wait(t.Context(), "k", 1) })
		if time.Since(begun) != 0 {
			t.Errorf("denied after %v", time.Since(begun))
		}
	}, queueing())
	inRun(t, Options{MaxWaiting: 1}, func(t *testing.T, c *Checker, l *Limiter) {
		l.Reserve("k", 1)
		beginWait(t, l)
		third := func() (Decision, error) { return l.Wait(t.Context(), "third", 1) }
		if d, err := third(); !d.Allowed || err != nil {
			t.Errorf("one that need not wait: %+v, %v", d, err)
		}
		mustDeny(t, "one too many", third)
	}, queueing())
	r := rule("r", 1, time.Second, 10)
	r.OnLimit = rules.OnLimit{Queue: true, MaxWait: time.Second, MaxDepth: 1}
	inRun(t, Options{}, func(t *testing.T, c *Checker, l *Limiter) {
		l.Check("k", 1)
		mustDeny(t, "longer than MaxWait", func() (Decision, error) { return l.Wait(t.Context(), "k", 1) })
		time.Sleep(300 * time.Millisecond)
		beginWait(t, l)
		mustDeny(t, "beyond MaxDepth", func() (Decision, error) { return l.Wait(t.Context(), "k", 1) })
	}, r)
}

// TestWaitByAllRules waits for the rule that denies, if that lets callers wait, and for no longer than
// it says.
func TestWaitByAllRules(t *testing.T) {
	quick := rule("quick", 1, 100*time.Millisecond, 1)
	quick.OnLimit = rules.OnLimit{Queue: true, MaxWait: time.Second, MaxDepth: 1}
	inRun(t, Options{}, func(t *testing.T, c *Checker, _ *Limiter) {
		waitBy := func(ctx context.Context, name string) func() (Decision, error) {
			return func() (Decision, error) { return c.Wait(ctx, user(name), 1) }
		}
		c.Check(user("kristie"), 1)
		begun := time.Now()
		d, err := waitBy(t.Context(), "kristie")()
		if waited := time.Since(begun); !d.Allowed || err != nil || waited == 0 || waited > 250*time.Millisecond {
			t.Errorf("%+v, %v after %v", d, err, waited)
		}
		first := begin(waitBy(t.Context(), "kristie"))
		if d := mustDeny(t, "the second in line", waitBy(t.Context(), "kristie")); d.Rule != "quick" || !d.Queue {
			t.Errorf("the second in line: %+v", d)
		}
		if o := <-first; !o.d.Allowed || o.err != nil {
			t.Errorf("the first in line: %+v", o)
		}
		if d := mustDeny(t, "a rule without a queue", waitBy(t.Context(), "kristie")); d.Rule != "slow" {
			t.Errorf("a rule without a queue: %+v", d)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		c.Check(user("other"), 1)
		mustDeny(t, "for longer than the context lasts", waitBy(short, "other"))
	}, rule("slow", 3, time.Hour, 1), quick)
}

// TestWaitIsDeniedWhenRunEnds, in turn or not.
func TestWaitIsDeniedWhenRunEnds(t *testing.T) {
	windowed, queue := rule("r", 1, time.Minute, 1), queueing()
	windowed.OnLimit = rules.OnLimit{Queue: true, MaxWait: time.Hour}
	for _, test := range []struct {
		why  string
		rule rules.Rule
		wait func(c *Checker, l *Limiter) (Decision, error)
	}{
		{"in a queue", queue, func(_ *Checker, l *Limiter) (Decision, error) { return l.Wait(context.Background(), "k", 1) }},
		{"for a window", windowed, func(_ *Checker, l *Limiter) (Decision, error) { return l.Wait(context.Background(), "k", 1) }},
		{"by all rules", windowed, func(c *Checker, _ *Limiter) (Decision, error) { return c.Wait(context.Background(), user("k"), 1) }},
	} {
		inRun(t, Options{}, func(t *testing.T, c *Checker, l *Limiter) {
			l.Reserve("k", 1)
			waiting := begin(func() (Decision, error) { return test.wait(c, l) })
			expect(t, waiting, "waits", test.why)
			t.Cleanup(func() { expect(t, waiting, "denied", test.why) }) // after Run
		}, test.rule)
	}
}

// TestWaitCountsDeniedHitsOnce: a hit that waits is not denied yet, so where denied hits count, a call
// counts once: when it passes, or gives up.
func TestWaitCountsDeniedHitsOnce(t *testing.T) {
	r := rule("r", 5, time.Second, 1)
	r.Count = rules.All
	r.OnLimit = rules.OnLimit{Queue: true, MaxWait: 3 * time.Second}
	inRun(t, Options{}, func(t *testing.T, c *Checker, l *Limiter) {
		l.Check("k", 5)
		if o := <-beginWait(t, l); !o.d.Allowed || o.err != nil {
			t.Errorf("there would be room in time: %+v", o)
		}
		if s := c.Stats().Rules[0]; s.Charged != 6 || s.Denied != 0 {
			t.Errorf("charged %d, denied %d", s.Charged, s.Denied)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		d := mustDeny(t, "no time", func() (Decision, error) { return l.Wait(ctx, "k", 5) })
		never := mustDeny(t, "it never fits", func() (Decision, error) { return l.Wait(t.Context(), "k", 6) })
		if d.RetryAfter <= 0 || never.RetryAfter != Never {
			t.Errorf("%+v, %+v", d, never)
		}
		if s := c.Stats().Rules[0]; s.Charged != 6+5+6 || s.Denied != 2 {
			t.Errorf("charged %d, denied %d", s.Charged, s.Denied)
		}
	}, r)
}

// TestWaitHearsOfNewRules: a caller that waits under an old limit does not sleep through a new one.
func TestWaitHearsOfNewRules(t *testing.T) {
	inRun(t, Options{}, func(t *testing.T, c *Checker, l *Limiter) {
		l.Check("k", 1)
		begun := time.Now()
		time.AfterFunc(time.Second, func() { reload(t, c, ownTime(), rule("r", 100, time.Hour, 1)) })
		d, err := l.Wait(t.Context(), "k", 1)
		if waited := time.Since(begun); !d.Allowed || err != nil || waited != time.Second {
			t.Errorf("%+v, %v after %v", d, err, waited)
		}
	}, rule("r", 1, time.Hour, 1))
}
