package evaluation

import "github.com/offpath-io/offpath/pkg/events"

// mayBeSettled notes, before they are charged, that hits of what is asked may be settled: so no
// report of them leaves that out.
func (a *evaluation) mayBeSettled() {
	for i := range a.decisions {
		if l := a.decisions[i].limiter; !l.Group.Settles.Load() {
			l.Group.Settles.Store(true)
		}
	}
}

// charges are what a receipt of a hit says that it was charged with, at the fleet's time now.
func (a *evaluation) charges(now int64) (list []*events.Charge) {
	own := false // some rule takes its cost from an attribute
	for i := range a.decisions {
		q := &a.decisions[i]
		if q.Charged > 0 && q.limits.Rule.Cost != "" {
			own = true
		}
	}
	for i := range a.decisions {
		q := &a.decisions[i]
		if q.Charged == 0 || own && q.limits.Rule.Cost == "" || len(list) == events.MaxCharges {
			continue
		}
		l := q.limiter
		l.Group.Refunds.Store(true)
		rule := l.Group.Wire(now)
		rule.Newest = q.Bucket
		list = append(list, &events.Charge{
			Rule: rule, Key: []byte(a.key(i)), Cost: events.Count(q.Charged), Permits: l.Group.Strict != nil,
		})
	}
	return list
}
