package check

import (
	"fmt"
	"sync/atomic"

	"github.com/offpath-io/offpath/pkg/events"
)

// keepGoodKeys lets ReceiptKeys return the last good keys, which are the checker's own where none
// are given.
func (o *Options) keepGoodKeys() error {
	given := o.ReceiptKeys
	if given == nil {
		own := events.NewReceiptKeys()
		o.ReceiptKeys = func() events.ReceiptKeys { return own }
		return nil
	}
	first := given()
	if err := first.Check(); err != nil {
		return fmt.Errorf("check: ReceiptKeys: %w", err)
	}
	var last atomic.Pointer[events.ReceiptKeys]
	last.Store(&first)
	o.ReceiptKeys = func() events.ReceiptKeys {
		keys := given()
		if keys.Check() != nil {
			return *last.Load()
		}
		last.Store(&keys)
		return keys
	}
	return nil
}

// mayBeSettled notes, before they are charged, that hits of what is asked may be settled: so no
// report of them leaves that out.
func (a *evaluation) mayBeSettled() {
	for i := range a.decisions {
		if l := a.decisions[i].limiter; !l.settles.Load() {
			l.settles.Store(true)
		}
	}
}

// receipt is that of a hit that was charged at the fleet's time now.
func (a *evaluation) receipt(c *Checker, now int64) string {
	m := &events.Receipt{Epoch: c.o.Epoch, Made: now}
	own := false // some rule takes its cost from an attribute
	for i := range a.decisions {
		q := &a.decisions[i]
		if q.charged > 0 && q.limits.rule.Cost != "" {
			own = true
		}
	}
	for i := range a.decisions {
		q := &a.decisions[i]
		if q.charged == 0 || own && q.limits.rule.Cost == "" || len(m.Charges) == events.MaxCharges {
			continue
		}
		l := q.limiter
		l.refunds.Store(true)
		rule := l.wire(now)
		rule.Newest = q.bucket
		m.Charges = append(m.Charges, &events.Charge{
			Rule: rule, Key: []byte(a.key(i)), Cost: events.Count(q.charged), Permits: l.strict != nil,
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
