package fleetstate

// Freshness says how current a checker's knowledge of the rest of the fleet is, from best to worst
// but for Local.
type Freshness uint8

const (
	// Local: no fleet has ever been heard of. Own hits alone decide.
	Local Freshness = iota
	// Fresh: an aggregator has been heard of late.
	Fresh
	// Stale: none has; what was known of others is ageing.
	Stale
	// LocalShare: none has for longer. Each checker keeps to its share of every limit.
	LocalShare
	// Outage: none has for long. Rules decide by their OnOutage.
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
