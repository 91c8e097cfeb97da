package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

func newShapes() *cobra.Command {
	return &cobra.Command{
		Use: "shapes [FILE]", Short: "draw what each algorithm lets through, as SVG",
		Long: "Draws what each algorithm lets through of the same hits, as SVG, to FILE or to " +
			"standard output.",
		Args: func(_ *cobra.Command, files []string) error {
			if len(files) > 1 {
				return flags.Usagef("%d files: want one, or none", len(files))
			}
			return nil
		},
		RunE: drawShapes,
	}
}

// drawShapes draws what each algorithm lets through of one and the same traffic: bars of the hits,
// and in front of them of those that passed, when they did. A real checker decides, in virtual
// time.
func drawShapes(cmd *cobra.Command, files []string) error {
	all, err := allShapes()
	if err != nil {
		return fmt.Errorf("draw shapes: %w", err)
	}
	picture := svg(all)
	if len(files) == 1 {
		return os.WriteFile(files[0], []byte(picture), 0o644)
	}
	_, err = io.WriteString(cmd.OutOrStdout(), picture)
	return err
}

// The traffic, and how it is counted for the picture.
const (
	shapesLength = 6 * time.Second
	shapesBin    = 100 * time.Millisecond
	shapesLimit  = 10 // per second
	shapesBurst  = 15 // of a token bucket
	shapesQueue  = 10 // of a leaky bucket
)

// A shape is what one algorithm let through, in each shapesBin.
type shape struct {
	Name, Words string
	Passed      []int
}

// asked are the times of all hits: a steady trickle below the limit, twenty at once, three times
// the limit for a while, nothing, and twenty at once again.
func asked() []time.Duration {
	var all []time.Duration
	steady := func(from, to time.Duration, n int) {
		for i := range n {
			all = append(all, from+(to-from)*time.Duration(i)/time.Duration(n))
		}
	}
	steady(0, 900*time.Millisecond, 5)
	steady(950*time.Millisecond, 960*time.Millisecond, 20)
	steady(1500*time.Millisecond, 3500*time.Millisecond, 60)
	steady(4950*time.Millisecond, 4960*time.Millisecond, 20)
	return all
}

// allShapes are the five algorithms, of ten hits a second.
func allShapes() ([]shape, error) {
	var all []shape
	for _, s := range []struct {
		algorithm rules.Algorithm
		burst     int64
		words     string
	}{
		{rules.FixedWindow, 0, "10 in each second by the clock: twice as many where two seconds meet"},
		{rules.SlidingWindow, 0, "10 in any second, the last one's hits taken as evenly spread"},
		{rules.SlidingLog, 0, "never more than 10 in any second"},
		{rules.TokenBucket, shapesBurst, "10 a second, and up to 15 saved for a burst"},
		{rules.LeakyBucket, shapesQueue, "one every 100 ms; up to 10 wait for their turn"},
	} {
		passed, err := through(rules.Rule{
			Name: "r", Key: []string{"k"}, Limit: shapesLimit, Algorithm: s.algorithm, Burst: s.burst,
			Window: window.Shape{Length: time.Second},
		})
		if err != nil {
			return nil, fmt.Errorf("%v: %w", s.algorithm, err)
		}
		all = append(all, shape{s.algorithm.String(), s.words, bins(passed)})
	}
	return all, nil
}

// through are the times at which hits pass by a rule: those of a leaky bucket in their turn.
func through(r rules.Rule) ([]time.Duration, error) {
	set, err := rules.NewSet(r)
	if err != nil {
		return nil, err
	}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	now := start
	c, err := check.New(check.Options{Rules: set, Now: func() time.Time { return now }})
	if err != nil {
		return nil, err
	}
	l, _ := c.Limiter(r.Name)
	hit := check.Request{Limiter: l, Key: "k"}
	if r.Algorithm == rules.LeakyBucket {
		hit.Mode = check.Reserve
	}
	var passed []time.Duration
	for _, at := range asked() {
		now = start.Add(at)
		if result := c.Do(hit); result.Allowed {
			passed = append(passed, at+result.Delay)
		}
	}
	return passed, nil
}

func bins(times []time.Duration) []int {
	n := make([]int, shapesLength/shapesBin)
	for _, at := range times {
		n[min(int(at/shapesBin), len(n)-1)]++
	}
	return n
}

// Measures of the picture, in its own units.
const (
	svgWidth, svgLeft, svgRight = 900, 150, 20
	svgRow, svgBar              = 76, 44
	svgTop                      = 30
	svgMost                     = 21 // hits in a bin that a bar of full height stands for
)

// svg draws the picture. The same shapes give the same bytes.
func svg(shapes []shape) string {
	var b strings.Builder
	height := svgTop + svgRow*len(shapes) + 30
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", svgWidth, height)
	fmt.Fprintf(&b, `<title>What each algorithm lets through of the same traffic, with a limit of 10 per second</title>`+"\n")
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", svgWidth, height)
	fmt.Fprintf(&b, `<text x="%d" y="18" fill="#555555">grey: asked for, in each tenth of a second; blue: passed then</text>`+"\n", svgLeft)
	for i, s := range shapes {
		base := svgTop + svgRow*i + svgBar + 14
		fmt.Fprintf(&b, `<text x="10" y="%d" font-weight="bold">%s</text>`+"\n", base-24, s.Name)
		fmt.Fprintf(&b, `<text x="%d" y="%d" fill="#555555">%s</text>`+"\n", svgLeft, base+13, s.Words)
		bars(&b, bins(asked()), base, "#d0d0d0")
		bars(&b, s.Passed, base, "#2a6fbb")
		fmt.Fprintf(&b, `<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="#888888"/>`+"\n", svgLeft, base, svgWidth-svgRight, base)
	}
	for s := range int(shapesLength/time.Second) + 1 {
		x := svgLeft + float64(svgWidth-svgLeft-svgRight)*float64(s)/shapesLength.Seconds()
		fmt.Fprintf(&b, `<text x="%.0f" y="%d" text-anchor="middle">%d s</text>`+"\n", x, height-8, s)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// bars draws a row of bars that stand on base.
func bars(b *strings.Builder, hits []int, base int, colour string) {
	step := float64(svgWidth-svgLeft-svgRight) / float64(len(hits))
	for i, n := range hits {
		if n > 0 {
			h := float64(svgBar) * min(float64(n)/svgMost, 1)
			fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`+"\n", svgLeft+step*float64(i), float64(base)-h, step-1, h, colour)
		}
	}
}
