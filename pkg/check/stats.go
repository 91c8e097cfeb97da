package check

import "time"

// Stats is a snapshot of a checker's counters: every decision that was made before it was asked for
// is in them.
type Stats struct {
	// Rules has the rules in force, in the order of the set; then those that are not in force any
	// more but still have something to report; then, in no order, inline limits ([InlineLimit]). No
	// name is there twice.
	Rules []RuleStats
	// Removed is the sum of all rules that are not in force any more and have nothing left to
	// report.
	Removed RuleStats
	// Revision is that of the rules in force.
	Revision uint64
	// LiveKeys and IdleKeys are kept now; IdleKeys only roughly.
	LiveKeys, IdleKeys int
	// Unmatched is how many requests no rule matched ([Decision.Unmatched]), of those that would
	// have been charged: not in the modes Peek, Record, Explain and Standing.
	Unmatched int64
	// Reports sent for the first time; sent again; answered; given up after 20 hours or because the
	// number of shards changed; and sends that failed at once.
	ReportsSent, ReportsRepeated, ReportsAnswered, ReportsGivenUp, ReportsUnsent int64
	// Lease requests sent; sent again, anew, because there was no answer; answered; refused.
	// Waiting is how many callers of Wait wait now.
	LeasesSent, LeasesRepeated, LeasesAnswered, LeasesRefused int64
	Waiting                                                   int
	// Settlements accepted, one for each rule that a receipt names; answered; given up, because
	// they had become too old or were refused. The others wait.
	SettlementsTaken, SettlementsAnswered, SettlementsLost int64
	// Alarms received. Ignored counts answers to reports and requests that had been answered
	// before. Unreadable counts messages that could not be read, answers that made no sense, and
	// refusals of reports and lease requests.
	Alarms, Ignored, Unreadable int64
	// StoreLosses is how often this checker learnt that the store had lost a shard's data: by a
	// message of a later generation, which begins when a loss is found, or by an answer from a
	// state before one that the checker had known when it asked. A loss may be found more than
	// once. LastStoreLoss is when the latest was found, in Unix ns: by the store's clock if a
	// generation tells of it, else by the fleet's; 0 if none is known.
	StoreLosses, LastStoreLoss int64
	// Freshness is the worst of all shards, and ShardFreshness how many shards have which; nil
	// before the first welcome. Heard is how long ago an aggregator last sent a message other than
	// a refusal (0 if never, 1 ns at least if ever).
	Freshness      Freshness
	ShardFreshness map[Freshness]int
	Heard          time.Duration
	// Shards is from the last welcome; 0 before the first. Checkers is the size of the fleet: as
	// the last welcome that knew it said, or Options.ExpectCheckers if that is more.
	Shards, Checkers int
	// ClockOffset is how far the fleet's time is ahead of this process' own.
	ClockOffset time.Duration
	// Problem says why the last report or message went wrong, until a report is answered.
	Problem string
}

// Unreported returns how many charged hits no aggregator has answered for yet.
func (s Stats) Unreported() int64 {
	var n int64
	for _, r := range s.Rules {
		n += r.InFlight + r.Pending
	}
	return n
}

// Stats returns a snapshot of the counters. Its cost grows with the number of rules, and of keys
// with hits that are in no report yet, those of QuietFor at most.
func (c *Checker) Stats() Stats {
	c.reporter.Lock()
	defer c.reporter.Unlock()
	c.takeRevived()
	r := c.reporter.StatsLocked()
	s := Stats{
		LiveKeys:        int(c.host.LiveKeys.Load()),
		IdleKeys:        c.host.Idle.Len(),
		Unmatched:       c.host.Unmatched.Load(),
		ReportsSent:     r.Sent,
		ReportsRepeated: r.Repeated,
		ReportsAnswered: r.Answered,
		ReportsGivenUp:  r.GivenUp,
		ReportsUnsent:   r.Unsent,
		LeasesSent:      r.LeasesSent,
		LeasesRepeated:  r.LeasesRepeated,
		LeasesAnswered:  r.LeasesAnswered,
		LeasesRefused:   r.LeasesRefused,
		Waiting:         int(c.waiting.Now.Load()),
		Alarms:          r.Alarms,
		Ignored:         r.Ignored,
		StoreLosses:     r.StoreLosses,
		LastStoreLoss:   r.LastStoreLoss,
		Unreadable:      r.Unreadable,
		Freshness:       c.host.Freshness(),
		Heard:           r.Heard,
		Shards:          r.Shards,
		Checkers:        int(c.host.KnownCheckers()),
		ClockOffset:     c.host.Clock.Offset(),
		Problem:         r.Problem,
		Revision:        c.ruleset.Load().Revision,
	}
	if s.Shards > 0 {
		s.ShardFreshness = c.host.ByFreshness()
	}
	s.SettlementsTaken, s.SettlementsAnswered, s.SettlementsLost = c.settling.Counts()
	s.Rules, s.Removed = c.ruleStats(), c.retirees.removed
	return s
}

// ruleStats returns the counts by the names of the rules: a rule that has started clean is added to
// the former one.
func (c *Checker) ruleStats() []RuleStats {
	var all []RuleStats
	at := make(map[string]int)
	for l := range c.limiters() {
		i, ok := at[l.Group.Name]
		if !ok {
			i = len(all)
			at[l.Group.Name] = i
			all = append(all, RuleStats{Rule: l.Group.Name})
			all[i].add(c.retirees.past[l.Group.Name])
		}
		all[i].add(c.stats(l))
	}
	return all
}
