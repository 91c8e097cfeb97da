package forecast

import "math"

// Outflow estimates how fast other checkers' hits pass a leaky bucket while a checker's own hits
// do. The zero value is ready.
//
// The outflow of a leaky bucket is one stream over the whole fleet. Between its own hits, each
// checker leaves as much time as others' hits need if they continue as lately: if others take u of
// the outflow, a hit is followed by a gap of 1 ÷ (1 − u) times the time in which it drains. A
// checker never leaves more time than the equal shares of all others need, so that a checker whose
// hits begin to come gets its part at once.
//
// Times without own hits are ignored: when a caller's traffic moves from one checker to another,
// each has the whole outflow in its time.
type Outflow struct {
	hits, span float64 // others' recent hits, and their time in ns

	// The time of the last message that was used, and the hits since then.
	since     int64
	own, news int64
	before    int64 // own hits before that message: the hits in a message have passed a while ago
}

const (
	// outflowMemory is for how many ns a rate is remembered: the time of many messages, so that the
	// checkers' rates do not oscillate.
	outflowMemory = float64(100e6)
	// leastNews is the least time from which a rate is computed, in ns: a round has several
	// messages.
	leastNews = int64(10e6)
	// mostApart is how many ns are left for others' hits between own ones, at most. The level
	// includes later hits.
	mostApart = float64(100e6)
)

// Took records own hits that pass.
func (o *Outflow) Took(hits int64) { o.own += hits }

// Observe records hits of others from a message.
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

// rate returns how many hits others admit per ns.
func (o *Outflow) rate() float64 {
	if o.span <= 0 {
		return 0
	}
	return o.hits / o.span
}

// Gap returns the time from a hit's turn to this checker's next turn, in ns: the time in which the
// hit drains, and the time for others' hits in between. drain is the time in which the hit drains,
// one that of a hit of cost 1.
func (o *Outflow) Gap(drain, one, checkers int64) int64 {
	rest := max(1-o.rate()*float64(one), 1/float64(checkers))
	return drain + int64(min(float64(drain)*(1/rest-1), mostApart))
}
