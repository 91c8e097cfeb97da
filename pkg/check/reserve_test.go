package check

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
)

// queueing is a leaky bucket of 10 a second with room for 5, tokens a token bucket of the same, in buckets of 10 ms.
func queueing() rules.Rule { return draining("r", rules.LeakyBucket, 10, 5, time.Second, 100) }
func tokening() rules.Rule { return draining("r", rules.TokenBucket, 10, 5, time.Second, 100) }

// A reservation tells how long the wait is, and holds its place.
func TestReserve(t *testing.T) {
	for _, tt := range []struct {
		why   string
		rule  rules.Rule
		costs []int64
		waits []time.Duration // -1: denied
		off   time.Duration   // they may be off by
	}{
		{"a queue, each behind the others", queueing(), []int64{1, 1, 2, 1, 1},
			[]time.Duration{0, 100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, -1}, 0},
		{"a queue has no room for so many", queueing(), []int64{6, 5, 1}, []time.Duration{-1, 0, -1}, 0},
		{"tokens at once, then as they come, until as many are owed as there can be", tokening(), []int64{6, 5, 1, 3, 1, 1},
			[]time.Duration{-1, 0, 100 * time.Millisecond, 400 * time.Millisecond, 500 * time.Millisecond, -1}, 10 * time.Millisecond},
		{"a window has no queue", rule("r", 2, time.Second, 10), []int64{1, 1, 1}, []time.Duration{0, 0, -1}, 0},
	} {
		l := limiter(t, newChecker(t, Options{}, tt.rule), "r")
		for i, cost := range tt.costs {
			r, d := l.ReserveAt(noon, "k", cost)
			want := tt.waits[i]
			if d.Allowed != (want >= 0) || d.Allowed && (r.Delay < want || r.Delay > want+tt.off) {
				t.Errorf("%s: hit %d: %+v, wait %v; want %v", tt.why, i, d, r.Delay, want)
			}
			if d.Allowed && d.RetryAfter != 0 || !d.Allowed && (d.RetryAfter <= 0 || r.Delay != 0 || r.CancelAt(noon)) {
				t.Errorf("%s: hit %d: %+v, wait %v", tt.why, i, d, r.Delay)
			}
		}
	}
}

// Own hits are in the queue to the nanosecond, wherever in a bucket they came.
func TestReservedTurnsAreExact(t *testing.T) {
	l := limiter(t, newChecker(t, Options{}, queueing()), "r")
	for i, step := range []struct{ at, wait int64 }{{103, 0}, {104, 99}, {205, 98}, {1007, 0}, {1008, 99}, {1009, 198}} {
		if r, d := l.ReserveAt(noon+step.at*ms, "k", 1); !d.Allowed || r.Delay != time.Duration(step.wait*ms) {
			t.Errorf("hit %d, after %d ms: %+v, a wait of %v, want %d ms", i, step.at, d, r.Delay, step.wait)
		}
	}
}

func TestReserveNoLongerThanTheRuleAllows(t *testing.T) {
	for _, r := range []rules.Rule{queueing(), tokening()} {
		r.OnLimit = rules.OnLimit{Queue: true, MaxWait: 150 * time.Millisecond}
		l := limiter(t, newChecker(t, Options{}, r), "r")
		l.ReserveAt(noon, "k", 5)
		at := noon + 20*ms // five tokens are owed until now, or five hits are in the queue
		if r.Algorithm == rules.LeakyBucket {
			at = noon + 400*ms
		}
		if _, d := l.ReserveAt(at, "k", 1); !d.Allowed {
			t.Errorf("%v: a wait of 100 ms: %+v", r.Algorithm, d)
		}
		if _, d := l.ReserveAt(at, "k", 1); d.Allowed || d.RetryAfter < 200*time.Millisecond-20*time.Millisecond {
			t.Errorf("%v: a wait of 200 ms: %+v", r.Algorithm, d)
		}
	}
}

// A cancelled reservation leaves its place to others, once, before its turn, and as long as it has not been reported.
func TestCancel(t *testing.T) {
	for _, r := range []rules.Rule{queueing(), tokening()} {
		f := newFleet(t, Options{}, r)
		l := limiter(t, f.Checker, "r")
		l.ReserveAt(noon, "k", 5)
		at := noon + 300*ms // two are left, or more
		one, d := l.ReserveAt(at, "k", 1)
		if !d.Allowed || one.Delay == 0 && r.Algorithm == rules.LeakyBucket {
			t.Fatalf("%+v, %v", d, one.Delay)
		}
		if one.Delay == 0 { // a token was there: its turn is now
			one, _ = l.ReserveAt(at, "k", 4)
		}
		before := one.Delay
		if !one.CancelAt(at) || one.CancelAt(at) {
			t.Error("not cancelled once")
		}
		again, d := l.ReserveAt(at, "k", 1)
		if !d.Allowed || again.Delay > before {
			t.Errorf("after it was cancelled: %+v, a wait of %v, was %v", d, again.Delay, before)
		}
		late, _ := l.ReserveAt(at, "k", 1)
		if late.CancelAt(at + int64(late.Delay)) {
			t.Error("cancelled when its turn had come")
		}
		told, _ := l.ReserveAt(at, "k", 1)
		f.Step(at)
		if told.CancelAt(at) {
			t.Error("cancelled after it had been reported")
		}
		s := f.Stats().Rules[0]
		if s.Cancelled < 1 || s.Charged != s.Answered+s.InFlight+s.Pending+s.Overflow+s.Lost+s.Cancelled || s.Pending != 0 {
			t.Errorf("%+v", s)
		}
		if got := int64(hits(f.last())["k"]); got != s.Charged-s.Cancelled {
			t.Errorf("%d hits reported of %+v", got, s)
		}
	}
}

// running runs a checker in a bubble of its own time, until f returns.
func running(t *testing.T, o Options, r rules.Rule, f func(t *testing.T, l *Limiter)) {
	synctest.Test(t, func(t *testing.T) {
		c := newChecker(t, o, r)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Run(ctx) }()
		time.Sleep(time.Millisecond) // to the nearest of Run's looks at the clock
		f(t, limiter(t, c, "r"))
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Callers of Wait come through one after the other, at the rate of the rule, whatever the algorithm.
func TestWaitersComeThroughAtTheRate(t *testing.T) {
	log := rule("r", 10, time.Second, 100)
	log.Algorithm = rules.SlidingLog
	burst := tokening()
	burst.Burst = 10
	deep := queueing()
	deep.Burst = 30
	for _, r := range []rules.Rule{deep, burst, log, rule("r", 10, time.Second, 1)} {
		running(t, Options{}, r, func(t *testing.T, l *Limiter) {
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
			if n := l.checker.Stats().Waiting; n != 0 || len(l.queues.byKey) != 0 {
				t.Errorf("%v: %d wait still", r.Algorithm, n)
			}
		})
	}
}

func TestWaitGivesUp(t *testing.T) {
	full := func(l *Limiter) {
		for range 5 {
			l.Reserve("k", 1)
		}
	}
	running(t, Options{}, tokening(), func(t *testing.T, l *Limiter) { // with the context, before its turn; the hit is given back
		l.Check("k", 5)
		l.Reserve("k", 3)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(20*time.Millisecond, cancel)
		d, err := l.Wait(ctx, "k", 1)
		if d.Allowed || !errors.Is(err, context.Canceled) || d.RetryAfter <= 0 || l.checker.Stats().Rules[0].Cancelled != 1 {
			t.Errorf("%+v, %v, %+v", d, err, l.checker.Stats().Rules[0])
		}
		ctx, cancel = context.WithTimeout(t.Context(), 10*time.Millisecond) // it would not last
		defer cancel()
		begun := time.Now()
		if d, err := l.Wait(ctx, "k", 1); d.Allowed || err != nil || time.Since(begun) != 0 {
			t.Errorf("%+v, %v after %v", d, err, time.Since(begun))
		}
		if d, err := l.Wait(t.Context(), "k", 6); d.Allowed || err != nil || d.RetryAfter != Never {
			t.Errorf("what never fits: %+v, %v", d, err)
		}
	})
	running(t, Options{}, queueing(), func(t *testing.T, l *Limiter) { // a full queue
		full(l)
		begun := time.Now()
		if d, err := l.Wait(t.Context(), "k", 1); d.Allowed || err != nil || time.Since(begun) != 0 {
			t.Errorf("%+v, %v after %v", d, err, time.Since(begun))
		}
	})
	running(t, Options{MaxWaiting: 1}, queueing(), func(t *testing.T, l *Limiter) { // too many wait
		full(l)
		l.Reserve("other", 1)
		go l.Wait(t.Context(), "other", 1)
		synctest.Wait()
		if d, err := l.Wait(t.Context(), "third", 1); !d.Allowed || err != nil {
			t.Errorf("one that need not wait: %+v, %v", d, err)
		}
		if d, err := l.Wait(t.Context(), "third", 1); d.Allowed || err != nil {
			t.Errorf("one too many: %+v, %v", d, err)
		}
	})
	r := rule("r", 1, time.Second, 10)
	r.OnLimit = rules.OnLimit{Queue: true, MaxWait: time.Second, MaxDepth: 1}
	running(t, Options{}, r, func(t *testing.T, l *Limiter) { // the rule's own bounds
		l.Check("k", 1)
		if d, err := l.Wait(t.Context(), "k", 1); d.Allowed || err != nil {
			t.Errorf("longer than MaxWait: %+v, %v", d, err)
		}
		time.Sleep(300 * time.Millisecond)
		go l.Wait(t.Context(), "k", 1)
		synctest.Wait()
		if d, err := l.Wait(t.Context(), "k", 1); d.Allowed || err != nil {
			t.Errorf("the second in line: %+v, %v", d, err)
		}
		time.Sleep(2 * time.Second)
	})
}

// TestWaitByAllRules waits for the rule that denies, if that lets callers wait, and for no longer than it says.
func TestWaitByAllRules(t *testing.T) {
	slow, quick, strictest := rule("slow", 3, time.Hour, 1), rule("quick", 1, 100*time.Millisecond, 1), rule("no", 2, time.Hour, 1)
	quick.OnLimit = rules.OnLimit{Queue: true, MaxWait: time.Second, MaxDepth: 1}
	strictest.Match = []rules.Condition{{Name: "api", Value: "x"}}
	synctest.Test(t, func(t *testing.T) {
		c := newChecker(t, Options{}, slow, quick, strictest)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		synctest.Wait()
		attrs := identity.Attributes{{Name: "user", Value: "kristie"}}
		c.Check(attrs, 1)
		begun := time.Now()
		if d, err := c.Wait(ctx, attrs, 1); !d.Allowed || err != nil || time.Since(begun) == 0 || time.Since(begun) > 250*time.Millisecond {
			t.Errorf("%+v, %v after %v", d, err, time.Since(begun))
		}
		waiting := make(chan Decision)
		go func() {
			d, _ := c.Wait(ctx, attrs, 1)
			waiting <- d
		}()
		synctest.Wait()
		if d, err := c.Wait(ctx, attrs, 1); d.Allowed || err != nil || d.Rule != "quick" || !d.Queue {
			t.Errorf("the second in line: %+v, %v", d, err)
		}
		if d := <-waiting; !d.Allowed {
			t.Errorf("the first in line: %+v", d)
		}
		if d, err := c.Wait(ctx, attrs, 1); d.Allowed || err != nil || d.Rule != "slow" {
			t.Errorf("a rule that nobody may wait for: %+v, %v", d, err)
		}
		short, cancel := context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
		other := identity.Attributes{{Name: "user", Value: "other"}}
		c.Check(other, 1)
		if d, err := c.Wait(short, other, 1); d.Allowed || err != nil {
			t.Errorf("for longer than the context lasts: %+v, %v", d, err)
		}
		go func() {
			d, _ := c.Wait(t.Context(), other, 1)
			waiting <- d
		}()
		synctest.Wait()
		stop()
		if d := <-waiting; d.Allowed {
			t.Error("allowed when Run ended")
		}
		<-ended
		if n := c.Stats().Waiting; n != 0 {
			t.Errorf("%d wait still", n)
		}
	})
}

// Who waits is not denied yet, so one call counts once where denied hits count: when it passes, or gives up.
func TestWaitCountsDeniedHitsOnce(t *testing.T) {
	r := rule("r", 5, time.Second, 1)
	r.Count = rules.All
	r.OnLimit = rules.OnLimit{Queue: true, MaxWait: 3 * time.Second}
	running(t, Options{}, r, func(t *testing.T, l *Limiter) {
		l.Check("k", 5)
		if d, err := l.Wait(t.Context(), "k", 1); !d.Allowed || err != nil {
			t.Errorf("there would be room in time: %+v, %v", d, err)
		}
		if s := l.checker.Stats().Rules[0]; s.Charged != 6 || s.Denied != 0 {
			t.Errorf("charged %d, denied %d", s.Charged, s.Denied)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if d, err := l.Wait(ctx, "k", 5); d.Allowed || err != nil || d.RetryAfter <= 0 {
			t.Errorf("there is no time: %+v, %v", d, err)
		}
		if d, err := l.Wait(t.Context(), "k", 6); d.Allowed || err != nil || d.RetryAfter != Never {
			t.Errorf("it never fits: %+v, %v", d, err)
		}
		if s := l.checker.Stats().Rules[0]; s.Charged != 6+5+6 || s.Denied != 2 {
			t.Errorf("charged %d, denied %d", s.Charged, s.Denied)
		}
	})
}

// Who waits under an old limit does not sleep through a new one.
func TestWaitHearsOfNewRules(t *testing.T) {
	running(t, Options{}, rule("r", 1, time.Hour, 1), func(t *testing.T, l *Limiter) {
		l.Check("k", 1)
		begun := time.Now()
		time.AfterFunc(time.Second, func() {
			set, err := rules.NewSet(rule("r", 100, time.Hour, 1))
			if err == nil {
				err = l.checker.SetRules(set, 1)
			}
			if err != nil {
				t.Error(err)
			}
		})
		d, err := l.Wait(t.Context(), "k", 1)
		if waited := time.Since(begun); !d.Allowed || err != nil || waited != time.Second {
			t.Errorf("%+v, %v after %v", d, err, waited)
		}
	})
}

// When Run ends, who waits is denied.
func TestWaitEndsWithRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChecker(t, Options{}, queueing())
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Run(ctx) }()
		l := limiter(t, c, "r")
		l.Reserve("k", 4)
		waited := make(chan Decision)
		go func() {
			d, _ := l.Wait(t.Context(), "k", 1)
			waited <- d
		}()
		synctest.Wait()
		stop()
		if d := <-waited; d.Allowed {
			t.Errorf("%+v", d)
		}
		<-done
	})
}
