package check

import (
	"math"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/window"
)

var (
	oneSecond = window.Shape{Length: time.Second, Buckets: 1}
	fixed     = window.Shape{Length: time.Second, Buckets: 1, Fixed: true}
	tenth     = window.Shape{Length: time.Second, Buckets: 10, Kind: window.Log}
)

// TestHindsight: 10 denials at some time between points at 100 and 132 ms under a limit of 1000, which are judged when the word of
// 164 ms has come.
func TestHindsight(t *testing.T) {
	for _, tt := range []struct {
		why           string
		shape         window.Shape
		before, after point
		at, cost      int64 // ms, hits
		falsely       int64
	}{
		{"full all the time", oneSecond, point{0, 1000, 0, 0}, point{0, 1000, 0, 32}, 116, 1, 0},
		{"at 98 %, which is within the band", oneSecond, point{0, 980, 0, 0}, point{0, 980, 0, 0}, 116, 1, 0},
		{"just below", oneSecond, point{0, 979, 0, 0}, point{0, 979, 0, 0}, 116, 1, 10},
		{"just below, for a dearer hit", oneSecond, point{0, 979, 0, 0}, point{0, 979, 0, 0}, 116, 2, 0},
		{"half empty", oneSecond, point{0, 500, 0, 0}, point{0, 500, 0, 16}, 116, 1, 10},
		{"what was added may have come before", oneSecond, point{0, 900, 0, 0}, point{0, 1000, 0, 100}, 104, 1, 0},
		{"as much as was added was freed, but later", oneSecond, point{0, 500, 0, 0}, point{0, 500, 0, 600}, 104, 1, 0},
		{"what was freed had not been then", oneSecond, point{0, 1000, 0, 0}, point{0, 900, 0, 0}, 104, 1, 0},
		{"most of it had", oneSecond, point{0, 1000, 0, 0}, point{0, 900, 0, 0}, 130, 1, 10},
		{"a fixed window frees nothing within", fixed, point{0, 1000, 0, 0}, point{0, 900, 0, 0}, 130, 1, 0},
		{"a log frees a bucket at once, which had ended", tenth, point{0, 1000, 0, 0}, point{0, 900, 0, 0}, 131, 1, 0},
		{"before the first point", oneSecond, point{0, 500, 0, 0}, point{0, 500, 0, 0}, 99, 1, 0},
		{"after the second point", oneSecond, point{0, 500, 0, 0}, point{0, 500, 0, 0}, 133, 1, 0},
	} {
		var h hindsight
		h.doubt(noon+tt.at*ms, tt.cost, 10)
		learn := func(p point, at int64) int64 {
			p.at = noon + at*ms
			return h.learn(p, true, 4*ms, tt.shape, 1000, 8)
		}
		if n := learn(tt.before, 100) + learn(tt.after, 132); n != 0 {
			t.Errorf("%s: %d judged before all words have come", tt.why, n)
		}
		if got := learn(point{0, 2000, 0, 2000}, 164); got != tt.falsely {
			t.Errorf("%s: %d false denials, want %d", tt.why, got, tt.falsely)
		}
	}
}

// TestWhenHitsCame: of 400 hits that were added between two points, under a count that was 700 and is 1100 in the end, as many had come by
// the time of a denial as this checker's own ones make likely.
func TestWhenHitsCame(t *testing.T) {
	for _, tt := range []struct {
		why             string
		own, before     int64 // own hits of the 400, and of these those before the denial
		known, expected float64
	}{
		{"none of its own: all may have come before", 0, 0, 0, 1100},
		{"its part of the fleet's, a quarter before: so are others'", 50, 12, 0, 1100 - 38 - 350*0.76*50/54},
		{"all after", 50, 50, 0, 1100},
		{"two of its own say little", 2, 0, 0, 1100 - 2 - 398*0.04*2/6},
		{"half its part, none before: half of others' come as its own", 25, 0, 0, 1100 - 25 - 375*0.5*25/29},
		{"traffic has wandered here: most of others' had come before", 200, 0, 0, 1100 - 200 - 200*0.25*200/204},
		{"all are its own", 400, 100, 0, 700 + 100},
		{"more was known", 50, 0, 1000, 1000},
	} {
		h := hindsight{before: point{noon, 700, 0, 0}, last: point{noon + 32*ms, 1100, tt.own, 400 - tt.own}}
		d := doubt{at: noon + 16*ms, own: tt.before, known: tt.known}
		if got := h.countAt(&d, oneSecond, 8); math.Abs(got-tt.expected) > 1e-6 {
			t.Errorf("%s: count %v, want %v", tt.why, got, tt.expected)
		}
	}
}

// TestLateWordsCompleteARound: a word of the round of the last point counts even if nobody would be sure to report in that round by
// now; one of another such round does not.
func TestLateWordsCompleteARound(t *testing.T) {
	var h hindsight
	learn := func(at int64, count float64, whole bool) int64 {
		return h.learn(point{noon + at*ms, count, 0, 0}, whole, 4*ms, oneSecond, 1000, 8)
	}
	learn(100, 900, true)
	h.doubt(noon+104*ms, 1, 10)
	learn(108, 900, true)
	learn(108, 1000, false)
	learn(116, 900, false)
	if h.last.at != noon+108*ms || h.last.count != 1000 {
		t.Errorf("the last point is %d ms, %v", (h.last.at-noon)/ms, h.last.count)
	}
	if got := learn(132, 900, true); got != 0 {
		t.Errorf("%d false denials", got)
	}
}

// TestHindsightAcrossBuckets: what leaves at once has left from the edge on, and not before.
func TestHindsightAcrossBuckets(t *testing.T) {
	for at, want := range map[int64]int64{990: 0, 1010: 10} {
		var h hindsight
		h.doubt(noon+at*ms, 1, 10)
		h.learn(point{noon + 980*ms, 1000, 0, 0}, true, 4*ms, fixed, 1000, 8)
		h.learn(point{noon + 1020*ms, 0, 0, 0}, true, 4*ms, fixed, 1000, 8)
		if got := h.learn(point{noon + 1040*ms, 0, 0, 0}, true, 4*ms, fixed, 1000, 8); got != want {
			t.Errorf("at %d ms: %d false denials, want %d", at, got, want)
		}
	}
}

// TestHindsightOfOneRound: further words of a round complete it, late ones of earlier rounds say nothing, and after a long silence nothing
// is known.
func TestHindsightOfOneRound(t *testing.T) {
	for _, tt := range []struct {
		why          string
		further, end int64 // ms: when the further word was made, and the second point
		falsely      int64
	}{
		{"another aggregator's word of the round", 101, 132, 0},
		{"a late word of an earlier one", 60, 132, 10},
		{"a silence of more than a second", 60, 1200, 0},
	} {
		var h hindsight
		learn := func(at int64, count float64) int64 {
			return h.learn(point{noon + at*ms, count, 0, 0}, true, 4*ms, oneSecond, 1000, 8)
		}
		learn(100, 500)
		learn(tt.further, 1500)
		h.doubt(noon+116*ms, 1, 10)
		learn(tt.end, 500)
		if got := learn(tt.end+32, 500); got != tt.falsely {
			t.Errorf("%s: %d false denials, want %d", tt.why, got, tt.falsely)
		}
	}
}

// TestLateDoubt: a denial that is noted after the points of its time have gone is not judged by those that are there.
func TestLateDoubt(t *testing.T) {
	var h hindsight
	for at := range int64(4) {
		h.learn(point{noon + at*32*ms, 0, 0, 0}, true, 4*ms, oneSecond, 1000, 8)
	}
	h.doubt(noon+40*ms, 1, 10)
	if got := h.learn(point{noon + 128*ms, 0, 0, 0}, true, 4*ms, oneSecond, 1000, 8); got != 0 || h.doubts.n != 0 {
		t.Errorf("%d false denials, %d doubts left", got, h.doubts.n)
	}
}

// TestManyDoubts: none is forgotten when there are more than can be told apart.
func TestManyDoubts(t *testing.T) {
	var h hindsight
	h.learn(point{noon, 0, 0, 0}, true, 4*ms, oneSecond, 1000, 8)
	for i := range int64(100) {
		h.doubt(noon+(i+1)*3*ms, 1, 2)
	}
	h.learn(point{noon + 400*ms, 0, 0, 0}, true, 4*ms, oneSecond, 1000, 8)
	if got := h.learn(point{noon + 500*ms, 0, 0, 0}, true, 4*ms, oneSecond, 1000, 8); got != 200 {
		t.Errorf("%d false denials, want 200", got)
	}
	if h.doubts.n != 0 {
		t.Errorf("%d doubts are left", h.doubts.n)
	}
}

// TestDoubtsSpread: however many there are, they stay apart as well as there is room for.
func TestDoubtsSpread(t *testing.T) {
	var h hindsight
	for i := range int64(1000) {
		h.doubt(noon+i*ms, 1+i%3, 1)
	}
	d, n := h.doubts, int64(0)
	if d.n < len(d.all)/2 {
		t.Errorf("only %d", d.n)
	}
	for i, one := range d.all[:d.n] {
		n += one.denials
		if one.cost != 3 {
			t.Errorf("the dearest hit of %d cost %d", i, one.cost)
		}
		if i > 0 {
			if apart := one.at - d.all[i-1].at; apart < 100*ms || apart > 300*ms {
				t.Errorf("%d ns after the one before", apart)
			}
		}
	}
	if n != 1000 {
		t.Errorf("%d denials of 1000", n)
	}
}
