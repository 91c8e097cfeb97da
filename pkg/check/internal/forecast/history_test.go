package forecast

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// asLong is the expectation of one hit per ns: then what is expected since some moment is how long
// ago it was.
func asLong(span float64) float64 { return span }

// Random steps are compared with a list of all hits. Within the horizon no part of the time may be
// missing or count twice, wherever in a slot it begins; hits are exact since the beginning of a
// slot, and in proportion between two.
func TestSinceIsWhatAListOfAllHitsSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type hit struct {
			at              int64
			asked, admitted float64
		}
		var hits []hit
		begin, h := noon, newHistory(noon, 1)
		for range rapid.IntRange(1, 60).Draw(t, "hits") {
			before := h.now
			step := rapid.OneOf(rapid.Int64Range(0, slotTime), rapid.Int64Range(0, slotTime), rapid.Int64Range(1, 3*horizon))
			h.advance(h.now+step.Draw(t, "step"), asLong)
			if h.now-before > 2*horizon {
				begin = h.now - horizon            // what was before is forgotten,
				begin += slotTime - begin%slotTime // and the slot that this lies in is not whole
				hits = nil
			}
			n := hit{h.now, float64(rapid.IntRange(0, 9).Draw(t, "asked")), float64(rapid.IntRange(0, 9).Draw(t, "admitted"))}
			h.add(n.asked, n.admitted)
			hits = append(hits, n)
		}
		listed := func(then int64) (n sums) {
			for _, e := range hits {
				if e.at >= then {
					n.asked, n.admitted = n.asked+e.asked, n.admitted+e.admitted
				}
			}
			return n
		}
		ago := rapid.Int64Range(0, min(horizon, h.now-begin)).Draw(t, "ago")
		then := h.now - ago
		floor := then - then%slotTime
		got, most, least := h.since(then), listed(floor), listed(floor+slotTime)
		if floor+slotTime > h.now {
			least = sums{}
		}
		near(t, fmt.Sprint("ns since ", ago, " ns ago"), got.expected, float64(ago), 1)
		if got.asked > most.asked+1e-9 || got.asked < least.asked-1e-9 ||
			got.admitted > most.admitted+1e-9 || got.admitted < least.admitted-1e-9 {
			t.Fatalf("%d ns ago: %+v, want between %+v and %+v", ago, got, least, most)
		}
		if ago > 0 && floor > h.now-horizon { // and so not forgotten
			got := h.since(floor)
			near(t, "asked for since the beginning of a slot", got.asked, most.asked, 1e-9)
			near(t, "admitted since then", got.admitted, most.admitted, 1e-9)
		}
	})
}

// The stretches that glide is asked for make up the time that passed, and are not more than there
// are slots to put them in, however long it was.
func TestAdvanceAsksForAllTime(t *testing.T) {
	for _, gap := range []int64{1, slotTime - 1, slotTime, slotTime + 1, horizon, 2 * horizon, 2*horizon + 1, 3600e9, 1 << 60} {
		for _, at := range []int64{0, 1, slotTime / 3, slotTime - 1} {
			h := newHistory(noon+at, 1)
			calls, sum := 0, 0.0
			h.advance(h.now+gap, func(span float64) float64 {
				expect(t, span > 0, "gap %d: asked for %v ns", gap, span)
				calls++
				sum += span
				return span
			})
			expect(t, calls <= 2*historySlots+1 && math.Abs(sum-float64(gap)) <= 1e-9*float64(gap),
				"gap %d: asked %d times, for %v ns in all", gap, calls, sum)
			expect(t, h.now == noon+at+gap, "gap %d: now is %d", gap, h.now-noon-at)
		}
	}
}

func TestSinceIsInProportionInsideASlot(t *testing.T) {
	h := newHistory(noon, 1)
	h.advance(noon+2*ms, asLong)
	h.add(8, 4)
	for then, part := range map[int64]float64{
		noon: 1, noon + ms: 0.5, noon + 2*ms: 0, noon + 9*ms: 0, noon - 3600e9: 1, // an hour ago: all that is remembered
	} {
		got, want := h.since(then), (sums{8 * part, 4 * part, 2e6 * part})
		expect(t, got == want, "%d ns after noon: %+v, want %+v", then-noon, got, want)
	}
	h.advance(noon+4*ms, asLong)
	near(t, "later the hits are spread over more time", h.since(noon+ms).asked, 6, 0)
}

// Goroutines read the clock in one order and come in another.
func TestTimeThatGoesBack(t *testing.T) {
	h := newHistory(noon+fast, 1)
	h.add(1, 1)
	h.advance(noon+fast-1, func(float64) float64 { t.Error("glided through time that had passed"); return 0 })
	h.advance(noon+fast, func(float64) float64 { t.Error("glided through no time"); return 0 })
	h.add(1, 1)
	h.advance(noon+fast+1, asLong)
	near(t, "both hits", h.since(noon+fast).asked, 2, 0)

	k := newKey(1)
	k.Note(fromNoon(5), 3, 2)
	k.Note(fromNoon(4), 3, 2)
	k.Note(fromNoon(5), 3, 2)
	got := k.history.since(noon)
	near(t, "asked for", got.asked, 9, 0)
	near(t, "admitted", got.admitted, 6, 0)
	near(t, "expected, 1 per ms", got.expected, 5, 1e-9)
	d := got.minus(sums{1, 2, 3})
	expect(t, d == (sums{8, 4, got.expected - 3}), "less (1, 2, 3): %+v", d)
}

// What came since the last update can be told however slow the updates are.
func TestLongTicksNeedALongHistory(t *testing.T) {
	h := newHistory(noon, fast)
	h.advance(noon+fast, asLong)
	if h.fit(2 * fast); h.horizon() != horizon || h.since(noon).expected == 0 {
		t.Errorf("with short intervals it reaches back %d ns and has forgotten what there was", h.horizon())
	}
	const slow = 128 * ms
	h.fit(slow)
	for range 100 {
		h.advance(h.now+slow/10, asLong)
	}
	near(t, "expected in three slow intervals", h.since(h.now-3*slow).expected, float64(3*slow), 1)
	if h.fit(fast); h.horizon() < 3*slow {
		t.Error("one short interval makes it forget")
	}
}
