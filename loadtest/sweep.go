package main

import (
	"context"
	"time"

	"github.com/offpath-io/offpath/loadtest/result"
	"github.com/offpath-io/offpath/loadtest/scenario"
	"github.com/offpath-io/offpath/loadtest/sim"
)

// sweepDelay is what a message takes on one machine, more or less, on top of what was asked for.
const sweepDelay = 200 * time.Microsecond

// sweepFlushes are the intervals that are tried.
var sweepFlushes = []time.Duration{
	5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
}

// sweepHits is how many hits one of these simulations has at the most, more or less: the duration
// is cut to that.
const sweepHits = 1_000_000

// sweep simulates the scenario with other flush intervals. If ctx is done it returns those that
// were finished, and the length of their measured part in seconds.
func sweep(ctx context.Context, sc *scenario.Scenario, o sim.Options) (steps []result.SweepStep, seconds float64) {
	progress := o.Progress
	for i, flush := range sweepFlushes {
		o.Progress = func(done, all time.Duration) {
			progress(time.Duration(i)*all+done, time.Duration(len(sweepFlushes))*all)
		}
		s := *sc
		s.Flush = flush
		if n := sc.Hits(); n > sweepHits && sc.Fixed == nil {
			all := float64(sc.Warmup + sc.Duration)
			s.Duration = max(time.Duration(all*sweepHits/n)-sc.Warmup, 2*sc.Longest())
		}
		seconds = s.Duration.Seconds()
		r, err := sim.Run(ctx, &s, o)
		if err != nil || r.Interrupted {
			break
		}
		steps = append(steps, result.SweepStep{
			FlushMS:         float64(flush) / 1e6,
			OverWorstWindow: r.OverWorstWindow, WrongAllowShare: r.WrongAllowShare,
			FalseDenialShare: r.FalseDenialShare, ReportsPer1000: r.ReportsPer1000,
		})
	}
	return steps, seconds
}
