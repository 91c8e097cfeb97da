package endtoend

import (
	"slices"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/testing/membus"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/window"
)

// TestHitsOfWrongClocksAreCounted runs fleets whose checkers' clocks are up to an hour wrong, over
// networks that delay, lose and repeat hellos as well. Nobody's time is exact then, so the truth is
// not exact to the hit; but every hit is accounted for, and once the clocks are corrected hits of a
// wrong clock are counted where they belong, not refused.
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
			w.request(w.anyone(), testRules[w.rand.IntN(len(testRules))].Name, "k", 1)
			w.pass(30 * time.Millisecond)
		}
		w.mend()
		w.conserved()
		for name, r := range w.ledger() {
			w.require(r.Refused == 0,
				"%d hits of %s were refused as of the future: their clock had been corrected", r.Refused, name)
		}
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
	for _, c := range w.checkers { // 15 of 20 per second: five on each
		require(t, w.request(c, "second", "k", 5), "denied")
	}
	w.advance(100 * time.Millisecond)
	for i, c := range w.checkers {
		expect(t, !w.request(c, "second", "k", 6), "a checker that is %v off let 21 of 20 pass", time.Duration(w.skew[i]))
	}
	r := w.ledger()["second"]
	expect(t, r.Counted == 15 && r.Late == 0, "the ledger: %+v, want 15 counted", r)
}

// TestAClockThatJumpsAheadComesBack: a machine gets another clock, a minute ahead, or its fleet's
// time was a minute ahead when the machine joined. Hits of the future are refused until eight
// welcomes have shown it. Then the clock steps back, and hits are counted as before: none is lost
// or counted twice.
func TestAClockThatJumpsAheadComesBack(t *testing.T) {
	for seed := range seeds(4, 60) {
		o := wellConnected(seed, 3)
		o.shards = 2
		w := newWorld(t, o)
		w.skew = make([]int64, 3)
		traffic := func(d time.Duration) (allowed int) {
			for until := w.now + int64(d); w.now < until; w.pass(100 * time.Millisecond) {
				c := w.anyone()
				passes := w.request(c, testRules[w.rand.IntN(len(testRules))].Name, w.key(5), 1)
				if passes && c == w.checkers[0] {
					allowed++
				}
			}
			return allowed
		}
		traffic(5 * time.Second)
		w.skew[0] = int64(time.Minute)
		traffic(20 * time.Second)
		off := w.checkers[0].Stats().ClockOffset + time.Minute
		w.require(off.Abs() <= 20*time.Millisecond, "after ten welcomes the clock is %v off", off)
		refused := func() (n int64) {
			for _, r := range w.ledger() {
				n += r.Refused
			}
			return n
		}
		w.advance(time.Second) // what is in flight
		before := refused()
		w.require(before > 0, "no hit was refused before")
		w.require(traffic(20*time.Second) > 0, "no hit is allowed after the step")
		w.mend()
		w.conserved()
		w.require(refused() == before, "%d hits were refused, %d before the step", refused(), before)
	}
}

// TestTheFleetsTimeGoesOn: another node with another clock takes over, or somebody sets the clock,
// and aggregators are replaced, one or all. The fleet's time goes on: limits hold, no hit is late
// or refused, strict limits neither let too many pass nor starve.
func TestTheFleetsTimeGoesOn(t *testing.T) {
	const limit, strictLimit = 1000, 100
	shape := window.Shape{Length: time.Second, Buckets: 1}
	for _, tt := range []struct {
		step     time.Duration
		replaced int
	}{
		{-time.Minute, 2}, {30 * time.Second, 1}, {-time.Minute, 1}, {-time.Minute, 0}, {30 * time.Second, 2}, {30 * time.Second, 0},
	}[:seeds(1, 6)] {
		step, replaced := tt.step, tt.replaced
		r := strictly(counting("strict", strictLimit, shape))
		w := newWorld(t, wellConnected(9, 4, append(r, counting("loose", limit, shape))...))
		shift := time.Duration(0)
		w.store.clock = func() time.Time { return time.Unix(0, w.now).Add(shift) }
		w.meet()
		seconds := func(n int) (loose, strict int64) {
			for i := range int64(n) * 2 * limit {
				c := w.checkers[i%4]
				if w.request(c, "loose", "k", 1) {
					loose++
				}
				if i%10 == 0 && w.request(w.checkers[i/10%4], "strict", "k", 1) {
					strict++
				}
				w.advance(time.Second / (2 * limit))
			}
			return loose, strict
		}
		seconds(2)
		shift = step
		for life := range 5 {
			loose, strict := seconds(4)
			t.Logf("%v, %d replaced, %d: %d of 4000 pass, %d of 400", step, replaced, life, loose, strict)
			expect(t, loose >= 3920 && loose <= 4080, "a step of %v, %d replaced: %d pass in 4 s, want 4000", step, replaced, loose)
			expect(t, strict >= 376 && strict <= 400+strictLimit/20,
				"a step of %v, %d replaced: %d strict ones pass in 4 s, want 400", step, replaced, strict)
			if life < replaced {
				w.killWorker(life)
			}
		}
		w.mend()
		w.conserved()
		for name, r := range w.ledger() {
			expect(t, r.Late == 0 && r.Refused == 0, "a step of %v, %d replaced: %s %+v", step, replaced, name, r)
		}
		for _, c := range w.checkers {
			off := c.Stats().ClockOffset
			expect(t, off.Abs() <= 50*time.Millisecond, "a step of %v: in the end %s is %v off", step, c.name, off)
		}
	}
}

// TestNobodyIsToldTooFewCheckers: NATS is away for longer than checkers are remembered, and
// aggregators crash again and again. Whatever checkers are told of their number, their shares of a
// limit do not add up to more than it.
func TestNobodyIsToldTooFewCheckers(t *testing.T) {
	for _, checkers := range []int{8, 32}[:seeds(1, 2)] {
		for _, workers := range []int{1, 3} {
			o := wellConnected(uint64(checkers), checkers)
			o.workers = workers
			w := newWorld(t, o)
			told := make([]uint32, checkers)
			for i, c := range w.checkers {
				c.link.Attach(func(kind events.Kind, payload []byte) {
					if m, err := events.DecodeWelcome(payload); kind == events.KindWelcome && err == nil && m.Checkers > 0 {
						told[i] = m.Checkers
					}
					c.Receive(kind, payload)
				})
			}
			most := 0.0
			pass := func(d time.Duration) {
				for end := w.now + int64(d); w.now < end; w.advance(10 * time.Millisecond) {
					sum := 0.0
					for _, n := range told {
						if n > 0 {
							sum += 1 / float64(n)
						}
					}
					most = max(most, sum)
				}
			}
			pass(5 * time.Second)
			known := !slices.Contains(told, 0)
			for _, away := range []time.Duration{5 * time.Second, 15 * time.Second, time.Minute} {
				w.bus.SetFaults(membus.Faults{Lose: 1})
				pass(away)
				w.bus.SetFaults(w.faults)
				pass(5 * time.Second)
			}
			flap := most
			for _, life := range []time.Duration{500 * time.Millisecond, 1300 * time.Millisecond, 3 * time.Second} {
				for n := range 12 {
					w.killWorker(n % workers)
					pass(life)
				}
			}
			t.Logf("%d checkers, %d aggregators: the shares add up to %.2f after flaps, %.2f after crashes", checkers, workers, flap, most)
			expect(t, known && most <= 1.05, "%d checkers, %d aggregators: they are told %v, %.2f of the limit", checkers, workers, told, most)
		}
	}
}
