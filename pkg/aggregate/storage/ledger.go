package storage

// Tally is the number of hits by outcome, see [RuleLedger].
type Tally struct {
	Counted, Late, Refused, Refunded, Settled int64
}

// Ledger is the store's record for each rule, by name.
type Ledger map[string]RuleLedger

// RuleLedger is how many hits of a rule were ever reported, by outcome. It is never reset while the
// store keeps its data.
type RuleLedger struct {
	// Counted hits were added to a bucket.
	Counted int64 `json:"counted"`
	// Late hits arrived after their bucket had left every window.
	Late int64 `json:"late"`
	// Refused hits were of a bucket too far in the future.
	Refused int64 `json:"refused"`
	// Refunded hits were given back by settlements.
	Refunded int64 `json:"refunded"`
	// Settled hits were added by settlements. They are among the counted, late and refused.
	Settled int64 `json:"settled"`
	// Overflow hits were of keys that the store had no room for.
	Overflow int64 `json:"overflow"`
}

// Add adds the outcomes of a batch.
func (l *RuleLedger) Add(t Tally) {
	l.Counted = Sum(l.Counted, t.Counted)
	l.Late = Sum(l.Late, t.Late)
	l.Refused = Sum(l.Refused, t.Refused)
	l.Refunded = Sum(l.Refunded, t.Refunded)
	l.Settled = Sum(l.Settled, t.Settled)
}
