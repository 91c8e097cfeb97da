package evaluation

import "github.com/offpath-io/offpath/pkg/events"

// mayBeSettled sets Group.Settles before hits are charged that a receipt may settle, so that every
// report of these hits has it.
func (a *evaluation) mayBeSettled() {
	for i := range a.decisions {
		if l := a.decisions[i].limiter; !l.Group.Settles.Load() {
			l.Group.Settles.Store(true)
		}
	}
}

// charges returns the charges for a receipt of a hit, at the fleet's time now.
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
