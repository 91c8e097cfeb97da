package check

import (
	"math"

	"github.com/offpath-io/offpath/pkg/window"
)

// The outflow of a leaky bucket is one stream over the whole fleet. Each checker leaves as much time between its own hits
// as others' hits will need in between, as far as these go on as they did lately: if others take u of the outflow, a hit
// is followed by a gap of 1 ÷ (1 − u) times what it takes to drain. Nobody waits for more than all the others'
// equal shares, so that a checker to which hits begin to come has its part at once.

// others is what a checker knows of how fast other checkers' hits of a key pass while its own do. Times without own hits tell
// nothing: where a caller's traffic wanders from one checker to another, each has the whole outflow in its time.
type others struct {
	hits, span float64 // lately; ns

	// Since the last word that was taken in: when that was, and what has passed since.
	since     int64
	own, news int64
	before    int64 // own hits before that: what a word tells of has passed a while ago
}

const (
	// othersMemory is for how many ns a rate is remembered: many words, or checkers would swing by turns.
	othersMemory = float64(100e6)
	// leastNews is the least time that a rate is taken from, in ns: several words come of one round.
	leastNews = int64(10e6)
	// mostApart is by how many ns at most others' hits part own ones: later than that the level tells of them.
	mostApart = float64(100e6)
	// madeUp is which part of a gap, one in so many, is made up for if a hit comes late for its turn.
	madeUp = 4
)

// hear takes in hits of others that a word told of.
func (o *others) hear(at, news int64) {
	o.news += news
	span := at - o.since
	if span < leastNews {
		return
	}
	if o.before > 0 && o.own > 0 && float64(span) < othersMemory {
		keep := math.Exp(-float64(span) / othersMemory)
		o.hits, o.span = o.hits*keep+float64(o.news), o.span*keep+float64(span)
	}
	o.since, o.before, o.own, o.news = at, o.own, 0, 0
}

// rate is how many hits others let pass per ns.
func (o *others) rate() float64 {
	if o.span <= 0 {
		return 0
	}
	return o.hits / o.span
}

// hearOthers takes in hits of others. The lock is held.
func (c *cell) hearOthers(at, news int64) {
	if d := c.drained(); d != nil && c.limiter.shape.Kind == window.Leaky {
		d.others.hear(at, news)
	}
}

// gap is how long after a hit the next one of this checker has its turn, in ns: what it takes to drain, and what others
// probably let pass meanwhile. The lock is held.
func (c *cell) gap(t *terms, cost int64) int64 {
	spacing := c.spacing(t, cost)
	if c.freshness(t) == LocalShare || !c.limiter.isShared() {
		return spacing
	}
	taken := c.drained().others.rate() * float64(c.spacing(t, 1))
	rest := max(1-taken, 1/float64(c.limiter.others()))
	return spacing + int64(min(float64(spacing)*(1/rest-1), mostApart))
}
