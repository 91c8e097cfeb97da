package main

import (
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
)

// TestPeaks: an excess is told for a minute at least, and two at most; a rule stays.
func TestPeaks(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	p := newPeaks(func() time.Time { return now })
	for _, step := range []struct {
		after time.Duration
		note  float64
		want  float64
	}{
		{0, 0, 0},
		{time.Second, 0.5, 0.5},
		{time.Second, 0.2, 0.5},
		{58 * time.Second, 0.1, 0.5}, // a new minute; the last one counts
		{59 * time.Second, 0, 0.5},
		{time.Second, 0, 0.1}, // the one before it does not
		{time.Minute, 0, 0},
		{time.Second, 0.3, 0.3},
		{time.Hour, 0, 0},
	} {
		now = now.Add(step.after)
		p.note("a", step.note)
		wantValue(t, now.String(), p, step.want)
	}
}

// TestExcessIsCounted adds up the hits of several folds, and keeps the largest ratio.
func TestExcessIsCounted(t *testing.T) {
	a := newApplies(time.Now)
	a.observe(applied("a", storage.Tally{Counted: 10}, aggregate.Excess{Hits: 2, Most: 0.3}))
	a.observe(applied("a", storage.Tally{Counted: 10}, aggregate.Excess{Hits: 1.5, Most: 0.1}))
	wantValue(t, "hits over", a.over.WithLabelValues("a"), 3.5)
	wantValue(t, "over at most", a.peaks, 0.3)
	a.observe(applied("b", storage.Tally{Counted: 1}))
	wantSeries(t, "one without an excess has 0", a.peaks, 2)
}
