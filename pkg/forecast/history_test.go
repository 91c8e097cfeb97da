package forecast

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// asLong is the expectation of one hit per ns: then what is expected since some moment is how long ago it was.
func asLong(span float64) float64 { return span }

// TestSinceKnowsHowLong walks in random steps; within the horizon no part of the time may be missing or
// count twice, wherever in a slot it begins.
func TestSinceKnowsHowLong(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(noon, 1)
		begin, gap := noon, 3*horizon
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			before := h.now
			h.advance(h.now+rapid.Int64Range(1, gap).Draw(t, "step"), asLong)
			if h.now-before > 2*horizon {
				begin = h.now - horizon            // what was before is forgotten,
				begin += slotTime - begin%slotTime // and the slot that this lies in is not whole
			}
			ago := rapid.Int64Range(0, min(horizon, h.now-begin)).Draw(t, "ago")
			want := float64(ago)
			if got := h.since(h.now - ago).expected; math.Abs(got-want) > 1 {
				t.Fatalf("%d ns ago: %v ns since then", ago, got)
			}
		}
	})
}

// TestAdvanceAsksForAllTime: the stretches that glide is asked for make up the time that passed, and are
// not more than there are slots to put them in, however long it was.
func TestAdvanceAsksForAllTime(t *testing.T) {
	for _, gap := range []int64{1, slotTime - 1, slotTime, slotTime + 1, horizon, 2 * horizon, 2*horizon + 1, 3600e9, 1 << 60} {
		for _, at := range []int64{0, 1, slotTime / 3, slotTime - 1} {
			h := newHistory(noon+at, 1)
			calls, sum := 0, 0.0
			h.advance(h.now+gap, func(span float64) float64 {
				if span <= 0 {
					t.Errorf("gap %d: asked for %v ns", gap, span)
				}
				calls++
				sum += span
				return span
			})
			if calls > 2*historySlots+1 || math.Abs(sum-float64(gap)) > 1e-9*float64(gap) {
				t.Errorf("gap %d: asked %d times, for %v ns in all", gap, calls, sum)
			}
			if h.now != noon+at+gap {
				t.Errorf("gap %d: now is %d", gap, h.now-noon-at)
			}
		}
	}
}

// TestSinceCountsOwnHits compares with a list of all hits. At the beginning of a slot it is exact, between two it lies
// between them.
func TestSinceCountsOwnHits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type hit struct {
			at              int64
			asked, admitted float64
		}
		var hits []hit
		h := newHistory(noon+rapid.Int64Range(0, slotTime).Draw(t, "begin"), 1)
		for range rapid.IntRange(1, 60).Draw(t, "hits") {
			h.advance(h.now+rapid.Int64Range(0, slotTime).Draw(t, "step"), asLong)
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
		ago := rapid.Int64Range(1, horizon).Draw(t, "ago")
		then := h.now - ago
		floor := then - then%slotTime
		got, most, least := h.since(then), listed(floor), listed(floor+slotTime)
		if floor+slotTime > h.now {
			least = sums{}
		}
		if got.asked > most.asked+1e-9 || got.asked < least.asked-1e-9 ||
			got.admitted > most.admitted+1e-9 || got.admitted < least.admitted-1e-9 {
			t.Fatalf("%d ns ago: %+v, want between %+v and %+v", ago, got, least, most)
		}
		if floor > h.now-horizon { // and so not forgotten
			if got := h.since(floor); math.Abs(got.asked-most.asked) > 1e-9 || math.Abs(got.admitted-most.admitted) > 1e-9 {
				t.Fatalf("since the beginning of a slot: %+v, want %+v", got, most)
			}
		}
	})
}

func TestSinceInsideOneSlot(t *testing.T) {
	h := newHistory(noon, 1)
	h.advance(noon+2*ms, asLong)
	h.add(8, 4)
	for _, test := range []struct {
		then            int64
		asked, admitted float64
		why             string
	}{
		{noon, 8, 4, "the beginning of the slot"},
		{noon + ms, 4, 2, "half of it has passed since"},
		{noon + 2*ms, 0, 0, "now: nothing came since"},
		{noon + 9*ms, 0, 0, "not yet"},
		{noon - 3600e9, 8, 4, "long ago: all that is remembered"},
	} {
		got := h.since(test.then)
		near(t, test.why+", asked", got.asked, test.asked, 0)
		near(t, test.why+", admitted", got.admitted, test.admitted, 0)
	}
	h.advance(noon+4*ms, asLong)
	near(t, "later the hits are spread over more time", h.since(noon+ms).asked, 6, 0)
}

// TestSlotsAreForgotten: a slot that comes again in the ring holds nothing of what it held before.
func TestSlotsAreForgotten(t *testing.T) {
	for _, gap := range []int64{historySlots * slotTime, 2 * horizon, 2*horizon + 1, 100 * horizon} {
		h := newHistory(noon, 1)
		h.add(5, 5)
		h.advance(noon+horizon-1, asLong)
		near(t, "within the horizon", h.since(noon).asked, 5, 0)
		h.advance(noon+gap, asLong)
		near(t, "beyond it", h.since(noon).asked, 0, 0)
	}
}

// TestTimeThatGoesBack: goroutines read the clock in one order and come in another.
func TestTimeThatGoesBack(t *testing.T) {
	h := newHistory(noon+tick, 1)
	h.add(1, 1)
	h.advance(noon+tick-1, func(float64) float64 { t.Error("glided through time that had passed"); return 0 })
	h.advance(noon+tick, func(float64) float64 { t.Error("glided through no time"); return 0 })
	h.add(1, 1)
	h.advance(noon+tick+1, asLong)
	near(t, "both hits", h.since(noon+tick).asked, 2, 0)

	k := newKey(1)
	k.Note(fromNoon(5), 3, 2)
	k.Note(fromNoon(4), 3, 2)
	k.Note(fromNoon(5), 3, 2)
	got := k.history.since(noon)
	near(t, "asked for", got.asked, 9, 0)
	near(t, "admitted", got.admitted, 6, 0)
	near(t, "expected, 1 per ms", got.expected, 5, 1e-9)
	if d := got.minus(sums{1, 2, 3}); d != (sums{8, 4, got.expected - 3}) {
		t.Errorf("less (1, 2, 3): %+v", d)
	}
}

// TestLongTicksNeedALongHistory: what came since the last word can be told however slow the words are.
func TestLongTicksNeedALongHistory(t *testing.T) {
	h := newHistory(noon, tick)
	h.advance(noon+tick, asLong)
	if h.fit(2 * tick); h.horizon() != horizon || h.since(noon).expected == 0 {
		t.Errorf("with short ticks it reaches back %d ns and has forgotten what there was", h.horizon())
	}
	const slow = 128 * ms
	h.fit(slow)
	for range 100 {
		h.advance(h.now+slow/10, asLong)
	}
	near(t, "expected in three slow ticks", h.since(h.now-3*slow).expected, float64(3*slow), 1)
	if h.fit(tick); h.horizon() < 3*slow {
		t.Error("one short tick makes it forget")
	}
}
