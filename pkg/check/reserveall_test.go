package check

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

const reservable = `rules:
  - {name: tokens, key: [user], limit: 10/second, algorithm: token_bucket, burst: 5, on_limit: queue, max_wait: 420ms}
  - {name: turns, match: {turn: "*"}, key: [], limit: 4/second, algorithm: leaky_bucket, burst: 3, on_limit: queue, max_wait: 1s}
  - {name: day, key: [user], limit: 20/day, algorithm: fixed_window}
  - {name: rigid, match: {rigid: "*"}, key: [user], limit: 1/second, algorithm: token_bucket}
  - {name: dark, match: {dark: "*"}, key: [user], limit: 1/second, algorithm: token_bucket, on_limit: queue, max_wait: 2s, shadow: true}
`

// TestReserveByAllRules is a script, in which a cancelled reservation leaves nothing behind. Tokens
// come back from the end of a bucket of 20 ms on.
func TestReserveByAllRules(t *testing.T) {
	c := ofYAML(t, Options{}, reservable)
	for i, s := range []struct {
		at     int64 // ms
		attrs  string
		cost   int64
		want   bool
		delay  time.Duration
		by     string
		cancel bool
		why    string
	}{
		{0, "user=a", 5, true, 0, "tokens", false, "it fits"},
		{0, "user=a", 2, true, 220 * time.Millisecond, "tokens", true, "two tokens are owed; and given back"},
		{0, "user=a", 4, true, 420 * time.Millisecond, "tokens", false, "as long as max_wait"},
		{0, "user=a", 1, false, 520 * time.Millisecond, "tokens", false, "longer"},
		{0, "user=b turn=1", 1, true, 0, "turns", false, "the first in line"},
		{0, "user=b turn=1", 1, true, 250 * time.Millisecond, "turns", true, "the second; it leaves"},
		{0, "user=b turn=1", 1, true, 250 * time.Millisecond, "turns", false, "and another is it"},
		{0, "user=a turn=1", 1, false, 520 * time.Millisecond, "tokens", false, "one rule has no turn for him: charged to none"},
		{0, "user=b turn=1", 1, true, 500 * time.Millisecond, "turns", false, "not to the queue"},
		{0, "user=b", 17, false, Never, "tokens", false, "more than a bucket holds"},
		{100, "user=a", 1, true, 420 * time.Millisecond, "tokens", false, "who would wait too long waits less later"},
		{0, "user=c rigid=1", 1, true, 0, "rigid", false, "it fits"},
		{0, "user=c rigid=1", 1, false, 1020 * time.Millisecond, "rigid", false, "a rule that lets nobody wait"},
		{0, "user=d dark=1", 1, true, 0, "tokens", false, "it fits"},
		{0, "user=d dark=1", 1, true, 0, "tokens", false, "a shadow rule keeps nobody waiting"},
		{9000, "user=a", 5, true, 0, "tokens", false, "10 of 20 a day are gone"},
		{9999, "user=a", 4, true, 0, "tokens", false, "and 15"},
		{10000, "user=a", 2, false, 12*time.Hour - 10*time.Second, "day", false, "a window has no turns to give"},
		{10000, "user=a", 1, true, 0, "tokens", false, "and what it has denied is charged to no bucket"},
	} {
		attrs, now := request(s.attrs), noon+s.at*ms
		before := c.PeekAt(now, attrs, 1)
		r, d := c.ReserveAt(now, attrs, s.cost)
		delay := max(r.Delay, d.RetryAfter)
		if d.Allowed != s.want || delay != s.delay || d.Rule != s.by || d.Allowed && (d.Status != 0 || d.Queue || d.RetryAfter != 0) {
			t.Errorf("step %d (%s): %v, %+v", i, s.why, r.Delay, d)
		}
		if (s.cancel || r.Delay == 0) && r.CancelAt(now) != s.cancel {
			t.Errorf("step %d (%s): cancelled %v", i, s.why, !s.cancel)
		}
		if after := c.PeekAt(now, attrs, 1); (s.cancel || !s.want) && after != before {
			t.Errorf("step %d (%s): before %+v, after %+v", i, s.why, before, after)
		}
	}
	for _, s := range c.Stats().Rules {
		if s.Rule == "turns" && s.Denied != 0 { // it has had a turn for everybody
			t.Errorf("%+v", s)
		}
	}
}

// TestCancelledReservationsLeaveNothing: reservations made and cancelled in between change no decision.
func TestCancelledReservationsLeaveNothing(t *testing.T) {
	given := 0
	rapid.Check(t, func(rt *rapid.T) {
		bare, busy := ofYAML(t, Options{}, reservable), ofYAML(t, Options{}, reservable)
		now := noon
		for range rapid.IntRange(1, 40).Draw(rt, "requests") {
			now += rapid.SampledFrom([]int64{0, 1, 30 * ms, 250 * ms, 1100 * ms}).Draw(rt, "pause")
			attrs := request(rapid.SampledFrom([]string{"user=a", "user=b turn=1", "user=a turn=1", "user=b rigid=1", "user=a dark=1"}).Draw(rt, "attrs"))
			cost := rapid.Int64Range(1, 4).Draw(rt, "cost")
			if rapid.Bool().Draw(rt, "cancelled") {
				if r, d := busy.ReserveAt(now, attrs, cost); d.Allowed && r.Delay > 0 {
					if !r.CancelAt(now) || r.CancelAt(now) {
						rt.Fatalf("%v: not cancelled once: %+v", attrs, d)
					}
					given++
				} else if d.Allowed { // it has had its turn
					bare.ReserveAt(now, attrs, cost)
				}
			}
			r, want := bare.ReserveAt(now, attrs, cost)
			s, got := busy.ReserveAt(now, attrs, cost)
			if got != want || r.Delay != s.Delay {
				rt.Fatalf("%v: %v %+v, without cancelled ones %v %+v", attrs, s.Delay, got, r.Delay, want)
			}
		}
		for _, s := range busy.Stats().Rules {
			if s.Pending != 0 || s.Charged != s.Answered+s.Cancelled {
				rt.Fatalf("%+v", s)
			}
		}
	})
	if given == 0 {
		t.Error("too tame")
	}
}

// TestReservationsAreGivenBackTogether, or not at all: hits that one of the rules has reported count.
func TestReservationsAreGivenBackTogether(t *testing.T) {
	var list []rules.Rule // the other way round: hits of the first are far from its limit, and wait for their report
	for _, r := range slices.Backward(parse(t, reservable).Rules()) {
		one := *r
		if one.Name == "day" {
			one.Limit = 100_000
		}
		list = append(list, one)
	}
	f := newFleet(t, Options{}, list...)
	attrs, now := request("user=a"), noon
	cancel := func(r *Reservation, want bool, why string) {
		t.Helper()
		cancelled := int64(0)
		got := r.CancelAt(now)
		for _, s := range f.Stats().Rules {
			cancelled += s.Cancelled
		}
		if got != want || cancelled != 4 { // of the first, by two rules
			t.Errorf("%s: cancelled %v, %d hits in all", why, got, cancelled)
		}
	}
	f.ReserveAt(now, attrs, 5)
	first, _ := f.ReserveAt(now, attrs, 2)
	cancel(first, true, "before its turn")
	second, d := f.ReserveAt(now, attrs, 2)
	if !d.Allowed || second.Delay != 220*time.Millisecond {
		t.Fatalf("%v, %+v", second.Delay, d)
	}
	now += 60 * ms
	f.Step(now)
	cancel(second, false, "reported")
	third, d := f.ReserveAt(now, attrs, 1)
	if len(third.places) != 2 {
		t.Fatalf("%+v, %+v", third, d)
	}
	last := third.places[1].cell
	last.settle(now)
	clear(last.pending()) // only this one has been reported
	cancel(third, false, "reported for one rule")
}

// TestCancelGivesPermitsBack: others can spend them.
func TestCancelGivesPermitsBack(t *testing.T) {
	turns := draining("turns", rules.LeakyBucket, 1, 9, time.Minute, 60)
	turns.Window.Kind = window.Leaky
	turns.OnLimit = rules.OnLimit{Queue: true, MaxWait: time.Hour}
	f, l := fleetAndLimiter(t, Options{}, strictRule("r", 100, time.Minute, 1), turns)
	f.firstGrant(l, 5, 0)
	now := noon + 3*ms
	if _, d := f.ReserveAt(now, user("k"), 1); !d.Allowed {
		t.Fatalf("%+v", d)
	}
	before := l.PeekAt(now, "k", 1).Remaining
	for range 9 { // more often than there are permits
		r, d := f.ReserveAt(now, user("k"), 1)
		if !d.Allowed || r.Delay == 0 || !r.CancelAt(now) {
			t.Fatalf("%v, %+v", r.Delay, d)
		}
	}
	if after := l.PeekAt(now, "k", 1).Remaining; after != before {
		t.Errorf("%d permits left, of %d", after, before)
	}
}

// TestCancelAtOnce: of two callers who cancel a reservation at the same time, while others reserve and cancel
// too, one gives it back.
func TestCancelAtOnce(t *testing.T) {
	c := ofYAML(t, Options{}, reservable)
	var given atomic.Int64
	countOf(8, func() bool {
		for range 200 {
			if r, d := c.ReserveAt(noon, request("user=a turn=1"), 1); d.Allowed && r.Delay > 0 {
				given.Add(3 * countOf(2, func() bool { return r.CancelAt(noon) })) // by three rules
			}
		}
		return true
	})
	var charged, cancelled int64
	for _, s := range c.Stats().Rules {
		charged, cancelled = charged+s.Charged, cancelled+s.Cancelled
	}
	if cancelled != given.Load() || charged-cancelled != 3 || cancelled == 0 {
		t.Errorf("%d charged, %d cancelled, %d given back", charged, cancelled, given.Load())
	}
}

// TestReserveToken: a caller that has reserved and is not served settles at 0, at any time, and a window
// gets all of it back.
func TestReserveToken(t *testing.T) {
	c := ofYAML(t, Options{}, reservable)
	l := limiter(t, c, "day")
	for _, user := range []string{"a", "b"} {
		r, d, token := c.ReserveToken(request("user="+user), 6)
		if d.Allowed || r.Delay != 0 || token != "" {
			t.Errorf("denied: %v, %+v, %q", r.Delay, d, token)
		}
		r, d, token = c.ReserveToken(request("user="+user), 5)
		if !d.Allowed || r.Delay != 0 || token == "" {
			t.Fatalf("%v, %+v, %q", r.Delay, d, token)
		}
		if err := c.Settle(token, 0); err != nil || l.Peek(user, 1).Remaining != 20 {
			t.Errorf("%v, %d left of 20", err, l.Peek(user, 1).Remaining)
		}
	}
	_, d, token := limiter(t, c, "turns").ReserveToken("", 1)
	if !d.Allowed || token == "" {
		t.Errorf("by key: %+v, %q", d, token)
	}
	if d, _, token := c.ReserveToken(nil, 1); d.Delay != 0 || token == "" {
		t.Errorf("no rule: %q", token)
	}
}
