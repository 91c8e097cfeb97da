package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/offpath-io/offpath/loadtest/result"
)

// timeline is the largest count of any key, ours and the oracle's, over time.
func timeline(r result.Run) chart {
	c := chart{Kind: "timeline", Title: "Largest count of any key"}
	t := coarser(r.Timeline, together(r))
	steps := max(len(t.Ours), len(t.Oracle))
	if steps == 0 || !(t.StepMS > 0) {
		c.Note = "There is no course over time: this run recorded none."
		return c
	}
	ours, oracle := percents(t.Ours, steps), percents(t.Oracle, steps)
	c.Plot = &plot{
		X:  axis{Label: "time since the warm-up (s)", Unit: "s", Max: float64(steps) * t.StepMS / 1000},
		Y:  aroundLimit(limits(ours, oracle)),
		At: make([]float64, steps),
		Lines: []line{
			{Name: "offpath", Style: "ours", Values: ours},
			// Above ours, as both are at the limit most of the time; through the gaps one sees that
			// they are.
			{Name: "exact limiter (oracle)", Style: "oracle", Dashed: true, Values: oracle},
		},
		Level: &mark{100, "limit"},
	}
	for i := range steps {
		c.Plot.At[i] = rounded((float64(i)+0.5)*t.StepMS/1000, 4)
	}
	c.Note = fmt.Sprintf("The rule’s own count of admitted hits, the largest within each %s. Above 100 %% is over the limit.",
		scaled(t.StepMS, milliseconds))
	if c.Plot.Y.Min > 0 {
		c.Note += fmt.Sprintf(" The axis begins at %s %%.", quantity(c.Plot.Y.Min))
	}
	_, most := limits(ours)
	_, exact := limits(oracle)
	c.Label = fmt.Sprintf("Line chart of the largest count of any key over %s, in per cent of the limit: "+
		"at most %s %% with offpath, %s %% with an exact limiter.", scaled(float64(steps)*t.StepMS, milliseconds), quantity(most), quantity(exact))
	return c
}

// aroundLimit is an axis that shows the values and the limit, 100. It begins at 0 unless all is
// close to the limit, where a few per cent would not be seen.
func aroundLimit(from, to float64) axis {
	from, to = min(from, 100), max(to, 100)
	step := 10.0
	if from >= 90 && to <= 110 {
		step = 2
	}
	a := axis{Label: "count (% of the limit)", Unit: "%", Max: math.Ceil(to/step+0.2) * step}
	if from >= 75 {
		a.Min = math.Floor(from/step-0.2) * step
	}
	return a
}

// together is how many steps of a run's timeline are shown as one: so many that a line can be told
// from the next, and in a fixed window, whose count starts at 0 again and again, a window's worth.
func together(r result.Run) int {
	const most, least = 240, 10
	steps := max(len(r.Timeline.Ours), len(r.Timeline.Oracle))
	n := (steps + most - 1) / most
	if len(r.Params.Rules) > 0 && strings.HasPrefix(r.Params.Rules[0].Algorithm, "fixed") {
		if window := math.Ceil(r.Params.Rules[0].WindowMS / r.Timeline.StepMS); window > 0 && window*least <= float64(steps) {
			n = max(n, int(window))
		}
	}
	return n
}

// coarser puts so many steps into one: the largest of several steps is the largest of their
// largest.
func coarser(t result.Timeline, n int) result.Timeline {
	if n < 2 {
		return t
	}
	join := func(fine []float64) []float64 {
		var list []float64
		for steps := range slices.Chunk(fine, n) {
			list = append(list, slices.Max(steps))
		}
		return list
	}
	return result.Timeline{StepMS: t.StepMS * float64(n), Ours: join(t.Ours), Oracle: join(t.Oracle)}
}
