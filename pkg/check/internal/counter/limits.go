package counter

import (
	"github.com/offpath-io/offpath/pkg/check/internal/fleetstate"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// Limits are the part of ruleset.Limits that counters read.
type Limits struct {
	// Stamp is already shifted to its bits in the allowance word. An unchanged rule keeps it. It is
	// the first field: ruleset.Limits says why.
	Stamp uint64

	Limit    int64          // hits per window
	Capacity int64          // how many hits there is room for at once; decisions use it
	Wire     int64          // the limit that messages name, and within which permits are granted
	Drain    window.Drain   // of a token or leaky bucket
	OnOutage rules.OnOutage // how to decide in an outage
	Raised   bool           // of an elastic rule, while there is room elsewhere
	Restless bool           // no allowance or block may be stored under them: other limits have the same stamp

	// Fields that messages contain, beside Wire.
	Revision uint64 // of the set
	Burst    int64
	Loose    bool // the rule lets more hits than Wire pass
}

// ID identifies a group. The store tells counters, and a checker's permits, apart by name and
// shape, so a checker must never have two groups with the same ID.
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
