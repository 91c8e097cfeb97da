package endtoend

import (
	"testing"
	"time"
)

// TestHitsOfWrongClocksAreCounted runs fleets whose checkers' clocks are up to an hour wrong, over networks that delay,
// lose and repeat hellos as well. Nobody's time is exact then, so the truth is not exact to the hit; but every hit is
// accounted for, and once the clocks are corrected hits of a wrong clock are counted where they belong, not refused.
func TestHitsOfWrongClocksAreCounted(t *testing.T) {
	happened := seen{}
	for seed := range seeds(12, 400) {
		faults := faultsOf(seed)
		faults.Only = nil
		w := newWorld(t, options{seed: seed, faults: faults})
		w.skewClocks(2 * time.Second)
		if seed%10 == 0 {
			w.skewClocks(time.Hour)
		}
		for range 150 {
			i := w.rand.IntN(len(w.checkers))
			l, _ := w.checkers[i].Limiter(testRules[w.rand.IntN(len(testRules))].Name)
			if l.Check("k", 1).Allowed {
				w.admitted++
			}
			w.pass(30 * time.Millisecond)
		}
		w.mend()
		w.conserved()
		for name, r := range w.ledger() {
			w.require(r.Refused == 0,
				"%d hits of %s were refused as of the future: their clock had been corrected", r.Refused, name)
		}
		w.asked += 150
		happened.add(w)
	}
	happened.all(t)
}

// TestSkewedCheckersShareAWindow: checkers 2 s behind and ahead of the fleet, on a good network,
// count into the same buckets of a second as everybody else.
func TestSkewedCheckersShareAWindow(t *testing.T) {
	w := newWorld(t, wellConnected(5, 3))
	w.skew = []int64{-int64(2 * time.Second), 0, int64(2 * time.Second)}
	w.advance(time.Second)
	ask := func(i int, cost int64) bool {
		l, _ := w.checkers[i].Limiter("second")
		return l.Check("k", cost).Allowed
	}
	for i := range w.checkers { // 15 of 20 per second: five on each
		require(t, ask(i, 5), "denied")
	}
	w.advance(100 * time.Millisecond)
	for i := range w.checkers {
		if ask(i, 6) {
			t.Errorf("a checker that is %v off let 21 of 20 pass", time.Duration(w.skew[i]))
		}
	}
	r := w.ledger()["second"]
	expect(t, r.Counted == 15 && r.Late == 0, "the ledger: %+v, want 15 counted", r)
}

// TestFleetFollowsTheStoresClock: another node with another clock takes over, or somebody sets the
// clock. The fleet follows it together, and goes on counting.
func TestFleetFollowsTheStoresClock(t *testing.T) {
	steps := []time.Duration{-7 * time.Second, 4 * time.Second}
	if !testing.Short() { // clocks slew: that takes 41 times as long as the step
		steps = append(steps, -time.Minute, time.Minute)
	}
	for _, step := range steps {
		w := newWorld(t, wellConnected(9, 2))
		shift := time.Duration(0)
		w.store.clock = func() time.Time { return time.Unix(0, w.now).Add(shift) }
		w.advance(5 * time.Second)
		shift = step
		minutes := int(step.Abs()/time.Minute)*41 + 6
		for range minutes * 60 {
			for _, c := range w.checkers {
				w.request(c, "second", "k", 1)
			}
			w.advance(time.Second)
		}
		w.mend()
		w.conserved()
		r := w.ledger()["second"]
		expect(t, r.Late == 0 && r.Refused == 0, "a step of %v: %+v", step, r)
		for _, c := range w.checkers {
			off := c.Stats().ClockOffset - step
			expect(t, off.Abs() <= 20*time.Millisecond, "a step of %v: in the end %s is %v off", step, c.name, off)
		}
	}
}
