package check

import "github.com/offpath-io/offpath/pkg/window"

// Hits of a log and of a fixed window leave a whole bucket at once, when another one begins. All checkers know when that is,
// and about how many hits leave, so each can reckon with what others take of the room at once: forecasts are told of every
// such moment, also of those that have passed since anybody looked.

// leavesAtOnce says whether all hits of a bucket leave together.
func (l *Limiter) leavesAtOnce() bool { return l.shape.Kind == window.Log || l.shape.Fixed }

// within is now, or if that is later, the last moment before hits leave at once: what was taken off an allowance was taken
// before. The lock is held, the cell not rotated.
func (c *cell) within(now int64) int64 {
	if c.limiter.leavesAtOnce() {
		return min(now, c.end()-1)
	}
	return now
}

// foreseeLeaving tells the forecast of what leaves when so many new buckets come, which the cell has not taken in yet. The
// lock is held.
func (c *cell) foreseeLeaving(by int64) {
	a, l := c.ahead(), c.limiter
	if a == nil || !l.leavesAtOnce() {
		return
	}
	counts := c.net()
	counts = counts[:l.shape.Live()]
	for i := range min(by, int64(len(counts))) {
		if hits := counts[int64(len(counts))-1-i]; hits > 0 {
			a.Leave(l.shape.End(c.newest+i), hits)
		}
	}
}

// soonTime is for how long leavesSoon looks ahead, in ns: about as long as it is to the next calm round.
const soonTime = int64(32e6)

// leavesSoon is how many hits per ns will leave a log soon. The lock is held and the cell rotated.
func (c *cell) leavesSoon() float64 {
	shape, counts := c.limiter.shape, c.net()
	size := int64(shape.BucketSize())
	n := min(max(soonTime/size, 1), int64(shape.Buckets))
	var hits int64
	for _, h := range counts[shape.Live()-int(n):] {
		hits += h
	}
	return float64(hits) / float64(n*size)
}
