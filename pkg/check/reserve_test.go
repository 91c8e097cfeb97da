package check

import (
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/rules"
)

// queueing is a leaky bucket of 10 a second with room for 5, tokening a token bucket of the same, in
// buckets of 10 ms.
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

// TestReservedTurnsAreExact, to the nanosecond, wherever in a bucket own hits came.
func TestReservedTurnsAreExact(t *testing.T) {
	_, l := checkerAndLimiter(t, Options{}, queueing())
	for i, step := range []struct{ at, wait int64 }{{103, 0}, {104, 99}, {205, 98}, {1007, 0}, {1008, 99}, {1009, 198}} {
		if r, d := l.ReserveAt(noon+step.at*ms, "k", 1); !d.Allowed || r.Delay != time.Duration(step.wait*ms) {
			t.Errorf("hit %d, after %d ms: %+v, a wait of %v, want %d ms", i, step.at, d, r.Delay, step.wait)
		}
	}
}

// TestReserveWithinLocalShare: a checker that keeps to its share lets callers wait until they fit that,
// and not until they would fit the whole bucket.
func TestReserveWithinLocalShare(t *testing.T) {
	c := newChecker(t, Options{Link: new(tape), ExpectCheckers: 8}, draining("r", rules.TokenBucket, 10, 80, time.Second, 50))
	c.Step(noon)
	l := limiter(t, c, "r")
	if _, d := l.ReserveAt(noon, "dear", 11); d.Allowed || d.Freshness != LocalShare {
		t.Errorf("more than the share ever holds: %+v", d)
	}
	var delays []time.Duration
	for {
		r, d := l.ReserveAt(noon, "k", 1)
		if !d.Allowed {
			break
		}
		delays = append(delays, r.Delay)
	}
	if len(delays) != 20 { // a full share, and as many that are owed
		t.Fatalf("%d hits: %v", len(delays), delays)
	}
	for i, delay := range delays {
		want := max(time.Duration(i-9), 0) * 800 * time.Millisecond // an eighth of the rate
		if delay < want || delay > want+20*time.Millisecond {
			t.Errorf("hit %d waits for %v, want %v", i, delay, want)
		}
	}
}

// TestCancel: a cancelled reservation leaves its place to others, once, before its turn, and unless it
// has been reported.
func TestCancel(t *testing.T) {
	for _, r := range []rules.Rule{queueing(), tokening()} {
		f, l := fleetAndLimiter(t, Options{}, r)
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
		reported, _ := l.ReserveAt(at, "k", 1)
		f.Step(at)
		if reported.CancelAt(at) {
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
