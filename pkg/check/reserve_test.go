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

// queueing is a leaky bucket of 10 a second with room for 5, tokening a token bucket of the same,
// in buckets of 10 ms.
func queueing() rules.Rule { return draining("r", rules.LeakyBucket, 10, 5, time.Second, 100) }
func tokening() rules.Rule { return draining("r", rules.TokenBucket, 10, 5, time.Second, 100) }

// TestReserve: a reservation names its wait, and holds its place.
func TestReserve(t *testing.T) {
	for _, tt := range []struct {
		why   string
		rule  rules.Rule
		costs []int64
		waits []time.Duration // -1: denied
		off   time.Duration   // they may be off by
	}{
		{"a queue, one after the other", queueing(), []int64{1, 1, 2, 1, 1},
			[]time.Duration{0, 100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, -1}, 0},
		{"a queue has no room for so many", queueing(), []int64{6, 5, 1}, []time.Duration{-1, 0, -1}, 0},
		{"tokens at once, then as they come, until a full bucket is owed", tokening(), []int64{6, 5, 1, 3, 1, 1},
			[]time.Duration{-1, 0, 100 * time.Millisecond, 400 * time.Millisecond, 500 * time.Millisecond, -1}, 10 * time.Millisecond},
		{"a window has no queue", rule("r", 2, time.Second, 10), []int64{1, 1, 1}, []time.Duration{0, 0, -1}, 0},
	} {
		_, l := checkerAndLimiter(t, Options{}, tt.rule)
		for i, cost := range tt.costs {
			r, d := atTime(noon, l).tryReserve("k", cost)
			want := tt.waits[i]
			expect(t, d.Allowed == (want >= 0) && (!d.Allowed || r.Delay >= want && r.Delay <= want+tt.off),
				"%s: hit %d: %+v, wait %v; want %v", tt.why, i, d, r.Delay, want)
			expect(t, (!d.Allowed || d.RetryAfter == 0) && (d.Allowed || d.RetryAfter > 0 && r.Delay == 0 && !atTime(noon, r).Cancel()),
				"%s: hit %d: %+v, wait %v", tt.why, i, d, r.Delay)
		}
	}
}

// TestReservedTurnsAreExact, to the nanosecond, wherever in a bucket own hits came.
func TestReservedTurnsAreExact(t *testing.T) {
	_, l := checkerAndLimiter(t, Options{}, queueing())
	for i, step := range []struct{ at, wait int64 }{{103, 0}, {104, 99}, {205, 98}, {1007, 0}, {1008, 99}, {1009, 198}} {
		r, d := atTime(noon+step.at*ms, l).tryReserve("k", 1)
		expect(t, d.Allowed && r.Delay == time.Duration(step.wait*ms),
			"hit %d, after %d ms: %+v, a wait of %v, want %d ms", i, step.at, d, r.Delay, step.wait)
	}
}

// TestReserveWithinLocalShare: a checker that keeps to its share lets callers wait until they fit
// that, and not until they would fit the whole bucket.
func TestReserveWithinLocalShare(t *testing.T) {
	c := newChecker(t, Options{Link: new(tape), ExpectCheckers: 8}, draining("r", rules.TokenBucket, 10, 80, time.Second, 50))
	atTime(noon, c).Step()
	l := limiter(t, c, "r")
	_, d := atTime(noon, l).tryReserve("dear", 11)
	expect(t, !d.Allowed && d.Freshness == LocalShare, "more than the share ever holds: %+v", d)
	var delays []time.Duration
	for {
		r, d := atTime(noon, l).tryReserve("k", 1)
		if !d.Allowed {
			break
		}
		delays = append(delays, r.Delay)
	}
	require(t, len(delays) == 20, "%v, want a full share, and as many that are owed", delays)
	for i, delay := range delays {
		want := max(time.Duration(i-9), 0) * 800 * time.Millisecond // an eighth of the rate
		expect(t, delay >= want && delay <= want+20*time.Millisecond, "hit %d waits for %v, want %v", i, delay, want)
	}
}

// TestCancel: a cancelled reservation leaves its place to others, once, before its turn, and unless
// it has been reported.
func TestCancel(t *testing.T) {
	for _, r := range []rules.Rule{queueing(), tokening()} {
		f, l := fleetAndLimiter(t, Options{}, r)
		atTime(noon, l).tryReserve("k", 5)
		at := noon + 300*ms // two are left, or more
		one, d := atTime(at, l).tryReserve("k", 1)
		require(t, d.Allowed && (one.Delay != 0 || r.Algorithm != rules.LeakyBucket), "%+v, %v", d, one.Delay)
		if one.Delay == 0 { // a token was there: its turn is now
			one, _ = atTime(at, l).tryReserve("k", 4)
		}
		before := one.Delay
		expect(t, atTime(at, one).Cancel() && !atTime(at, one).Cancel(), "not cancelled once")
		again, d := atTime(at, l).tryReserve("k", 1)
		expect(t, d.Allowed && again.Delay <= before, "after it was cancelled: %+v, a wait of %v, was %v", d, again.Delay, before)
		late, _ := atTime(at, l).tryReserve("k", 1)
		expect(t, !atTime(at+int64(late.Delay), late).Cancel(), "cancelled when its turn had come")
		reported, _ := atTime(at, l).tryReserve("k", 1)
		atTime(at, f).Step()
		expect(t, !atTime(at, reported).Cancel(), "cancelled after it had been reported")
		s := f.Stats().Rules[0]
		expect(t, s.Cancelled >= 1 && s.Charged == s.Answered+s.InFlight+s.Pending+s.Overflow+s.Lost+s.Cancelled && s.Pending == 0,
			"%+v", s)
		got := int64(hits(f.last())["k"])
		expect(t, got == s.Charged-s.Cancelled, "%d hits reported of %+v", got, s)
	}
}

const reservable = `rules:
  - {name: tokens, key: [user], limit: 10/second, algorithm: token_bucket, burst: 5, on_limit: queue, max_wait: 400ms}
  - {name: turns, match: {turn: "*"}, key: [], limit: 4/second, algorithm: leaky_bucket, burst: 3, on_limit: queue, max_wait: 1s}
  - {name: day, key: [user], limit: 20/day, algorithm: fixed_window}
  - {name: rigid, match: {rigid: "*"}, key: [user], limit: 1/second, algorithm: token_bucket}
  - {name: dark, match: {dark: "*"}, key: [user], limit: 1/second, algorithm: token_bucket, on_limit: queue, max_wait: 2s, shadow: true}
`

// TestReserveByAllRules is a script, in which a cancelled reservation leaves nothing behind.
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
		{0, "user=a", 2, true, 200 * time.Millisecond, "tokens", true, "two tokens are owed; and given back"},
		{0, "user=a", 4, true, 400 * time.Millisecond, "tokens", false, "as long as max_wait"},
		{0, "user=a", 1, false, 500 * time.Millisecond, "tokens", false, "longer"},
		{0, "user=b turn=1", 1, true, 0, "turns", false, "the first in line"},
		{0, "user=b turn=1", 1, true, 250 * time.Millisecond, "turns", true, "the second; it leaves"},
		{0, "user=b turn=1", 1, true, 250 * time.Millisecond, "turns", false, "and another is it"},
		{0, "user=a turn=1", 1, false, 500 * time.Millisecond, "tokens", false, "one rule has no turn for him: charged to none"},
		{0, "user=b turn=1", 1, true, 500 * time.Millisecond, "turns", false, "not to the queue"},
		{0, "user=b", 17, false, Never, "tokens", false, "more than a bucket holds"},
		{100, "user=a", 1, true, 400 * time.Millisecond, "tokens", false, "who would wait too long waits less later"},
		{0, "user=c rigid=1", 1, true, 0, "rigid", false, "it fits"},
		{0, "user=c rigid=1", 1, false, time.Second, "rigid", false, "a rule that lets nobody wait"},
		{0, "user=d dark=1", 1, true, 0, "tokens", false, "it fits"},
		{0, "user=d dark=1", 1, true, 0, "tokens", false, "a shadow rule keeps nobody waiting"},
		{9000, "user=a", 5, true, 0, "tokens", false, "10 of 20 a day are gone"},
		{9999, "user=a", 4, true, 0, "tokens", false, "and 15"},
		{10000, "user=a", 2, false, 12*time.Hour - 10*time.Second, "day", false, "a window has no turns to give"},
		{10000, "user=a", 1, true, 0, "tokens", false, "and what it has denied is charged to no bucket"},
	} {
		attrs, now := request(s.attrs), noon+s.at*ms
		before := atTime(now, c).try(Peek, attrs, 1).Decision
		r, d := atTime(now, c).tryReserve(attrs, s.cost)
		delay := max(r.Delay, d.RetryAfter)
		if d.Allowed != s.want || delay != s.delay || d.Rule != s.by || d.Allowed && (d.Status != 0 || d.Queue || d.RetryAfter != 0) {
			t.Errorf("step %d (%s): %v, %+v", i, s.why, r.Delay, d)
		}
		expect(t, !s.cancel && r.Delay != 0 || atTime(now, r).Cancel() == s.cancel, "step %d (%s): cancelled %v", i, s.why, !s.cancel)
		after := atTime(now, c).try(Peek, attrs, 1).Decision
		expect(t, !s.cancel && s.want || after == before, "step %d (%s): before %+v, after %+v", i, s.why, before, after)
	}
	for _, s := range c.Stats().Rules {
		if s.Rule == "turns" && s.Denied != 0 { // it has had a turn for everybody
			t.Errorf("%+v", s)
		}
	}
}

// TestCancelledReservationsLeaveNothing: reservations made and cancelled in between change no
// decision.
func TestCancelledReservationsLeaveNothing(t *testing.T) {
	given := 0
	rapid.Check(t, func(rt *rapid.T) {
		bare, busy := ofYAML(t, Options{}, reservable), ofYAML(t, Options{}, reservable)
		now := noon
		for range rapid.SampledFrom([]int{10, 40}).Draw(rt, "requests") {
			now += rapid.SampledFrom([]int64{0, 1, 30 * ms, 250 * ms, 1100 * ms}).Draw(rt, "pause")
			requests := []string{"user=a", "user=b turn=1", "user=a turn=1", "user=b rigid=1", "user=a dark=1"}
			attrs := request(rapid.SampledFrom(requests).Draw(rt, "attrs"))
			cost := rapid.Int64Range(1, 4).Draw(rt, "cost")
			if rapid.Bool().Draw(rt, "cancelled") {
				if r, d := atTime(now, busy).tryReserve(attrs, cost); d.Allowed && r.Delay > 0 {
					require(rt, atTime(now, r).Cancel() && !atTime(now, r).Cancel(), "%v: not cancelled once: %+v", attrs, d)
					given++
				} else if d.Allowed { // it has had its turn
					atTime(now, bare).tryReserve(attrs, cost)
				}
			}
			r, want := atTime(now, bare).tryReserve(attrs, cost)
			s, got := atTime(now, busy).tryReserve(attrs, cost)
			require(rt, got == want && r.Delay == s.Delay,
				"%v: %v %+v, without cancelled ones %v %+v", attrs, s.Delay, got, r.Delay, want)
		}
		for _, s := range busy.Stats().Rules {
			require(rt, s.Pending == 0 && s.Charged == s.Answered+s.Cancelled, "%+v", s)
		}
	})
	expect(t, given != 0, "too tame")
}

// TestReservationsAreGivenBackTogether, or not at all: hits that one of the rules has reported
// count.
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
	cancel := func(r Result, want bool, why string) {
		t.Helper()
		cancelled := int64(0)
		got := atTime(now, r).Cancel()
		for _, s := range f.Stats().Rules {
			cancelled += s.Cancelled
		}
		if got != want || cancelled != 4 { // of the first, by two rules
			t.Errorf("%s: cancelled %v, %d hits in all", why, got, cancelled)
		}
	}
	atTime(now, f).tryReserve(attrs, 5)
	first, _ := atTime(now, f).tryReserve(attrs, 2)
	cancel(first, true, "before its turn")
	second, d := atTime(now, f).tryReserve(attrs, 2)
	require(t, d.Allowed && second.Delay == 200*time.Millisecond, "%v, %+v", second.Delay, d)
	now += 60 * ms
	atTime(now, f).Step()
	cancel(second, false, "reported")
	third, d := atTime(now, f).tryReserve(attrs, 1)
	require(t, third.Delay > 0, "%+v, %+v", third, d)
	last := limiter(t, f.Checker, "tokens").core.Group.Lookup([]byte("a")).Lock()
	last.Withdraw(now)
	clear(last.Pending()) // only this one has been reported
	last.Unlock()
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
	_, d := atTime(now, f).tryReserve(user("k"), 1)
	require(t, d.Allowed, "%+v", d)
	before := atTime(now, l).try(Peek, "k", 1).Remaining
	for range 9 { // more often than there are permits
		r, d := atTime(now, f).tryReserve(user("k"), 1)
		require(t, d.Allowed && r.Delay != 0 && atTime(now, r).Cancel(), "%v, %+v", r.Delay, d)
	}
	equal(t, atTime(now, l).try(Peek, "k", 1).Remaining, before, "permits left")
}

// TestCancelAtOnce: of two callers who cancel a reservation at the same time, while others reserve
// and cancel too, one gives it back.
func TestCancelAtOnce(t *testing.T) {
	c := ofYAML(t, Options{}, reservable)
	var given atomic.Int64
	countOf(8, func() bool {
		for range 200 {
			if r, d := atTime(noon, c).tryReserve(request("user=a turn=1"), 1); d.Allowed && r.Delay > 0 {
				given.Add(3 * countOf(2, func() bool { return atTime(noon, r).Cancel() })) // by three rules
			}
		}
		return true
	})
	var charged, cancelled int64
	for _, s := range c.Stats().Rules {
		charged, cancelled = charged+s.Charged, cancelled+s.Cancelled
	}
	expect(t, cancelled == given.Load() && charged-cancelled == 3 && cancelled != 0,
		"%d charged, %d cancelled, %d given back", charged, cancelled, given.Load())
}

// TestReserveReceipt: a caller that has reserved and is not served settles at 0, at any time, and a
// window gets all of it back.
func TestReserveReceipt(t *testing.T) {
	c := ofYAML(t, Options{}, reservable)
	l := limiter(t, c, "day")
	for _, user := range []string{"a", "b"} {
		r, d, receipt := c.tryReserveReceipt(request("user="+user), 6)
		expect(t, !d.Allowed && r.Delay == 0 && receipt == "", "denied: %v, %+v, %q", r.Delay, d, receipt)
		r, d, receipt = c.tryReserveReceipt(request("user="+user), 5)
		require(t, d.Allowed && r.Delay == 0 && receipt != "", "%v, %+v, %q", r.Delay, d, receipt)
		err := c.Settle(receipt, 0)
		expect(t, err == nil && l.try(Peek, user, 1).Remaining == 20, "%v, %d left of 20", err, l.try(Peek, user, 1).Remaining)
	}
	_, d, receipt := limiter(t, c, "turns").tryReserveReceipt("", 1)
	expect(t, d.Allowed && receipt != "", "by key: %+v, %q", d, receipt)
	r, _, receipt := c.tryReserveReceipt(nil, 1)
	expect(t, r.Delay == 0 && receipt != "", "no rule: %q", receipt)
}

// TestCancelAfterSettling: what a receipt has given back is not given back again, without a link.
func TestCancelAfterSettling(t *testing.T) {
	for _, algorithm := range []rules.Algorithm{rules.TokenBucket, rules.LeakyBucket} {
		turns := draining("turns", algorithm, 1, 10, time.Minute, 60)
		turns.OnLimit = rules.OnLimit{Queue: true, MaxWait: time.Hour}
		c := newChecker(t, Options{}, turns)
		l := limiter(t, c, "turns")
		hits := 5 // in the queue, of another bucket
		if algorithm == rules.TokenBucket {
			hits = 10
		}
		for range hits {
			atTime(noon-2*second, l).tryReserve("kristie", 1)
		}
		r := atTime(noon, l).checker().Do(Request{Limiter: l, Key: "kristie", Cost: 3, Mode: Reserve, Receipt: true})
		require(t, r.Allowed && r.Delay > 0, "%v: %+v", algorithm, r)
		mustSettle(t, c, noon, r.Receipt, 0)
		atTime(noon, r).Cancel()
		for _, n := range counterOf(l, "kristie").Totals() {
			expect(t, n >= 0, "%v: %d hits in a bucket", algorithm, n)
		}
	}
}
