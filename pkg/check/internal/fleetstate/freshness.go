package fleetstate

// Freshness says how current a checker's knowledge of the rest of the fleet is, from best to worst
// but for Local.
type Freshness uint8

const (
	// Local: no aggregator has ever been heard. Own hits alone decide.
	Local Freshness = iota
	// Fresh: an aggregator has been heard lately.
	Fresh
	// Stale: no aggregator has been heard lately. The forecast fades.
	Stale
	// LocalShare: no aggregator has been heard for longer. Each checker keeps to its share of every
	// limit.
	LocalShare
	// Outage: no aggregator has been heard for very long. Rules decide by their OnOutage.
	Outage
)

// String returns the freshness in lower case.
func (f Freshness) String() string {
	switch f {
	case Fresh:
		return "fresh"
	case Stale:
		return "stale"
	case LocalShare:
		return "local_share"
	case Outage:
		return "outage"
	}
	return "local"
}
