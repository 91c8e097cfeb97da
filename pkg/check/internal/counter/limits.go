package counter

import (
	"github.com/offpath-io/offpath/pkg/check/internal/fleetstate"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// Limits are what a counter has to know of limits.
type Limits struct {
	Stamp uint64 // where the word of an allowance has it; the same as before if the rule is

	// The first cache line of limits ends here: a check that passes without the lock reads nothing
	// below.

	Limit    int64          // hits per window
	Capacity int64          // how many hits there is room for at once, which a hit is decided by
	Wire     int64          // the limit that others are told of, and that permits are granted within
	Drain    window.Drain   // of a token or leaky bucket
	OnOutage rules.OnOutage // what decides in an outage
	Raised   bool           // they are of an elastic rule while there is room elsewhere
	Restless bool           // nothing is left behind under them, as their stamp is not theirs alone

	// What others are told of them, beside wire.
	Revision uint64 // of the set
	Burst    int64
	Loose    bool // more hits than wire may pass, as the rule wants it
}

// ID is what makes a limiter another one. The store tells counters apart by name and shape, and
// permits of one name and shape are all of one checker's, so there must never be two limiters of
// one id.
type ID struct {
	Name   string
	Shape  window.Shape
	Strict bool
}

func (t *Limits) freshness(f fleetstate.Freshness) fleetstate.Freshness {
	if f == fleetstate.Outage && t.OnOutage == rules.Share {
		return fleetstate.LocalShare
	}
	return f
}
