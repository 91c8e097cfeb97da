package forecast

import "math"

// Outflow is what a checker knows of how fast other checkers' hits pass a leaky bucket while its
// own do. The zero value is ready.
//
// The outflow of a leaky bucket is one stream over the whole fleet. Each checker leaves as much
// time between its own hits as others' hits will need in between, as far as these go on as they did
// lately: if others take u of the outflow, a hit is followed by a gap of 1 ÷ (1 − u) times the time
// that it takes to drain. Nobody waits for more than all the others' equal shares, so that a
// checker to which hits begin to come has its part at once.
//
// Times without own hits tell nothing: where a caller's traffic wanders from one checker to
// another, each has the whole outflow in its time.
type Outflow struct {
	hits, span float64 // others' lately; ns

	// Since the last message that was taken in: when that was, and what has passed since.
	since     int64
	own, news int64
	before    int64 // own hits before that: what a message tells of has passed a while ago
}

const (
	// outflowMemory is for how many ns a rate is remembered: many messages, or checkers would swing
	// by turns.
	outflowMemory = float64(100e6)
	// leastNews is the least time that a rate is taken from, in ns: several messages come of a
	// round.
	leastNews = int64(10e6)
	// mostApart is by how many ns at most others' hits part own ones. Of later ones the level
	// tells.
	mostApart = float64(100e6)
)

// Took takes in own hits that pass.
func (o *Outflow) Took(hits int64) { o.own += hits }

// Observe takes in hits of others that a message has brought.
func (o *Outflow) Observe(at, hits int64) {
	o.news += hits
	span := at - o.since
	if span < leastNews {
		return
	}
	if o.before > 0 && o.own > 0 && float64(span) < outflowMemory {
		keep := math.Exp(-float64(span) / outflowMemory)
		o.hits, o.span = o.hits*keep+float64(o.news), o.span*keep+float64(span)
	}
	o.since, o.before, o.own, o.news = at, o.own, 0, 0
}

// rate is how many hits others let pass per ns.
func (o *Outflow) rate() float64 {
	if o.span <= 0 {
		return 0
	}
	return o.hits / o.span
}

// Gap is how long after a hit the next one of this checker has its turn, in ns, where the hit takes
// drain to drain, and one of cost 1 takes one: that, and the time of others' hits in between.
func (o *Outflow) Gap(drain, one, checkers int64) int64 {
	rest := max(1-o.rate()*float64(one), 1/float64(checkers))
	return drain + int64(min(float64(drain)*(1/rest-1), mostApart))
}
