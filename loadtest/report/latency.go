package report

import (
	"fmt"
	"math"

	"github.com/offpath-io/offpath/loadtest/result"
)

// latency is the distribution of the time of one decision. Its x is the number of nines: 90 % is at
// 1, 99 % at 2.
func latency(r result.Run) chart {
	c := chart{Kind: "latency", Title: "Time of one decision"}
	if r.Mode == result.Simulated {
		c.Note = "There are no latencies: under virtual time a decision takes none. A live run has them."
		return c
	}
	p := curve(r.DecisionNS.Curve)
	if len(p.At) < 2 {
		c.Note = "There are no latencies: this run recorded none."
		return c
	}
	c.Plot = p
	c.Note = "From merged histograms."
	if r.ClockNS != nil {
		c.Note += fmt.Sprintf(" About %s of each is the clock’s own.", scaled(*r.ClockNS, nanoseconds))
	}
	c.Label = fmt.Sprintf("Line chart of the time of one decision by percentile: p50 %s, p99 %s, p99.9 %s.",
		ifAny(r.DecisionNS.P50, nanoseconds), ifAny(r.DecisionNS.P99, nanoseconds), ifAny(r.DecisionNS.P999, nanoseconds))
	return c
}

// curve draws what can be drawn of a distribution: not the point of 100 %, and no two on the same
// spot.
func curve(points []result.Quantile) *plot {
	p := &plot{X: axis{Label: "percentile (logarithmic)", Ticks: nines}}
	took := line{Name: "decisions", Style: "ours"}
	for _, q := range points {
		at := -math.Log10(1 - q.Percent/100)
		if !(q.Percent >= 0 && q.Percent < 100 && q.Value >= 0) || math.IsInf(q.Value, 0) || tooClose(p.At, at) {
			continue
		}
		p.At, p.AtText = append(p.At, rounded(at, 4)), append(p.AtText, plain(q.Percent, 5)+" %")
		took.Values = append(took.Values, value(math.Log10(max(q.Value, 1))))
		took.Texts = append(took.Texts, scaled(q.Value, nanoseconds))
	}
	if len(p.At) == 0 {
		return p
	}
	p.X.Max = p.At[len(p.At)-1]
	p.Y = decades(limits(took.Values))
	p.Y.Label = "time (logarithmic)"
	p.Lines = []line{took}
	return p
}

// nines are the ticks of a percentile axis.
var nines = []mark{
	{-math.Log10(0.5), "50"}, {1, "90"}, {2, "99"}, {3, "99.9"}, {4, "99.99"}, {5, "99.999"}, {6, "99.9999"},
}

// tooClose leaves out what would be drawn on the same spot, or backwards.
func tooClose(places []float64, at float64) bool {
	return len(places) > 0 && at < places[len(places)-1]+0.01
}

// decades is an axis of nanoseconds for values between two logarithms. Its ticks are 1, 2 and 5 of
// each power of ten, or only the powers if there are many; the first and the last are its ends.
func decades(from, to float64) axis {
	steps := []float64{1, 2, 5}
	if to-from > 2 {
		steps = steps[:1]
	}
	var ticks []mark
	for power := math.Floor(from); power <= math.Floor(to)+1; power++ {
		for _, step := range steps {
			ns := step * math.Pow(10, power)
			ticks = append(ticks, mark{math.Log10(ns), scaled(ns, nanoseconds)})
		}
	}
	for ticks[1].At <= from {
		ticks = ticks[1:]
	}
	for len(ticks) > 2 && ticks[len(ticks)-2].At >= to {
		ticks = ticks[:len(ticks)-1]
	}
	return axis{Min: ticks[0].At, Max: ticks[len(ticks)-1].At, Ticks: ticks}
}
