// Package oracle knows what would have been right.
//
// A [Judge] is told of every hit of every checker, in order of time, and of what was decided. It runs
// an exact limiter beside: one place, with the window arithmetic of the rules, that sees every hit at
// once. And it keeps the truth: the counts of all hits that were admitted. From both it tells how far
// the decisions were off. It knows nothing of checkers, reports or networks.
package oracle

import "github.com/offpath-io/offpath/pkg/window"

// counter holds one key's counts, exactly.
type counter struct {
	newest int64
	counts []int64 // counts[i] is of bucket newest-i
}

// at returns the counts as window.Shape wants them at a time; valid until the next call.
func (c *counter) at(s window.Shape, now int64) []int64 {
	if c.counts == nil {
		c.counts, c.newest = make([]int64, s.Live()), s.Bucket(now)
	}
	if ahead := s.Bucket(now) - c.newest; ahead > 0 {
		keep := max(len(c.counts)-int(min(ahead, int64(len(c.counts)))), 0)
		copy(c.counts[len(c.counts)-keep:], c.counts[:keep])
		clear(c.counts[:len(c.counts)-keep])
		c.newest += ahead
	}
	return c.counts
}

// rolling holds the times of the hits in the last window's length.
type rolling struct {
	times []int64
	gone  int // how many of the first have left
}

// at returns how many hits there were in the stretch of this length that ends now.
func (r *rolling) at(now, length int64) int {
	for r.gone < len(r.times) && r.times[r.gone] <= now-length {
		r.gone++
	}
	return len(r.times) - r.gone
}

// add notes a hit and returns how many there were in the stretch of this length that it ends.
func (r *rolling) add(now, length int64) int {
	r.times = append(r.times, now)
	r.at(now, length)
	if r.gone > len(r.times)/2 && r.gone > 64 {
		r.times = append(r.times[:0], r.times[r.gone:]...)
		r.gone = 0
	}
	return len(r.times) - r.gone
}

// admit is the exact limiter: it decides for one hit, at a time not before that of the one before, and
// counts it if it may pass.
func (c *counter) admit(s window.Shape, limit, now int64) bool {
	counts := c.at(s, now)
	if s.Remaining(counts, limit, now) < 1 {
		return false
	}
	counts[0]++
	return true
}
