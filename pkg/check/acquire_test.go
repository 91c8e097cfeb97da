package check

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
)

// inBubble runs a checker in a bubble's virtual time, which is the fleet's too, and calls f half a window
// later.
func inBubble(t *testing.T, o Options, list []rules.Rule, f func(t *testing.T, f *fleet)) {
	synctest.Test(t, func(t *testing.T) {
		x := &fleet{t: t, tape: new(tape)}
		o.Link, o.MaxIdleKeys, o.DrainTimeout = x.tape, -1, time.Millisecond
		x.Checker = newChecker(t, o, list...)
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- x.Run(ctx) }()
		synctest.Wait()
		x.welcome(ownTime(), 1)
		f(t, x)
		stop()
		if err := <-ended; err != nil && !errors.Is(err, ErrUnreported) {
			t.Error(err)
		}
		if n := x.Stats().Waiting; n != 0 {
			t.Errorf("%d callers still wait", n)
		}
	})
}

// outcome is what became of a caller of Acquire.
type outcome struct {
	d   Decision
	err error
}

// acquire calls Acquire behind, and returns when it waits or has ended.
func acquire(ctx context.Context, l *Limiter, cost int64) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		d, err := l.Acquire(ctx, "k", cost)
		done <- outcome{d, err}
	}()
	synctest.Wait()
	return done
}

// ended is the outcome, if there is one yet.
func ended(c <-chan outcome) *outcome {
	synctest.Wait()
	select {
	case o := <-c:
		return &o
	default:
		return nil
	}
}

// settled lets requests leave, and returns how many permits the last one asks for.
func (f *fleet) settled() (want uint64) {
	time.Sleep(5 * time.Millisecond)
	synctest.Wait()
	m, _ := f.asked()
	return m.Want[0]
}

func TestAcquireWaitsForAGrant(t *testing.T) {
	inBubble(t, Options{}, []rules.Rule{strictRule("r", 10, time.Minute, 1)}, func(t *testing.T, f *fleet) {
		l := limiter(t, f.Checker, "r")
		one := acquire(context.Background(), l, 3)
		if o := ended(one); o != nil {
			t.Fatalf("it does not wait: %+v", o)
		}
		if want := f.settled(); want != 3 {
			t.Errorf("%d permits asked for, want 3", want)
		}
		if n := f.Stats().Waiting; n != 1 {
			t.Errorf("%d wait, want 1", n)
		}
		f.grants(ownTime(), 0, 4, 4, 0)
		if o := ended(one); o == nil || !o.d.Allowed || o.err != nil || o.d.Remaining != 1 {
			t.Fatalf("with four permits: %+v", o)
		}
		two := acquire(context.Background(), l, 1) // there is one left
		if o := ended(two); o == nil || !o.d.Allowed {
			t.Errorf("it waits for a permit that is there: %+v", o)
		}
		if s := f.Stats().Rules[0]; s.Denied != 0 {
			t.Errorf("%d denials counted; those who wait are not denied yet", s.Denied)
		}
	})
}

// TestAcquireServesInOrder: nobody overtakes, neither a smaller cost nor a Check that comes when the permits do.
func TestAcquireServesInOrder(t *testing.T) {
	inBubble(t, Options{}, []rules.Rule{strictRule("r", 100, time.Minute, 1)}, func(t *testing.T, f *fleet) {
		l := limiter(t, f.Checker, "r")
		var waiting []<-chan outcome
		for _, cost := range []int64{1, 5, 1, 1} {
			waiting = append(waiting, acquire(context.Background(), l, cost))
		}
		f.settled()
		granted := int64(0)
		for _, step := range []struct{ more, passed int64 }{{2, 1}, {1, 1}, {3, 2}, {1, 3}, {1, 4}} {
			granted += step.more
			f.grants(ownTime(), 0, granted, granted, 0)
			if step.passed < 4 { // they are kept for those who wait
				if d := l.Check("k", 1); d.Allowed {
					t.Errorf("%d granted: a check overtakes: %+v", granted, d)
				}
			}
			passed := int64(0)
			for _, w := range waiting {
				synctest.Wait()
				passed += int64(len(w))
			}
			if passed != step.passed {
				t.Fatalf("%d granted: %d pass, want %d", granted, passed, step.passed)
			}
			f.settled()
		}
		for i, w := range waiting {
			if o := <-w; !o.d.Allowed || o.err != nil {
				t.Errorf("waiter %d: %+v", i, o)
			}
		}
	})
}

// TestAcquireKeepsWhatItHas: permits that are there, but too few for who waits, are not taken by others meanwhile; when
// it gives up they are.
func TestAcquireKeepsWhatItHas(t *testing.T) {
	inBubble(t, Options{}, []rules.Rule{strictRule("r", 100, time.Minute, 1)}, func(t *testing.T, f *fleet) {
		l := limiter(t, f.Checker, "r")
		one := acquire(context.Background(), l, 1)
		f.settled()
		f.grants(ownTime(), 0, 4, 4, 0)
		<-one
		ctx, cancel := context.WithCancel(context.Background())
		five := acquire(ctx, l, 5)
		if d := l.Check("k", 1); d.Allowed {
			t.Errorf("a check takes one of three: %+v", d)
		}
		if want := f.settled(); want < 2 {
			t.Errorf("%d more asked for, want 2 at least", want)
		}
		cancel()
		if o := <-five; o.d.Allowed || o.err == nil {
			t.Errorf("five of three: %+v", o)
		}
		for range 3 {
			if d := l.Check("k", 1); !d.Allowed {
				t.Errorf("when nobody waits any more: %+v", d)
			}
		}
	})
}

func TestAcquireEndsWithItsContext(t *testing.T) {
	inBubble(t, Options{}, []rules.Rule{strictRule("r", 10, time.Minute, 1)}, func(t *testing.T, f *fleet) {
		l := limiter(t, f.Checker, "r")
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		o := <-acquire(ctx, l, 2)
		if o.d.Allowed || !errors.Is(o.err, context.DeadlineExceeded) || o.d.RetryAfter <= 0 {
			t.Errorf("nobody answers: %+v", o)
		}
		if s := f.Stats(); s.Waiting != 0 || s.Rules[0].Denied != 1 {
			t.Errorf("%d still wait, %d denied; want none, and 1", s.Waiting, s.Rules[0].Denied)
		}
		p := f.cells.load(l, "k").permits()
		if len(p.waiters) != 0 || p.waiting != 0 || p.reserved != 0 {
			t.Errorf("%d places are left behind, %d permits wanted, %d kept", len(p.waiters), p.waiting, p.reserved)
		}
		f.grants(ownTime(), 0, 2, 2, 0) // later
		if d := l.Check("k", 2); !d.Allowed {
			t.Errorf("the permits that came later: %+v", d)
		}
	})
}

// TestAcquireDeniesWhenThereIsNoRoom: at once, if that is known, and else when the store has said so.
func TestAcquireDeniesWhenThereIsNoRoom(t *testing.T) {
	inBubble(t, Options{}, []rules.Rule{strictRule("r", 10, time.Minute, 1)}, func(t *testing.T, f *fleet) {
		l := limiter(t, f.Checker, "r")
		one := acquire(context.Background(), l, 1)
		f.settled()
		f.grants(ownTime(), 0, 0, 0, 30*time.Second)
		if o := ended(one); o == nil || o.d.Allowed || o.err != nil || o.d.RetryAfter != 30*time.Second {
			t.Fatalf("told that there is no room: %+v", o)
		}
		for _, cost := range []int64{1, 2, 11} {
			if o := ended(acquire(context.Background(), l, cost)); o == nil || o.d.Allowed || o.err != nil {
				t.Errorf("cost %d: known that there is no room: %+v", cost, o)
			}
		}
		if s := f.Stats().Rules[0]; s.Denied != 4 {
			t.Errorf("%d denials counted, want 4", s.Denied)
		}
	})
}

func TestWaitersAreBounded(t *testing.T) {
	inBubble(t, Options{MaxWaiting: 2}, []rules.Rule{strictRule("r", 10, time.Minute, 1)}, func(t *testing.T, f *fleet) {
		l := limiter(t, f.Checker, "r")
		ctx, cancel := context.WithCancel(context.Background())
		one, two := acquire(ctx, l, 1), acquire(ctx, l, 1)
		if o := ended(acquire(ctx, l, 1)); o == nil || o.d.Allowed || o.err != nil {
			t.Errorf("the third: %+v", o)
		}
		cancel()
		<-one
		<-two
		ctx, cancel = context.WithCancel(context.Background())
		again := acquire(ctx, l, 1)
		if o := ended(again); o != nil {
			t.Errorf("there is room again: %+v", o)
		}
		cancel()
		<-again
	})
}

func TestAcquireIsCheckOtherwise(t *testing.T) {
	inBubble(t, Options{}, []rules.Rule{rule("r", 1, time.Minute, 1)}, func(t *testing.T, f *fleet) {
		l := limiter(t, f.Checker, "r")
		for i, want := range []bool{true, false} {
			if o := ended(acquire(context.Background(), l, 1)); o == nil || o.err != nil || o.d.Allowed != want {
				t.Errorf("hit %d: %+v", i+1, o)
			}
		}
	})
}

// TestAcquireBySeveralRules: a rule that is not strict and denies leaves nothing to wait for; if it lets the
// request pass, it is charged once, when the permits have come.
func TestAcquireBySeveralRules(t *testing.T) {
	list := []rules.Rule{rule("async", 2, time.Minute, 1), strictRule("a", 10, time.Minute, 1), strictRule("b", 10, time.Minute, 1)}
	inBubble(t, Options{}, list, func(t *testing.T, f *fleet) {
		attrs := identity.Attributes{{Name: "user", Value: "u"}}
		for i, want := range []bool{true, true, false} {
			done := make(chan outcome, 1)
			go func() {
				d, err := f.Acquire(context.Background(), attrs, 1)
				done <- outcome{d, err}
			}()
			if o := ended(done); o != nil && i == 0 {
				t.Fatalf("it does not wait: %+v", o)
			} else if o != nil {
				done <- *o
			} else {
				f.settled()
				m, _ := f.asked()
				g := grantOf(m, 3)
				f.receive(ownTime(), g.kind, g.message)
			}
			if o := <-done; o.d.Allowed != want || o.err != nil {
				t.Errorf("request %d: %+v", i+1, o)
			}
		}
		for _, s := range f.Stats().Rules {
			if s.Charged != 2 && s.Rule == "async" {
				t.Errorf("%+v: want 2 charged", s)
			}
		}
		for _, name := range []string{"a", "b"} {
			l := limiter(t, f.Checker, name)
			text, _ := l.Rule().AppendKey(nil, attrs)
			c := f.cells.load(l, string(text))
			c.mu.Lock()
			c.settle(0)
			if p := c.permits(); p.spent != 2 || p.reserved != 0 || len(p.waiters) != 0 {
				t.Errorf("rule %s: %d spent, %d kept, %d wait; want 2, and no more", name, p.spent, p.reserved, len(p.waiters))
			}
			c.mu.Unlock()
		}
	})
}

// grantsBy answers the last request: so many more permits by one rule, and none by the others.
func (f *fleet) grantsBy(rule string, more uint64, wait time.Duration) {
	f.t.Helper()
	m, _ := f.asked()
	a := grantOf(m, 0)
	g := a.message.(*events.Grant)
	for i, known := range m.Known {
		if m.Keys.Rules[m.Keys.KeyRule[i]].Name == rule {
			known, g.WaitMs[i] = known+more, uint64(wait.Milliseconds())
		}
		g.Granted[i], g.Spoken[i] = known, known
	}
	f.receive(ownTime(), a.kind, g)
}

// TestAcquireHandsItsTurnOn: permits that are kept for a waiter who does not take them, because another rule refuses or
// its context ends, go to those behind it, without another grant.
func TestAcquireHandsItsTurnOn(t *testing.T) {
	attrs := identity.Attributes{{Name: "user", Value: "k"}, {Name: "ip", Value: "192.0.2.1"}}
	other := strictRule("other", 10, time.Minute, 1)
	other.Key = []string{"ip"}
	for name, end := range map[string]func(f *fleet, cancel func()){
		"its context ends":       func(_ *fleet, cancel func()) { cancel() },
		"the other rule refuses": func(f *fleet, _ func()) { f.grantsBy("other", 0, 30*time.Second) },
	} {
		run := func(t *testing.T, f *fleet) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			one := make(chan outcome, 1)
			go func() {
				d, err := f.Acquire(ctx, attrs, 2)
				one <- outcome{d, err}
			}()
			f.settled()
			f.grantsBy("r", 2, 0)
			f.settled() // asks by the other rule alone
			behind, stop := context.WithCancel(context.Background())
			l := limiter(t, f.Checker, "r")
			two, three, four := acquire(behind, l, 1), acquire(behind, l, 2), acquire(behind, l, 1)
			if n := f.Stats().Waiting; n != 4 {
				t.Errorf("%d wait, want 4", n)
			}
			end(f, cancel)
			if o := ended(one); o == nil || o.d.Allowed {
				t.Errorf("the first: %+v, want a denial", o)
			}
			if o := ended(two); o == nil || !o.d.Allowed {
				t.Errorf("the second: %+v, want one of the two permits that are left", o)
			}
			if d := l.Check("k", 1); d.Allowed || len(three)+len(four) > 0 {
				t.Errorf("somebody overtakes the third, who needs two: %+v", d)
			}
			stop()
			synctest.Wait()
		}
		t.Run(name, func(t *testing.T) {
			inBubble(t, Options{}, []rules.Rule{strictRule("r", 10, time.Minute, 1), other}, run)
		})
	}
}

// TestNobodyWaitsAfterRun: a waiter without a deadline is told when Run ends, and later ones do not wait.
func TestNobodyWaitsAfterRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{t: t, tape: new(tape)}
		f.Checker = newChecker(t, Options{Link: f.tape, MaxIdleKeys: -1, DrainTimeout: 10 * time.Millisecond}, strictRule("r", 10, time.Minute, 1))
		ctx, stop := context.WithCancel(context.Background())
		defer stop()
		done := make(chan error, 1)
		go func() { done <- f.Run(ctx) }()
		synctest.Wait()
		f.welcome(ownTime(), 1)
		before := acquire(context.Background(), limiter(t, f.Checker, "r"), 1)
		time.Sleep(time.Millisecond)
		if o := ended(before); o != nil {
			t.Fatalf("%+v, want a waiter: nobody grants anything", o)
		}
		stop()
		<-done
		after := acquire(context.Background(), limiter(t, f.Checker, "r"), 1)
		synctest.Wait()
		for name, w := range map[string]<-chan outcome{"waiting as Run ended": before, "after Run": after} {
			if o := ended(w); o == nil || o.d.Allowed || o.err != nil {
				t.Errorf("%s: %+v, want a denial", name, o)
			}
		}
	})
}
