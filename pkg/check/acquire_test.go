package check

import (
	"context"
	"errors"
	"fmt"
	"github.com/offpath-io/offpath/pkg/check/internal/fleetstate"
	"testing"
	"testing/synctest"
	"time"

	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
)

// TestAcquireServesInOrder: no hit overtakes, neither a cheaper one nor a Check when permits come.
func TestAcquireServesInOrder(t *testing.T) {
	inStrictBubble(t, 100, func(t *testing.T, f *fleet, l *Limiter) {
		var waiting []<-chan outcome
		for _, cost := range []int64{1, 5, 1, 1} {
			waiting = append(waiting, acquire(t.Context(), l, cost))
		}
		f.settled()
		granted := int64(0)
		for _, step := range []struct{ more, passed int64 }{{2, 1}, {1, 1}, {3, 2}, {1, 3}, {1, 4}} {
			granted += step.more
			f.grants(fleetstate.SystemTime(), 0, granted, granted, 0)
			if step.passed < 4 { // they are kept for the waiters
				wantHit(t, l, fleetstate.SystemTime(), 1, false, "a check overtakes")
			}
			synctest.Wait()
			passed := int64(0)
			for _, w := range waiting {
				passed += int64(len(w))
			}
			require(t, passed == step.passed, "%d granted: %d pass, want %d", granted, passed, step.passed)
			f.settled()
		}
		for i, w := range waiting {
			wantOutcome(t, w, "passes", fmt.Sprint("waiter ", i))
		}
	})
}

// TestAcquireEndsWithItsContext: it waits for a grant, and no hit that waits is a denial; until its
// context ends permits too few for the waiter are kept for it, and later others have them, and
// those that come.
func TestAcquireEndsWithItsContext(t *testing.T) {
	inStrictBubble(t, 100, func(t *testing.T, f *fleet, l *Limiter) {
		one := acquire(t.Context(), l, 1)
		wantOutcome(t, one, "waits", "without a permit")
		asked, waiting := f.settled(), f.Stats().Waiting
		expect(t, asked == 1 && waiting == 1, "%d permits asked for, %d wait, want 1 and 1", asked, waiting)
		f.grants(fleetstate.SystemTime(), 0, 4, 4, 0)
		d := wantOutcome(t, one, "passes", "with four permits")
		expect(t, d.Remaining == 3, "%d permits left, want 3", d.Remaining)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		five := acquire(ctx, l, 5)
		wantHit(t, l, fleetstate.SystemTime(), 1, false, "one of three")
		want := f.settled()
		expect(t, want >= 2, "%d more asked for, want 2 at least", want)
		o := <-five
		expect(t, !o.d.Allowed && errors.Is(o.err, context.DeadlineExceeded) && o.d.RetryAfter > 0, "five of three: %+v", o)
		s := f.Stats()
		expect(t, s.Waiting == 0 && s.Rules[0].Denied == 2, "%d still wait, %d denied", s.Waiting, s.Rules[0].Denied)
		wantHit(t, l, fleetstate.SystemTime(), 2, true, "two of the three, of which none are kept for who has gone")
		wantOutcome(t, acquire(t.Context(), l, 1), "passes", "with one left")
		f.grants(fleetstate.SystemTime(), 0, 6, 6, 0)
		wantHit(t, l, fleetstate.SystemTime(), 2, true, "the two that came later")
	})
}

// TestAcquireDeniesWhenThereIsNoRoom, at once if that is known, else when the store has said so.
func TestAcquireDeniesWhenThereIsNoRoom(t *testing.T) {
	inStrictBubble(t, 10, func(t *testing.T, f *fleet, l *Limiter) {
		one, two := acquire(t.Context(), l, 1), acquire(t.Context(), l, 1)
		f.settled()
		f.grants(fleetstate.SystemTime(), 0, 0, 0, 30*time.Second)
		for _, waiting := range []<-chan outcome{one, two} {
			d := wantOutcome(t, waiting, "denied", "there is no room")
			expect(t, d.RetryAfter == 30*time.Second, "%+v", d)
		}
		for _, cost := range []int64{1, 2, 11} {
			wantOutcome(t, acquire(t.Context(), l, cost), "denied", "it is known that there is no room")
		}
		equal(t, f.Stats().Rules[0].Denied, 5, "denials counted")
	})
}

func TestWaitersAreBounded(t *testing.T) {
	list := []rules.Rule{strictRule("r", 10, time.Minute, 1)}
	inBubble(t, Options{MaxWaiting: 2}, list, func(t *testing.T, f *fleet) {
		l := limiter(t, f.Checker, "r")
		for range 2 { // the second time there is room again
			ctx, cancel := context.WithCancel(t.Context())
			one, two := acquire(ctx, l, 1), acquire(ctx, l, 1)
			wantOutcome(t, one, "waits", "the first")
			wantOutcome(t, two, "waits", "the second")
			wantOutcome(t, acquire(ctx, l, 1), "denied", "the third")
			cancel()
			<-one
			<-two
		}
	})
}

// TestAcquireBySeveralRules: a rule that is not strict and denies leaves nothing to wait for, alone
// or with others; if it lets the request pass, it is charged once, when the permits have come.
func TestAcquireBySeveralRules(t *testing.T) {
	list := []rules.Rule{
		rule("async", 2, time.Minute, 1), strictRule("a", 10, time.Minute, 1), strictRule("b", 10, time.Minute, 1),
	}
	inBubble(t, Options{}, list, func(t *testing.T, f *fleet) {
		async := limiter(t, f.Checker, "async")
		for _, want := range []string{"passes", "passes", "denied"} {
			wantOutcome(t, acquire(t.Context(), async, 1), want, "by the rule that is not strict")
		}
		acquire := func() <-chan outcome {
			return begin(t.Context(), f.Checker, Request{Attributes: user("u"), Cost: 1})
		}
		first := acquire()
		wantOutcome(t, first, "waits", "without permits")
		f.settled()
		m, _ := f.asked()
		f.grant(fleetstate.SystemTime(), m, func(int) (uint64, time.Duration) { return 3, 0 })
		wantOutcome(t, first, "passes", "with three permits")
		wantOutcome(t, acquire(), "passes", "with two permits")
		wantOutcome(t, acquire(), "denied", "another rule's limit is reached")
		s := f.Stats().Rules[0]
		expect(t, s.Rule == "async" && s.Charged == 2+2, "%+v: want 2 charged to each key", s)
		for _, name := range []string{"a", "b"} {
			d := limiter(t, f.Checker, name).try(Peek, "u", 1).Decision
			expect(t, d.Allowed && d.Remaining == 1, "rule %s: want 2 of 3 spent, and nobody waiting: %+v", name, d)
		}
	})
}

// TestAcquireHandsItsTurnOn: permits kept for a waiter that cannot take them, because another rule
// refuses or its context ends, go to the next ones without another grant.
func TestAcquireHandsItsTurnOn(t *testing.T) {
	attrs := identity.Attributes{{Name: "user", Value: "k"}, {Name: "ip", Value: "192.0.2.1"}}
	other := strictRule("other", 10, time.Minute, 1)
	other.Key = []string{"ip"}
	for _, test := range []struct {
		why  string
		end  func(f *fleet, cancel func())
		want string // of the first
	}{
		{"its context ends", func(_ *fleet, cancel func()) { cancel() }, "fails"},
		{"the other rule refuses", func(f *fleet, _ func()) { f.grantOne(fleetstate.SystemTime(), "other", 0, 30*time.Second) }, "denied"},
	} {
		run := func(t *testing.T, f *fleet) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			one := begin(ctx, f.Checker, Request{Attributes: attrs, Cost: 2})
			f.settled()
			f.grantOne(fleetstate.SystemTime(), "r", 2, 0)
			f.settled() // asks by the other rule alone
			rest, stop := context.WithCancel(t.Context())
			l := limiter(t, f.Checker, "r")
			two, three, four := acquire(rest, l, 1), acquire(rest, l, 2), acquire(rest, l, 1)
			equal(t, f.Stats().Waiting, 4, "callers that wait")
			test.end(f, cancel)
			wantOutcome(t, one, test.want, "the first")
			wantOutcome(t, two, "passes", "the second, by one of two permits")
			wantOutcome(t, three, "waits", "the third, which needs two permits")
			wantOutcome(t, four, "waits", "the fourth, which must not overtake")
			wantHit(t, l, fleetstate.SystemTime(), 1, false, "a check must not overtake either")
			stop()
			synctest.Wait()
		}
		t.Run(test.why, func(t *testing.T) {
			inBubble(t, Options{}, []rules.Rule{strictRule("r", 10, time.Minute, 1), other}, run)
		})
	}
}

// TestAcquireIsDeniedAfterRun: waiters without a deadline are denied when Run ends, later ones at
// once.
func TestAcquireIsDeniedAfterRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, stop, done := runFleet(t, Options{DrainTimeout: 10 * time.Millisecond}, strictRule("r", 10, time.Minute, 1))
		l := limiter(t, f.Checker, "r")
		before := acquire(context.Background(), l, 1)
		time.Sleep(time.Millisecond)
		wantOutcome(t, before, "waits", "nobody grants anything")
		stop()
		<-done
		wantOutcome(t, before, "denied", "waiting as Run ended")
		wantOutcome(t, acquire(context.Background(), l, 1), "denied", "after Run")
	})
}

// TestAcquireUnderNewRules changes the rules while a caller waits: those in force alone say what
// becomes of it, and whether it is above the limit.
func TestAcquireUnderNewRules(t *testing.T) {
	was, soft := strictRule("r", 10, time.Minute, 1), strictRule("r", 2, time.Minute, 1)
	soft.Throttle = rules.Throttle{Kind: rules.Soft, Exceed: 1}
	for _, test := range []struct {
		why  string
		was  rules.Rule
		then []rules.Rule
		want func(*Decision) bool // nil: it waits on
	}{
		{"the rule has gone", was, []rules.Rule{rule("s", 5, time.Minute, 1)},
			func(d *Decision) bool { return d.Allowed && d.Rule == "s" && d.Remaining == 2 }},
		{"it is not strict any more", was, []rules.Rule{rule("r", 5, time.Minute, 1)},
			func(d *Decision) bool { return d.Allowed && d.Rule == "r" }},
		{"the cost can never pass now", was, []rules.Rule{strictRule("r", 2, time.Minute, 1)},
			func(d *Decision) bool { return !d.Allowed && d.RetryAfter == Never && d.Limit == 2 }},
		{"another one denies", was, []rules.Rule{was, rule("s", 1, time.Minute, 1)},
			nil}, // nothing wakes it: r is as it was
		{"a higher limit", was, []rules.Rule{strictRule("r", 20, time.Minute, 1)}, nil},
		{"a limit that it is not above any more", soft, []rules.Rule{strictRule("r", 20, time.Minute, 1)}, nil},
	} {
		t.Run(test.why, func(t *testing.T) {
			inBubble(t, Options{}, []rules.Rule{test.was}, func(t *testing.T, f *fleet) {
				done := begin(t.Context(), f.Checker, Request{Attributes: user("k"), Cost: 3})
				f.settled()
				reload(t, f.Checker, fleetstate.SystemTime(), test.then...)
				o := ended(done)
				if test.want != nil {
					expect(t, o != nil && o.err == nil && test.want(&o.d), "%+v", o)
					return
				}
				expect(t, o == nil, "it does not wait: %+v", o)
				for i := 0; i < 2 && o == nil; i++ { // the first answer may be to the request of before
					f.settled()
					f.grants(fleetstate.SystemTime(), 0, 5, 5, 0)
					o = ended(done)
				}
				last := test.then[len(test.then)-1]
				expect(t, o != nil && o.d.Allowed == (last.Limit >= 3) && o.d.Limit == last.Limit && !o.d.Exceeded, "with permits: %+v", o)
			})
		})
	}
}
