package fleetclock

import (
	"math"
	"time"
)

const (
	// driftShare bounds how far two clocks drift apart: crystals are good to 100 ppm, so 200 ppm.
	driftShare = 5000
	// margin is for what the aggregator's clock and the store's may have drifted apart.
	margin = time.Millisecond
	// unknownError is the error of a clock that has never been compared with another.
	unknownError = int64(math.MaxInt64 / 4)
)

// Error returns how far the fleet's time, as Fleet has it, may be from the store's, in ns. It is
// the sum of
//
//   - half of the round trip of the best observation, within which the aggregator may have read its
//     clock at any time;
//   - the error that the aggregator stated for its own clock, since it may just have started;
//   - what is left to slew;
//   - what the two clocks may have drifted apart since that observation;
//   - a margin for what the aggregator's clock and the store's may have drifted apart.
//
// If the newest observation contradicts the best one, a clock was set in between, and the newest
// counts. The tick of the coarse clock is not included. The error cannot account for a clock that
// was set since the last hello, or for a machine that was asleep until a moment ago.
func (c *Clock) Error() int64 {
	if err := c.err.Load(); err != 0 {
		return err
	}
	return unknownError
}

// judge reckons the error at own time now.
func (c *Clock) judge(now int64) {
	if !c.known {
		return
	}
	offset := c.offset.Load()
	drift := max(now-c.best.at, 0)/driftShare + int64(margin)
	err := c.best.err + distance(c.best.offset, offset) + drift
	newest := c.samples[(c.next-1)%len(c.samples)]
	if distance(newest.offset, c.best.offset) > newest.err+c.best.err+drift {
		err = max(err, distance(newest.offset, offset)+newest.err+drift)
	}
	c.err.Store(err)
}

func distance(a, b int64) int64 { return max(a-b, b-a) }
