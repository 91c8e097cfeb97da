package check

import (
	"math"
	"time"
)

// The clock's error is how far the fleet's time, as this checker has it, may be from what it is. Permits are
// not spent within that of their bucket's end. It is the sum of
//
//   - half of the best look's round trip: the aggregator may have read its clock anywhere within it;
//   - what that aggregator says that its own clock was off by, which may just have started;
//   - what slewing has not done yet;
//   - what the two clocks may have drifted apart since that look: crystals are good to 100 ppm, so 200 ppm;
//   - a margin for what the aggregator's clock and the store's may have drifted apart.
//
// If the newest look contradicts the best one, one of the clocks was set in between, and the newest counts. The
// coarse clock's tick is not in it: strict checks read the system's clock. What cannot be bounded from here
// is a clock that was set since the last hello, and a machine that was asleep until a moment ago.
const (
	driftShare  = 5000
	clockMargin = time.Millisecond
)

// unknownError is the error of a clock that has never been held against another.
const unknownError = int64(math.MaxInt64 / 4)

// judge reckons the error at own time now. behind's lock is held.
func (c *clock) judge(now int64) {
	if !c.known {
		c.err.Store(unknownError)
		return
	}
	offset := c.offset.Load()
	drift := max(now-c.best.at, 0)/driftShare + int64(clockMargin)
	err := c.best.err + distance(c.best.offset, offset) + drift
	newest := c.samples[(c.next-1)%len(c.samples)]
	if distance(newest.offset, c.best.offset) > newest.err+c.best.err+drift {
		err = max(err, distance(newest.offset, offset)+newest.err+drift)
	}
	c.err.Store(err)
}

func distance(a, b int64) int64 { return max(a-b, b-a) }
