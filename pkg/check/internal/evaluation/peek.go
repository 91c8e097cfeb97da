package evaluation

import (
	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/identity"
)

// Peek returns what a check would decide, and changes nothing. If a limiter decides alone,
// attributes only give the request's class.
func Peek(
	h *counter.Host, by Decider, now int64, attrs identity.Attributes, key string, cost int64,
) (d Decision) {
	a := newEvaluation(h)
	defer a.free()
	switch {
	case !a.fill(by, now, attrs, key, cost, peeking):
		a.bar.decideBarred(&d, now)
		return d
	case len(a.decisions) == 0:
		a.decideUnlimited(&d)
		return d
	}
	if by.Limiter != nil {
		a.decisions[0].decideBy(by.Limits, attrs)
	}
	a.lookForRoom(attrs, now)
	d = a.askViews(now)
	if by.Limiter != nil {
		d.ownShadow()
	}
	return d
}

// askViews decides with views of the counters.
func (a *evaluation) askViews(now int64) Decision {
	for i := range a.decisions {
		if q := &a.decisions[i]; !q.barred && q.limiter.Group.HasRoomFor(a.key(i)) {
			q.Counter = a.viewAt(i).Of(&q.limiter.Group, a.key(i), now)
		}
	}
	var d Decision
	a.askAll(&d, now)
	for i := range a.decisions {
		a.decisions[i].Counter = counter.Locked{} // it is a view, which unlock must not unlock
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

// record charges all decisions, whether or not there is room.
func (a *evaluation) record(now int64) {
	for !a.lock(now) {
	}
	defer a.unlock()
	for i := range a.decisions {
		q := &a.decisions[i]
		q.noteCost()
		if !q.HasCounter() { // no room for the key
			q.limiter.AdmitOverflow(0, q.Cost)
			continue
		}
		q.prepare()
		q.Record(now)
	}
}
