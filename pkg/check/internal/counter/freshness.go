package counter

// Freshness says how current a checker's knowledge of the rest of the fleet is, from best to worst
// but for kLocal.
type Freshness uint8

const (
	// kLocal: no fleet has ever been heard of. Own hits alone decide.
	Local Freshness = iota
	// kFresh: an aggregator has been heard of late.
	Fresh
	// kStale: none has; what was known of others is ageing.
	Stale
	// kLocalShare: none has for longer. Each checker keeps to its share of every limit.
	LocalShare
	// kOutage: none has for long. Rules decide by their OnOutage.
	Outage
)
