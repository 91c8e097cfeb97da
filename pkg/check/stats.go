package check

import "time"

// Stats is a snapshot of a checker's counters: every decision that was made before it was asked for
// is in them.
type Stats struct {
	// Rules in the order of the rule set in force, then those that are not in force any more but
	// still have something to report, and in no order the limits that requests have brought along
	// ([InlineLimit]). No name is there twice.
	Rules []RuleStats
	// Removed is the sum of all rules that are not in force any more and have nothing left to
	// report.
	Removed RuleStats
	// Revision is that of the rules in force.
	Revision uint64
	// LiveKeys and IdleKeys are kept now; IdleKeys only roughly.
	LiveKeys, IdleKeys int
	// Reports sent for the first time; sent again; answered; given up after 20 hours or because
	// the number of shards changed; and sends that failed at once.
	ReportsSent, ReportsRepeated, ReportsAnswered, ReportsGivenUp, ReportsUnsent int64
	// Lease requests sent; sent again, anew, because there was no answer; answered; refused.
	// Waiting is how many callers of Wait wait now.
	LeasesSent, LeasesRepeated, LeasesAnswered, LeasesRefused int64
	Waiting                                                   int
	// Settlements taken in, one for each rule that a receipt names; answered; given up, because
	// they had become too old or were refused. The others wait.
	SettlementsTaken, SettlementsAnswered, SettlementsLost int64
	// Alarms taken in. Ignored counts answers to what had been answered before, Unreadable
	// messages and answers that made no sense.
	Alarms, Ignored, Unreadable int64
	// Freshness of what this checker knows, and how long ago it last heard of an aggregator (0 if
	// never, 1 ns at least if ever).
	Freshness Freshness
	Heard     time.Duration
	// Shards and Checkers as the last welcome said; 0 before.
	Shards, Checkers int
	// ClockOffset is how far the fleet's time is ahead of this process' own.
	ClockOffset time.Duration
	// Problem says why the last report or message went wrong, until a report is answered.
	Problem string
}

// RuleStats are one rule's counters. Everything but Allowed and Denied is in hits.
type RuleStats struct {
	// Rule is its name; that of the counter, where an override has one of its own
	// (rules.Rule.WireName).
	Rule string
	// Decisions by this rule. One that another rule denied is in neither. What a rule with `shadow:
	// true` would have denied is in Denied.
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

// Unreported returns how many charged hits no aggregator has answered for yet.
func (s Stats) Unreported() int64 {
	var n int64
	for _, r := range s.Rules {
		n += r.InFlight + r.Pending
	}
	return n
}

// reporterStats are the counters kept under the reporter's lock.
type reporterStats struct {
	sent, repeated, answered, givenUp, unsent int64
	alarms, ignored, unreadable               int64
}

// Stats returns a snapshot of the counters. Its cost grows with the number of rules, and of keys
// with hits that are in no report yet, those of QuietFor at most.
func (c *Checker) Stats() Stats {
	b := &c.reporter
	b.mu.Lock()
	defer b.mu.Unlock()
	b.eachQueued(func(x *counter) {
		x.mu.Lock()
		x.putDown()
		x.mu.Unlock()
	})
	s := Stats{
		LiveKeys:        int(c.liveKeys.Load()),
		IdleKeys:        c.idle.count(),
		ReportsSent:     b.stats.sent,
		ReportsRepeated: b.stats.repeated,
		ReportsAnswered: b.stats.answered,
		ReportsGivenUp:  b.stats.givenUp,
		ReportsUnsent:   b.stats.unsent,
		LeasesSent:      b.leases.stats.sent,
		LeasesRepeated:  b.leases.stats.repeated,
		LeasesAnswered:  b.leases.stats.answered,
		LeasesRefused:   b.leases.stats.refused,
		Waiting:         int(b.leases.waiting.Load()),
		Alarms:          b.stats.alarms,
		Ignored:         b.stats.ignored,
		Unreadable:      b.stats.unreadable,
		Freshness:       Freshness(c.freshness.Load()),
		Shards:          len(b.shards),
		Checkers:        int(c.fleet.Load()),
		ClockOffset:     c.clock.Offset(),
		Problem:         b.problem,
		Revision:        c.ruleset.Load().revision,
	}
	if b.lastContact != 0 {
		s.Heard = max(time.Duration(b.now-b.lastContact), 1) // just now is not never
	}
	s.SettlementsTaken, s.SettlementsAnswered, s.SettlementsLost = c.settling.Counts()
	s.Rules, s.Removed = b.ruleStats(), b.formers.removed
	return s
}

// eachQueued calls f with every queued counter, which are all that may hold an allowance. Some may
// come twice. the reporter's lock is held, so that none leaves its queue.
func (b *reporter) eachQueued(f func(*counter)) {
	for i := range b.checker.dirty {
		for c := b.checker.dirty[i].head.Load(); c != nil; c = c.next {
			f(c)
		}
	}
	for _, c := range b.unsharded {
		f(c)
	}
	for i := range b.shards {
		b.shards[i].queue.Each(f)
	}
	b.waits.Each(func(l *Limiter) {
		l.owed.waiting.Each(func(a aged) { f(a.cell) })
	})
}

// ruleStats are the counters by the names of the rules: a rule that has started clean is one with
// what it was before.
func (b *reporter) ruleStats() []RuleStats {
	var all []RuleStats
	at := make(map[string]int)
	for l := range b.limiters() {
		i, ok := at[l.name]
		if !ok {
			i = len(all)
			at[l.name] = i
			all = append(all, RuleStats{Rule: l.name})
			all[i].add(b.formers.past[l.name])
		}
		all[i].add(l.stats(b.checker.o.Link == nil))
	}
	return all
}

// stats returns this limiter's counters, but for what has been put down as past. the reporter's
// lock is held.
func (l *Limiter) stats(local bool) RuleStats {
	r := RuleStats{
		Answered: l.owed.answered,
		InFlight: l.owed.inFlight,
		Overflow: l.overflow.Load(),
		Lost:     l.owed.lost,
		BadCosts: l.badCosts.Load(),

		Cancelled: l.cancelled.Load(),

		FalseDenials: l.falseDenials.Load(),
	}
	for i := range l.tallies {
		n := &l.tallies[i]
		allowed := n.allowed.Load()
		r.Allowed += allowed
		r.Denied += n.denied.Load()
		r.Charged += allowed + n.further.Load()
	}
	if local { // nobody to report to
		r.Answered = r.Charged - r.Overflow - r.Cancelled
	}
	r.Pending = r.Charged - r.Answered - r.InFlight - r.Overflow - r.Lost - r.Cancelled
	r.addTimes(-1, &l.owed.told)
	return r
}

// add adds another rule's counters to these.
func (r *RuleStats) add(s RuleStats) { r.addTimes(1, &s) }

func (r *RuleStats) addTimes(n int64, s *RuleStats) {
	r.Allowed += n * s.Allowed
	r.Denied += n * s.Denied
	r.Charged += n * s.Charged
	r.Answered += n * s.Answered
	r.InFlight += n * s.InFlight
	r.Pending += n * s.Pending
	r.Overflow += n * s.Overflow
	r.Lost += n * s.Lost
	r.BadCosts += n * s.BadCosts
	r.Cancelled += n * s.Cancelled
	r.FalseDenials += n * s.FalseDenials
}
