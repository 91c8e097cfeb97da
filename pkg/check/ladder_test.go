package check

import (
	"fmt"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/rules"
)

// TestLadder goes down all its steps, and up again at one word.
func TestLadder(t *testing.T) {
	o := Options{HelloEvery: time.Second, StaleAfter: 2, ShareAfter: 5, OutageAfter: 20, NoForecast: true}
	open, closed := rule("open", 100, time.Minute, 1), rule("closed", 100, time.Minute, 1)
	closed.OnOutage = rules.Closed
	f := newFleet(t, o, open, closed)
	f.welcomeOf(noon, 4)
	l, shut := limiter(t, f.Checker, "open"), limiter(t, f.Checker, "closed")
	for _, step := range []struct {
		silence      time.Duration
		freshness    Freshness
		open, closed int // of 1000 hits, how many pass
	}{
		{0, Fresh, 100, 100},
		{2 * time.Second, Fresh, 100, 100},
		{2*time.Second + 1, Stale, 100, 100},
		{5 * time.Second, Stale, 100, 100},
		{5*time.Second + 1, LocalShare, 25, 25},
		{20 * time.Second, LocalShare, 25, 25},
		{20*time.Second + 1, Outage, 1000, 0},
	} {
		now := noon + int64(step.silence)
		f.Step(now)
		key := fmt.Sprint(step.silence)
		if got := letPass(t, l, now, key, 1000, step.freshness); got != step.open {
			t.Errorf("%v of silence, open: %d passed, want %d", step.silence, got, step.open)
		}
		if got := letPass(t, shut, now, key, 1000, step.freshness); got != step.closed {
			t.Errorf("%v of silence, closed: %d passed, want %d", step.silence, got, step.closed)
		}
	}
	now := noon + 30*second
	f.welcomeOf(now, 4)
	if got := f.Stats().Heard; got <= 0 || got > time.Second {
		t.Errorf("heard just now: %v ago, where 0 is never", got)
	}
	if got := letPass(t, l, now, "again", 1000, Fresh); got != 100 {
		t.Errorf("after a word: %d passed, want 100", got)
	}
}

// letPass counts how many of n hits pass, and holds what the decisions say against how fresh they must be.
func letPass(t *testing.T, l *Limiter, now int64, key string, n int, want Freshness) (passed int) {
	t.Helper()
	for range n {
		d := l.CheckAt(now, key, 1)
		if d.Freshness != want {
			t.Fatalf("freshness %v, want %v", d.Freshness, want)
		}
		if !d.Allowed && d.RetryAfter <= 0 {
			t.Fatalf("%v: denied, to be tried again after %v", want, d.RetryAfter)
		}
		if d.Allowed {
			passed++
		}
	}
	return passed
}

// TestLocalShareOfAWindow: the share is of what was left when the silence began, and own hits leave the window.
func TestLocalShareOfAWindow(t *testing.T) {
	f := newFleet(t, Options{HelloEvery: time.Second, ShareAfter: 5, NoForecast: true}, rule("r", 100, 10*time.Second, 1))
	f.welcomeOf(noon, 4)
	l := limiter(t, f.Checker, "r")
	f.alarm(noon, 1, l, "busy", 90)
	now := noon + 6*second
	f.Step(now)
	if got := letPass(t, l, now, "busy", 50, LocalShare); got != 2 && got != 3 {
		t.Errorf("%d passed of a quarter of the 10 that others had left", got)
	}
	if got := letPass(t, l, now, "idle", 50, LocalShare); got != 25 {
		t.Errorf("%d passed of a share of 25", got)
	}
	now = noon + 20*second // half of the next bucket but one: everything has left the window
	f.Step(now)
	if got := letPass(t, l, now, "idle", 50, LocalShare); got != 25 {
		t.Errorf("%d passed of a share of 25, a window later", got)
	}
	if got := l.CheckAt(now, "other", 30); got.Allowed {
		t.Error("a cost of 30 passed in a share of 25")
	}
}

// TestLocalShareBelowOne: a limit of 3 is about 3 in a fleet of 8, over many keys, and no checker has more
// than one of a key.
func TestLocalShareBelowOne(t *testing.T) {
	const keys, checkers = 2000, 8
	sum := 0
	for i := range uint64(checkers) {
		o := Options{ExpectCheckers: checkers, Epoch: i + 1, Link: new(tape)}
		c := newChecker(t, o, rule("r", 3, time.Minute, 1), rule("exact", 16, time.Minute, 1))
		c.Step(noon)
		for k := range keys {
			n := letPass(t, limiter(t, c, "r"), noon, fmt.Sprint(k), 4, LocalShare)
			if n > 1 {
				t.Fatalf("checker %d has %d of key %d", i, n, k)
			}
			sum += n
		}
		if n := letPass(t, limiter(t, c, "exact"), noon, "k", 9, LocalShare); n != 2 {
			t.Errorf("checker %d has %d of 16 in a fleet of 8", i, n)
		}
	}
	if mean := float64(sum) / keys; mean < 2.8 || mean > 3.2 {
		t.Errorf("a limit of 3 lets %.2f pass", mean)
	}
}

// TestNeverHeard: without any word a checker goes by its own hits, or by its share if it is told that there
// are others; and never into an outage.
func TestNeverHeard(t *testing.T) {
	for expect, want := range map[int]Freshness{0: Local, 1: Local, 2: LocalShare} {
		c := newChecker(t, Options{ExpectCheckers: expect, Link: new(tape)}, rule("r", 100, time.Minute, 1))
		for _, after := range []int64{0, int64(time.Hour)} {
			now := noon + after
			c.Step(now)
			if got := c.Stats().Heard; got != 0 {
				t.Errorf("never heard: %v ago", got)
			}
			wanted := 100
			if want == LocalShare {
				wanted = 50
			}
			if got := letPass(t, limiter(t, c, "r"), now, fmt.Sprint(after), 200, want); got != wanted {
				t.Errorf("%d expected: %d passed, want %d", expect, got, wanted)
			}
		}
	}
}

func TestLadderOptions(t *testing.T) {
	set, err := rules.NewSet(rule("r", 1, time.Second, 1))
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []Options{
		{StaleAfter: -1}, {StaleAfter: 11}, {ShareAfter: 2}, {OutageAfter: 9}, {ShareAfter: 301}, {ExpectCheckers: -1}, {QuietFor: -1},
	} {
		o.Rules = set
		if _, err := New(o); err == nil {
			t.Errorf("accepted: %+v", o)
		}
	}
}

// welcomeOf answers the last hello in a fleet of so many checkers.
func (f *fleet) welcomeOf(now int64, checkers uint32) {
	f.t.Helper()
	sent := f.tape.hellos[len(f.tape.hellos)-1].Sent
	f.receive(now, events.KindWelcome, &events.Welcome{Epoch: f.Epoch(), Sent: sent, Shards: 1, Time: now, Checkers: checkers})
}

// TestLadderEndsAllowances: what a check left behind before the silence does not hold on the lower steps, where
// something else decides. A report without an answer keeps the flush from withdrawing it.
func TestLadderEndsAllowances(t *testing.T) {
	for _, o := range []Options{{}, {NoForecast: true}} {
		for _, limit := range []int64{40, 1000} {
			o.HelloEvery = time.Second
			r := rule("r", limit, time.Hour, 1)
			r.OnOutage = rules.Closed
			f := newFleet(t, o, r)
			f.welcomeOf(noon, 8)
			l := limiter(t, f.Checker, "r")
			l.CheckAt(noon, "other", 1) // goes into the report that nobody answers
			f.Step(noon + 100*ms)
			l.CheckAt(noon+200*ms, "k", 1)
			for now := noon + 200*ms; now < noon+15*second; now += 100 * ms {
				f.Step(now)
			}
			if n := letPass(t, l, noon+15*second, "k", int(limit), LocalShare); int64(n) > limit/8 {
				t.Errorf("%+v: %d passed of a share of %d", o, n, limit/8)
			}
			f.Step(noon + 302*second)
			if n := letPass(t, l, noon+302*second, "k", int(limit), Outage); n > 0 {
				t.Errorf("%+v: %d of %d passed in an outage that closes", o, n, limit)
			}
		}
	}
}

// TestOutageEndsBlocks: a key that was used up is decided by OnOutage too.
func TestOutageEndsBlocks(t *testing.T) {
	f := newFleet(t, Options{HelloEvery: time.Second}, rule("r", 40, time.Hour, 1))
	f.welcomeOf(noon, 8)
	l := limiter(t, f.Checker, "r")
	letPass(t, l, noon, "k", 50, Fresh)
	f.Step(noon + 302*second)
	if n := letPass(t, l, noon+302*second, "k", 50, Outage); n != 50 {
		t.Errorf("%d of 50 passed in an outage that opens", n)
	}
}

// TestLocalSharesAddUp: all checkers together let no more pass than there was room for.
func TestLocalSharesAddUp(t *testing.T) {
	sum := 0
	for i := range uint64(8) {
		f := newFleet(t, Options{HelloEvery: time.Second, Epoch: i + 1}, rule("r", 1000, time.Hour, 1))
		f.welcomeOf(noon, 8)
		l := limiter(t, f.Checker, "r")
		f.alarm(noon, 1, l, "k", 880)
		f.Step(noon + 15*second)
		sum += letPass(t, l, noon+15*second, "k", 200, LocalShare)
	}
	if sum != 120 {
		t.Errorf("%d passed of 120", sum)
	}
}
