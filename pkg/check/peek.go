package check

import (
	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/identity"
)

// peek is what a check would decide, and changes nothing. Where a limiter decides alone, attributes
// tell the class of the request.
func (c *Checker) peek(
	by decider, now int64, attrs identity.Attributes, key string, cost int64,
) (d Decision) {
	a := newEvaluation(&c.host)
	defer a.free()
	switch {
	case !a.fill(by, now, attrs, key, cost, peeking):
		a.bar.decideBarred(&d, now)
		return d
	case len(a.decisions) == 0:
		a.allowUnmatched(&d, c)
		return d
	}
	if by.limiter != nil {
		a.decisions[0].decideBy(by.limits, attrs)
	}
	a.lookForRoom(attrs, now)
	d = a.askViews(now)
	if by.limiter != nil {
		d.ownShadow()
	}
	return d
}

// askViews asks all of views of their counters.
func (a *evaluation) askViews(now int64) Decision {
	for i := range a.decisions {
		if q := &a.decisions[i]; !q.barred && q.limiter.group.HasRoomFor(a.key(i)) {
			q.Counter = a.viewAt(i).Of(&q.limiter.group, a.key(i), now)
		}
	}
	var d Decision
	a.ask(&d, now)
	for i := range a.decisions {
		a.decisions[i].Counter = counter.Locked{} // nobody has locked it
	}
	return d
}

// viewAt returns memory for a view of the counter of the decision at place i.
func (a *evaluation) viewAt(i int) *counter.View {
	for len(a.views) <= i {
		a.views = append(a.views, new(counter.View))
	}
	return a.views[i]
}

// record charges whatever is asked, whether or not there is room.
func (a *evaluation) record(now int64) {
	for !a.lock(now) {
	}
	defer a.unlock()
	for i := range a.decisions {
		q := &a.decisions[i]
		q.noteCost()
		if !q.HasCounter() { // no room for the key
			q.limiter.admitOverflow(0, q.Cost)
			continue
		}
		q.prepare()
		q.Record(now)
	}
}
