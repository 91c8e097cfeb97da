// Package oracle knows what would have been right.
//
// A [Judge] is told of every hit of every checker, in order of time, and of what was decided. It
// runs an exact limiter beside: one place, with the window arithmetic of the rules, that sees every
// hit at once. And it keeps the truth: the counts of all hits that were admitted. From both it
// tells how far the decisions were off. It knows nothing of checkers, reports or networks.
package oracle

import (
	"math"

	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// limit is what the judge needs of a rule.
type limit struct {
	shape   window.Shape
	limit   int64
	band    int64        // hits
	full    float64      // a count of so much is the limit
	drain   window.Drain // of a token or leaky bucket
	spacing int64        // how long a hit takes to drain, in ns
}

func limitOf(r *rules.Rule) limit {
	l := limit{shape: r.Window, limit: r.Limit, band: Band(r.Limit), full: float64(r.Limit)}
	if r.Window.Drains() {
		l.drain = window.Drain{Shape: r.Window, Limit: r.Limit, Burst: r.Burst}
		if r.Burst == 0 {
			l.drain.Burst = r.Limit
		}
		l.full = float64(l.drain.Burst)
		l.band = Band(l.drain.Burst)
	}
	if r.Window.Kind == window.Leaky { // one hit, and what drains in a bucket, which is as exact as its rule is
		l.spacing = int64(math.Ceil(float64(r.Window.Length) / float64(r.Limit)))
		l.full = 1 + float64(r.Limit)/float64(r.Window.Buckets)
		l.band = max(1, int64(l.full))
	}
	return l
}

// counter holds one key's counts, exactly.
type counter struct {
	newest int64
	counts []int64      // counts[i] is of bucket newest-i
	level  window.Level // of a token bucket, before them
	dates  window.Dates // of a token bucket, when all its hits came
	turn   int64        // of a leaky bucket, when all its hits have drained
}

// at returns the counts as window.Shape wants them at a time; valid until the next call.
func (c *counter) at(l *limit, now int64) []int64 {
	s := l.shape
	if c.counts == nil {
		c.counts, c.newest = make([]int64, s.Live()), s.Bucket(now)
		c.level.Bucket = c.newest - int64(len(c.counts))
	}
	if ahead := s.Bucket(now) - c.newest; ahead > 0 {
		if s.Drains() {
			d := c.drain(l)
			c.level = d.Settle(c.level, c.counts, c.newest, c.newest+ahead-int64(len(c.counts)))
			c.dates.Advance(d, c.newest, ahead, len(c.counts))
		}
		keep := max(len(c.counts)-int(min(ahead, int64(len(c.counts)))), 0)
		copy(c.counts[len(c.counts)-keep:], c.counts[:keep])
		clear(c.counts[:len(c.counts)-keep])
		c.newest += ahead
	}
	return c.counts
}

// drain is the arithmetic of a token or leaky bucket.
func (c *counter) drain(l *limit) window.Drain {
	d := l.drain
	if l.shape.Kind == window.Token {
		d.Dates = &c.dates
	}
	return d
}

// rolling holds the hits in the last window's length.
type rolling struct {
	past []charge
	gone int   // how many of the first have left
	hits int64 // of those that have not
}

type charge struct{ at, hits int64 }

// at returns how many hits there were in the stretch of this length that ends now.
func (r *rolling) at(now, length int64) int64 {
	for r.gone < len(r.past) && r.past[r.gone].at <= now-length {
		r.hits -= r.past[r.gone].hits
		r.gone++
	}
	return r.hits
}

// add notes hits and returns how many there were in the stretch of this length that they end.
func (r *rolling) add(now, length, hits int64) int64 {
	r.past = append(r.past, charge{now, hits})
	r.hits += hits
	r.at(now, length)
	if r.gone > len(r.past)/2 && r.gone > 64 {
		r.past = append(r.past[:0], r.past[r.gone:]...)
		r.gone = 0
	}
	return r.hits
}

// count is the rule's own count. That of a token or leaky bucket is exact: what has not drained, by
// when each hit came.
func (c *counter) count(l *limit, now int64) float64 {
	counts := c.at(l, now)
	switch l.shape.Kind {
	case window.Leaky:
		return float64(max(c.turn-now, 0)) / float64(l.spacing)
	case window.Token:
		return c.drain(l).Count(c.level, counts, now)
	}
	return l.shape.Count(counts, now)
}

// fits says whether a request of this cost fits, and would if there were less room by so many hits.
func (c *counter) fits(l *limit, cost, less, now int64) bool {
	counts := c.at(l, now)
	switch l.shape.Kind {
	case window.Leaky: // its turn has come, and came as long ago as so many hits take to drain
		return c.turn+less*l.spacing <= now
	case window.Token:
		return c.drain(l).Remaining(c.level, counts, now) >= cost+less
	}
	return l.shape.Remaining(counts, l.limit-less, now) >= cost
}

// add counts a request that has passed.
func (c *counter) add(l *limit, cost, now int64) {
	c.at(l, now)[0] += cost
	if l.shape.Kind == window.Token {
		c.dates.Add(l.drain, c.newest, now, cost)
	}
	c.turn = max(c.turn, now) + cost*l.spacing
}

// admit is the exact limiter: it decides for one request, at a time not before that of the one
// before, and counts it if it may pass.
func (c *counter) admit(l *limit, cost, now int64) bool {
	if !c.fits(l, cost, 0, now) {
		return false
	}
	c.add(l, cost, now)
	return true
}
