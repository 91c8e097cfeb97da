package check

import (
	"github.com/offpath-io/offpath/pkg/identity"
)

// StandingAt is where a request stands with the rules that limit it, at a given time of this checker's own clock, in Unix nanoseconds: what
// Explain says of those, without Decides, and how fresh that is. The time may lie ahead: then it is as if nothing came until then. It
// charges and changes nothing. Its cost grows with the number of rules that match, unlike Explain's.
func (c *Checker) StandingAt(now int64, attrs identity.Attributes) ([]Explanation, Freshness) {
	p := c.program.Load()
	now = c.clock.Fleet(now)
	found := p.set.Find(nil, attrs)
	all, questions := make([]Explanation, 0, len(found)), make([]question, 0, len(found))
	for _, r := range found {
		e := &p.entries[r.Place()]
		x := Explanation{Rule: r.Name, Override: -1}
		q := question{limiter: e.limiter, place: len(all), cost: 1}
		if q.explainCaller(&x, e, attrs, now); x.Why == "" {
			all, questions = append(all, x), append(questions, q)
		}
	}
	a := new(asking)
	a.begin(p, peeking)
	for i := range questions {
		a.explainKey(&all[i], &questions[i], attrs)
	}
	a.lookForRoom(attrs, now)
	for i := range a.asked {
		a.explainCounts(&all[i], &a.asked[i], a.key(i), now)
	}
	return all, Freshness(c.freshness.Load())
}
