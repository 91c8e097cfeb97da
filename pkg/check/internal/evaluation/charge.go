package evaluation

import (
	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/identity"
)

// Charged is what was decided, and what there is to give back or to correct.
type Charged struct {
	Decision    Decision
	Reservation *Reservation     // if it is for later
	Charges     []*events.Charge // for a receipt, if one is wanted
}

// Charge decides for some purpose, and charges as that says.
func Charge(
	h *counter.Host, by Decider, now int64, attrs identity.Attributes, key string, cost int64, to purpose, receipt bool,
) (c Charged) {
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
		allowUnmatched(d, h)
	default:
		if receipt {
			a.mayBeSettled()
		}
		c.Reservation = a.decide(d, attrs, now)
	}
	if by.Limiter != nil {
		d.ownShadow()
	}
	if receipt && d.Allowed {
		c.Charges = a.charges(now)
	}
	return c
}
