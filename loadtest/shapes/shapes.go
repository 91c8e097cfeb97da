// Package shapes shows what each algorithm lets through of one and the same traffic, as a picture:
// bars of what was asked for, and in front of them of what passed, and when. The decisions are a
// real checker's, in virtual time.
package shapes

import (
	"fmt"
	"time"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// The traffic, and how it is counted for the picture.
const (
	Length = 6 * time.Second
	Bin    = 100 * time.Millisecond
	limit  = 10 // per second
	burst  = 15 // of a token bucket
	queue  = 10 // of a leaky bucket
)

// A Shape is what one algorithm let through, by Bin.
type Shape struct {
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

// Asked is what was asked for, by Bin.
func Asked() []int { return bins(asked()) }

// All are the five algorithms, of ten hits a second.
func All() ([]Shape, error) {
	var all []Shape
	for _, s := range []struct {
		algorithm rules.Algorithm
		burst     int64
		words     string
	}{
		{rules.FixedWindow, 0, "10 in each second by the clock: twice as many where two seconds meet"},
		{rules.SlidingWindow, 0, "10 in any second, the last one's hits taken as evenly spread"},
		{rules.SlidingLog, 0, "never more than 10 in any second"},
		{rules.TokenBucket, burst, "10 a second, and up to 15 saved for a burst"},
		{rules.LeakyBucket, queue, "one every 100 ms; up to 10 wait for their turn"},
	} {
		passed, err := through(rules.Rule{
			Name: "r", Key: []string{"k"}, Limit: limit, Algorithm: s.algorithm, Burst: s.burst,
			Window: window.Shape{Length: time.Second},
		})
		if err != nil {
			return nil, fmt.Errorf("%v: %w", s.algorithm, err)
		}
		all = append(all, Shape{s.algorithm.String(), s.words, bins(passed)})
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
	n := make([]int, Length/Bin)
	for _, at := range times {
		n[min(int(at/Bin), len(n)-1)]++
	}
	return n
}
