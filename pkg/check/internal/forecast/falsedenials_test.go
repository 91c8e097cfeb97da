package forecast

import (
	"fmt"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/window"
)

var (
	oneSecond = window.Shape{Length: time.Second, Buckets: 1}
	fixed     = window.Shape{Length: time.Second, Buckets: 1, Fixed: true}
	tenth     = window.Shape{Length: time.Second, Buckets: 10, Kind: window.Log}
)

// judge estimates false denials under a limit of 1000 in a fleet of eight.
type judge struct {
	FalseDenials
	shape window.Shape
}

// learn takes in a point of a whole round, and returns how many denials turn out to have been
// false.
func (j *judge) learn(at, count int64) int64 {
	return j.learnPoint(at, point{count: float64(count)}, true)
}

func (j *judge) learnPoint(at int64, p point, whole bool) int64 {
	j.own, j.others = p.own, p.others
	r := Round{At: noon + at*ms, Count: p.count, Whole: whole, FastInterval: fast}
	if j.Ignores(r.At, fast, whole) {
		return 0
	}
	return j.Judge(r, j.shape, 1000, 8)
}

func (j *judge) deny(at, cost, denials int64) {
	j.Denied(noon+at*ms, cost, denials, func() float64 { return 0 })
}

func equal(t *testing.T, got, want int64, what string, args ...any) {
	t.Helper()
	expect(t, got == want, "%s: %d, want %d", fmt.Sprintf(what, args...), got, want)
}

// TestFalseDenialsAreFound: of 10 denials between points at 100 and 132 ms, once the one at 164 ms
// has come.
func TestFalseDenialsAreFound(t *testing.T) {
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
		j := judge{shape: tt.shape}
		j.deny(tt.at, tt.cost, 10)
		equal(t, j.learnPoint(100, tt.before, true)+j.learnPoint(132, tt.after, true), 0, "%s: judged too early", tt.why)
		equal(t, j.learnPoint(164, point{0, 2000, 0, 2000}, true), tt.falsely, "%s: false denials", tt.why)
	}
}

// TestCountAtADenial: of the 400 hits between two points, which raised the count from 700 to 1100,
// as many had come by then as this checker's own ones make likely.
func TestCountAtADenial(t *testing.T) {
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
		f := FalseDenials{before: point{noon, 700, 0, 0}, last: point{noon + 32*ms, 1100, tt.own, 400 - tt.own}}
		d := denialGroup{at: noon + 16*ms, own: tt.before, known: tt.known}
		got := f.countAt(&d, oneSecond, 8)
		near(t, tt.why+": count", got, tt.expected, 1e-6)
	}
}

// TestLateTotalsCompleteARound: those of the round of the last point count, even if by now nobody
// reports in that round for sure; those of another such round do not.
func TestLateTotalsCompleteARound(t *testing.T) {
	j := judge{shape: oneSecond}
	j.learn(100, 900)
	j.deny(104, 1, 10)
	j.learn(108, 900)
	j.learnPoint(108, point{count: 1000}, false)
	j.learnPoint(116, point{count: 900}, false)
	expect(t, j.last.at == noon+108*ms && j.last.count == 1000, "the last point is %d ms, %v", (j.last.at-noon)/ms, j.last.count)
	equal(t, j.learn(132, 900), 0, "false denials")
}

// TestHindsightAcrossBuckets: what leaves at once has left from the edge on, and not before.
func TestHindsightAcrossBuckets(t *testing.T) {
	for at, want := range map[int64]int64{990: 0, 1010: 10} {
		j := judge{shape: fixed}
		j.deny(at, 1, 10)
		j.learn(980, 1000)
		j.learn(1020, 0)
		equal(t, j.learn(1040, 0), want, "false denials at %d ms", at)
	}
}

// TestHindsightOfOneRound: further totals of a round complete it, those of earlier rounds say
// nothing, and after a long silence nothing is known.
func TestHindsightOfOneRound(t *testing.T) {
	for _, tt := range []struct {
		why          string
		further, end int64 // ms: when the further totals were made, and the second point
		falsely      int64
	}{
		{"another aggregator's totals of the round", 101, 132, 0},
		{"late totals of an earlier one", 60, 132, 10},
		{"a silence of more than a second", 60, 1200, 0},
	} {
		j := judge{shape: oneSecond}
		j.learn(100, 500)
		j.learn(tt.further, 1500)
		j.deny(116, 1, 10)
		j.learn(tt.end, 500)
		equal(t, j.learn(tt.end+32, 500), tt.falsely, "%s: false denials", tt.why)
	}
}

// TestLateDenialsAreNotJudged by points that came after those of their time had gone.
func TestLateDenialsAreNotJudged(t *testing.T) {
	j := judge{shape: oneSecond}
	for at := range int64(4) {
		j.learn(at*32, 0)
	}
	j.deny(40, 1, 10)
	got := j.learn(128, 0)
	expect(t, got == 0 && j.pending.n == 0, "%d false denials, %d denials pending", got, j.pending.n)
}

// TestManyDenialsAreAllJudged, also when there are more than are kept apart.
func TestManyDenialsAreAllJudged(t *testing.T) {
	j := judge{shape: oneSecond}
	j.learn(0, 0)
	for i := range int64(100) {
		j.deny((i+1)*3, 1, 2)
	}
	j.learn(400, 0)
	got := j.learn(500, 0)
	expect(t, got == 200 && j.pending.n == 0, "%d false denials, want 200; %d denials are pending", got, j.pending.n)
}

// TestManyDenialsAreKeptApart as well as there is room for.
func TestManyDenialsAreKeptApart(t *testing.T) {
	var j judge
	for i := range int64(1000) {
		j.deny(i, 1+i%3, 1)
	}
	d, n := j.pending, int64(0)
	for i, one := range d.all[:d.n] {
		n += one.denials
		equal(t, one.cost, 3, "cost of the dearest hit of %d", i)
		if i > 0 {
			between(t, "ns after the one before", float64(one.at-d.all[i-1].at), 100e6, 300e6)
		}
	}
	expect(t, n == 1000 && d.n >= len(d.all)/2, "%d denials of 1000, at %d times", n, d.n)
}
