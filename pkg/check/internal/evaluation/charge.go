package evaluation

import (
	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/identity"
)

// ChargeResult is a decision, with its reservation and its charges.
type ChargeResult struct {
	Decision    Decision
	Reservation *Reservation     // if the purpose is Reserving and the hit was charged
	Charges     []*events.Charge // for a receipt, if one is wanted
}

// Charge decides, and charges, for a purpose.
func Charge(
	h *counter.Host, by Decider, now int64, attrs identity.Attributes, key string, cost int64, to purpose, receipt bool,
) (c ChargeResult) {
	a := newEvaluation(h)
	defer a.free()
	d := &c.Decision
	switch {
	case !a.fill(by, now, attrs, key, cost, to):
		a.denyBarred(d, attrs, now)
		return c
	case to == Recording:
		a.record(now)
		return c
	case len(a.decisions) == 0:
		a.passUnlimited(d)
	default:
		if receipt {
			a.mayBeSettled()
		}
		c.Reservation = a.decideAll(d, attrs, now)
	}
	if by.Limiter != nil {
		d.ownShadow()
	}
	if receipt && d.Allowed {
		c.Charges = a.charges(now)
	}
	return c
}
