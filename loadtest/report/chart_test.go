package report

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/offpath-io/offpath/loadtest/result"
)

// A fixed window's count starts at 0 with every window: a step of the chart is a window then. Too
// many steps are joined too.
func TestTimelineJoinsSteps(t *testing.T) {
	for _, test := range []struct {
		name      string
		steps     int
		algorithm string
		want      int
	}{
		{"few", 200, "sliding_window", 1},
		{"as many as can be told apart", 240, "sliding_window", 1},
		{"more", 241, "sliding_window", 2},
		{"minutes", 1800, "sliding_window", 8},
		{"fixed windows", 200, "fixed_window", 10},
		{"too few fixed windows", 99, "fixed_window", 1},
	} {
		r := result.Run{Timeline: result.Timeline{StepMS: 100, Ours: make([]float64, test.steps)}}
		r.Params.Rules = []result.Rule{{WindowMS: 1000, Algorithm: test.algorithm}}
		if got := together(r); got != test.want {
			t.Errorf("%s: %d steps in one, want %d", test.name, got, test.want)
		}
	}
	fine := result.Timeline{StepMS: 50, Ours: []float64{0.1, 0.9, 0.3, 0.2, 1.1}, Oracle: []float64{0.1, 0.8, 0.3, 0.2, 1}}
	got := coarser(fine, 2)
	if got.StepMS != 100 || !slices.Equal(got.Ours, []float64{0.9, 0.3, 1.1}) || !slices.Equal(got.Oracle, []float64{0.8, 0.3, 1}) {
		t.Errorf("joined are %+v", got)
	}
}

func TestAxisAroundLimit(t *testing.T) {
	for _, test := range []struct{ from, to, min, max float64 }{
		{98.5, 103, 98, 104},                 // close to the limit: a few per cent are to be seen
		{100, 100, 98, 102},                  //
		{0, 99, 0, 110},                      // the limit is above, and seen
		{50, 118, 0, 120},                    // from 0 where that costs little
		{80, 240, 70, 250},                   //
		{math.Inf(1), math.Inf(-1), 98, 102}, // no values at all
	} {
		if a := aroundLimit(test.from, test.to); a.Min != test.min || a.Max != test.max {
			t.Errorf("%v to %v: axis from %v to %v, want %v to %v", test.from, test.to, a.Min, a.Max, test.min, test.max)
		}
	}
}

func TestDecades(t *testing.T) {
	for _, test := range []struct {
		from, to float64 // nanoseconds
		want     []string
	}{
		{60, 300, []string{"50 ns", "100 ns", "200 ns", "500 ns"}},
		{50, 500, []string{"50 ns", "100 ns", "200 ns", "500 ns"}},
		{70, 70, []string{"50 ns", "100 ns"}},
		{40, 2e6, []string{"10 ns", "100 ns", "1 µs", "10 µs", "100 µs", "1 ms", "10 ms"}},
		{1, 1, []string{"1 ns", "2 ns"}},
	} {
		a := decades(math.Log10(test.from), math.Log10(test.to))
		var got []string
		for _, tick := range a.Ticks {
			got = append(got, tick.Text)
		}
		if !slices.Equal(got, test.want) || a.Min != a.Ticks[0].At || a.Max != a.Ticks[len(a.Ticks)-1].At {
			t.Errorf("%v to %v ns: ticks %q from %v to %v, want %q", test.from, test.to, got, a.Min, a.Max, test.want)
		}
	}
}

// The steps of a sweep are in order, and a run outside it is not marked. What has no place on a
// logarithmic axis is left out.
func TestSweep(t *testing.T) {
	r := result.Run{Sweep: []result.SweepStep{{FlushMS: 100}, {FlushMS: 10}, {FlushMS: 0}}}
	r.Params.FlushMS = 1000
	if c := sweep(r); fmt.Sprint(c.Plot.At) != "[1 2]" || c.Plot.Here != nil {
		t.Errorf("places %v, the run is marked at %v", c.Plot.At, c.Plot.Here)
	}
}

func TestLongNamesAreCut(t *testing.T) {
	const long = "a name that is far too long for its place in a chart of bars"
	if got := costs([]result.Run{{Scenario: long}})[0].Rows[0].Name; got != long[:41]+"…" {
		t.Errorf("the name is %q", got)
	}
}
