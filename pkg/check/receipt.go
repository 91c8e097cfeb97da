package check

import "github.com/offpath-io/offpath/pkg/events"

// mayBeSettled notes, before they are charged, that hits of what is asked may be settled: so no
// report of them leaves that out.
func (a *evaluation) mayBeSettled() {
	for i := range a.decisions {
		if l := a.decisions[i].limiter; !l.group.Settles.Load() {
			l.group.Settles.Store(true)
		}
	}
}

// receipt is that of a hit that was charged at the fleet's time now.
func (a *evaluation) receipt(c *Checker, now int64) string {
	m := &events.Receipt{Epoch: c.o.Epoch, Made: now}
	own := false // some rule takes its cost from an attribute
	for i := range a.decisions {
		q := &a.decisions[i]
		if q.Charged > 0 && q.limits.rule.Cost != "" {
			own = true
		}
	}
	for i := range a.decisions {
		q := &a.decisions[i]
		if q.Charged == 0 || own && q.limits.rule.Cost == "" || len(m.Charges) == events.MaxCharges {
			continue
		}
		l := q.limiter
		l.group.Refunds.Store(true)
		rule := l.group.Wire(now)
		rule.Newest = q.Bucket
		m.Charges = append(m.Charges, &events.Charge{
			Rule: rule, Key: []byte(a.key(i)), Cost: events.Count(q.Charged), Permits: l.group.Strict != nil,
		})
	}
	numbers := uint64(max(len(m.Charges), 1))
	m.Number = c.receipts.Add(numbers) - numbers + 1
	text, err := c.o.ReceiptKeys().Encode(m)
	if err != nil {
		panic("check: " + err.Error()) // unreachable: the message has no field that can fail
	}
	return text
}
