package check

// RuleStats are one rule's counters. Everything but Allowed and Denied is in hits.
type RuleStats struct {
	// Rule is its name; that of the counter, where an override has one of its own
	// (rules.Rule.WireName).
	Rule string
	// Decisions by this rule. One that another rule denied is in neither. What a rule with
	// `shadow: true` would have denied is in Denied.
	Allowed, Denied int64
	// Charged = Answered + InFlight + Pending + Overflow + Lost + Cancelled.
	Charged int64
	// Answered hits are an aggregator's to account for: as counted, late or refused.
	Answered int64
	// InFlight hits are in a report that is not answered, Pending ones in none.
	InFlight, Pending int64
	// Overflow hits passed without a key of their own, when there was no room.
	Overflow int64
	// Lost hits were in reports that were given up.
	Lost int64
	// BadCosts are hits whose cost attribute was no cost. They cost what their caller said.
	BadCosts int64
	// Cancelled hits were of reservations that were given back before they had been reported.
	Cancelled int64
	// FalseDenials are about how many of Denied turned out later to have had room, by more than
	// max(1 hit, 2 % of the limit). Those by a share of the limit, and in silence, are not looked
	// at.
	FalseDenials int64
}

// add adds another rule's counters to these.
func (r *RuleStats) add(s RuleStats) {
	r.Allowed += s.Allowed
	r.Denied += s.Denied
	r.Charged += s.Charged
	r.Answered += s.Answered
	r.InFlight += s.InFlight
	r.Pending += s.Pending
	r.Overflow += s.Overflow
	r.Lost += s.Lost
	r.BadCosts += s.BadCosts
	r.Cancelled += s.Cancelled
	r.FalseDenials += s.FalseDenials
}
