package endtoend

import (
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/testing/membus"
)

// TestClocksApart runs fleets whose checkers' clocks are up to an hour wrong, over networks that
// delay, lose and repeat hellos as well. Then the truth is not exact to the hit, since nobody's time
// is; but every hit is accounted for, and once the clocks are corrected hits of a wrong clock are
// counted where they belong, not refused and not late.
func TestClocksApart(t *testing.T) {
	schedules := uint64(600)
	if testing.Short() {
		schedules = 20
	}
	var admitted, late, refused int64
	for seed := range schedules {
		faults := randomFaults(seed)
		faults.Only = nil
		w := newWorld(t, seed, 1+int(seed%4), 1+int(seed/4%3), 1+int(seed/12%3), faults)
		w.skew = make([]int64, len(w.checkers))
		for i := range w.skew {
			most := int64(2 * time.Second)
			if seed%10 == 0 {
				most = int64(time.Hour)
			}
			w.skew[i] = w.rand.Int64N(2*most) - most
		}
		for range 150 {
			i := w.rand.IntN(len(w.checkers))
			l, _ := w.checkers[i].Limiter(testRules[w.rand.IntN(len(testRules))].Name)
			if l.CheckAt(w.now+w.skew[i], "k", 1).Allowed {
				w.admitted++
			}
			w.advance(time.Duration(w.rand.Int64N(int64(30 * time.Millisecond))))
		}
		w.settle()
		w.conserved()
		admitted += w.admitted
		for _, r := range w.ledger() {
			late, refused = late+r.Late, refused+r.Refused
		}
	}
	t.Logf("%d schedules: %d hits admitted and found in the ledger, %d late, %d refused", schedules, admitted, late, refused)
	if refused > 0 {
		t.Errorf("%d hits were refused as of the future: their clock had been corrected", refused)
	}
}

// TestSkewedCheckersShareAWindow: checkers 2 s behind and ahead of the fleet, on a good network,
// count into the same buckets of a second as everybody else.
func TestSkewedCheckersShareAWindow(t *testing.T) {
	w := newWorld(t, 5, 3, 2, 1, membus.Faults{Delay: 2 * time.Millisecond})
	w.skew = []int64{-int64(2 * time.Second), 0, int64(2 * time.Second)}
	w.advance(time.Second)
	for i, c := range w.checkers { // 15 of 20 per second: five on each
		l, _ := c.Limiter("second")
		if !l.CheckAt(w.now+w.skew[i], "k", 5).Allowed {
			t.Fatal("denied")
		}
	}
	w.advance(100 * time.Millisecond)
	for i, c := range w.checkers {
		l, _ := c.Limiter("second")
		if d := l.CheckAt(w.now+w.skew[i], "k", 6); d.Allowed {
			t.Errorf("%s, %v off, let 21 of 20 pass: %+v", c.name, time.Duration(w.skew[i]), d)
		}
	}
	if r := w.ledger()["second"]; r.Counted != 15 || r.Late != 0 {
		t.Errorf("the ledger: %+v, want 15 counted", r)
	}
}

// TestTheStoresClockIsSet: another node with another clock takes over, or somebody sets the clock.
// The fleet follows it together, and goes on counting.
func TestTheStoresClockIsSet(t *testing.T) {
	for _, step := range []time.Duration{-time.Minute, -7 * time.Second, 4 * time.Second, time.Minute} {
		w := newWorld(t, 9, 2, 2, 1, membus.Faults{Delay: 2 * time.Millisecond})
		shift := time.Duration(0)
		w.store.clock = func() time.Time { return time.Unix(0, w.now).Add(shift) }
		w.advance(5 * time.Second)
		shift = step
		minutes := int(step.Abs()/time.Minute)*41 + 6
		for range minutes * 60 {
			for _, c := range w.checkers {
				l, _ := c.Limiter("second")
				if l.CheckAt(w.now, "k", 1).Allowed {
					w.admitted++
				}
			}
			w.advance(time.Second)
		}
		w.settle()
		w.conserved()
		if r := w.ledger()["second"]; r.Late > 0 || r.Refused > 0 {
			t.Errorf("a step of %v: %+v", step, r)
		}
		for _, c := range w.checkers {
			if off := c.Stats().ClockOffset - step; off.Abs() > 20*time.Millisecond {
				t.Errorf("a step of %v: in the end %s is %v off", step, c.name, off)
			}
		}
	}
}
