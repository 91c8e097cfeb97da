package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/offpath-io/offpath/loadtest/result"
)

// sweep is wrong decisions against the flush interval.
func sweep(r result.Run) chart {
	c := chart{Kind: "sweep", Title: "Wrong decisions against the flush interval"}
	steps := sweepSteps(r)
	if len(steps) == 0 {
		c.Note = "No other flush intervals were simulated for this run."
		return c
	}
	p := &plot{
		X: axis{Label: "flush interval (ms, logarithmic)"},
		Y: axis{Label: "wrong (% of all hits)", Unit: "%"},
		Lines: []line{
			{Name: "wrongly allowed", Style: "wrong", Dots: true},
			{Name: "falsely denied", Style: "denial", Dashed: true, Dots: true},
		},
	}
	for _, s := range steps {
		p.addStep(s)
	}
	const margin = 0.1
	p.X.Min, p.X.Max = p.At[0]-margin, p.At[len(p.At)-1]+margin
	if here := math.Log10(r.Params.FlushMS); here >= p.X.Min && here <= p.X.Max {
		p.Here = &mark{here, "this run"}
	}
	_, most := limits(p.Lines[0].Values, p.Lines[1].Values)
	p.Y.Max = max(most*1.1, 0.01)
	first, last := steps[0], steps[len(steps)-1]
	c.Plot = p
	c.Note = "Simulated, whatever the run is: the same scenario and network under virtual time, once for each interval."
	if r.SweepSeconds > 0 && r.SweepSeconds < r.Params.DurationS {
		c.Note += fmt.Sprintf(" To save time, only its first %s were.", scaled(r.SweepSeconds*1000, milliseconds))
	}
	c.Label = fmt.Sprintf("Line chart, simulated. Flushing every %s: wrongly allowed %s, falsely denied %s of all hits. Every %s: %s, %s.",
		scaled(first.FlushMS, milliseconds), share(first.WrongAllowShare), share(first.FalseDenialShare),
		scaled(last.FlushMS, milliseconds), share(last.WrongAllowShare), share(last.FalseDenialShare))
	return c
}

// sweepSteps are those that have a place on a logarithmic axis, in order.
func sweepSteps(r result.Run) []result.SweepStep {
	var steps []result.SweepStep
	for _, s := range r.Sweep {
		if s.FlushMS > 0 && !math.IsInf(s.FlushMS, 0) {
			steps = append(steps, s)
		}
	}
	slices.SortFunc(steps, func(a, b result.SweepStep) int { return cmp.Compare(a.FlushMS, b.FlushMS) })
	return steps
}

func (p *plot) addStep(s result.SweepStep) {
	at := rounded(math.Log10(s.FlushMS), 4)
	p.At, p.AtText = append(p.At, at), append(p.AtText, scaled(s.FlushMS, milliseconds))
	p.X.Ticks = append(p.X.Ticks, mark{at, quantity(s.FlushMS)})
	for i, fraction := range []float64{s.WrongAllowShare, s.FalseDenialShare} {
		p.Lines[i].Values = append(p.Lines[i].Values, value(fraction*100))
		p.Lines[i].Texts = append(p.Lines[i].Texts, share(fraction))
	}
}
