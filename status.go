package offpath

import (
	"context"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/offpath-io/offpath/internal/status"
	"github.com/offpath-io/offpath/internal/version"
	"github.com/offpath-io/offpath/pkg/check"
)

const (
	// topKeys is how many keys a status names; consoles know it (deniedTold).
	topKeys = 30
	// setEvery is how many statuses it takes until the rules are named again, for consoles that
	// have begun to listen meanwhile.
	setEvery = 10
)

// announcer says to the fleet's consoles how the participant is.
type announcer struct {
	participant *Participant
	part        status.Part
	log         bool // see Options.WantsDecisionLog

	since int    // statuses since the rules were named
	setOf uint64 // the revision that was named
}

func newAnnouncer(o Options, m *Participant) *announcer {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return &announcer{participant: m, log: o.WantsDecisionLog, part: status.Part{
		Name: nameOf(o), Host: host, Version: version.Get().Version, Started: time.Now(),
	}}
}

// run ends after the checker has delivered its last report, so that the last status is exact.
func (a *announcer) run(ctx context.Context) {
	m := a.participant
	every := func() time.Duration { return status.Interval(m.rules.stats().Checkers) }
	_ = m.link.each(ctx, func(ctx context.Context, s *session) error {
		status.PublishChecker(ctx, s.conn, m.link.namespace, a.now, every)
		return nil
	})
}

func (a *announcer) now() status.Checker {
	s := a.participant.Stats()
	c := status.Checker{
		Part: a.part, Freshness: s.Checker.Freshness.String(), HeardAgo: -1,
		RulesRevision: s.Rules.Revision, RulesDigest: s.Rules.Digest,
		Unreported: s.Checker.Unreported(), LiveKeys: s.Checker.LiveKeys,
		Blocks: s.Blocks.Keys, WantsLog: a.log,
		Set: a.set(), Rules: decisions(s.ByLabel),
	}
	if s.Checker.Heard > 0 {
		c.HeardAgo = s.Checker.Heard.Milliseconds()
	}
	switch {
	case !s.Rules.InForce():
		c.Problem = "no rules: " + s.Rules.String()
	case s.Rules.Refused != nil:
		c.Problem = "rules refused: " + s.Rules.Refused.Error()
	default:
		c.Problem = s.Checker.Problem
	}
	list, span := a.participant.denied.Top(topKeys)
	c.Denied.Span = span.Milliseconds()
	for _, k := range list {
		key := status.Key{Rule: k.Rule, Key: status.Text(k.Text), Count: k.Count}
		c.Denied.List = append(c.Denied.List, key)
	}
	return c
}

// set are the rules in force, when it is time to name them.
func (a *announcer) set() []status.Rule {
	c := a.participant.rules.checker.Load()
	if c == nil {
		return nil
	}
	revision := c.Revision()
	if a.since++; a.since < setEvery && a.setOf == revision {
		return nil
	}
	a.since, a.setOf = 0, revision
	return status.RulesOf(c.Rules(), revision)
}

// decisions are the counters by their labels, without those of rules under which nothing happened.
func decisions(byLabel map[string]check.RuleStats) (list []status.Decisions) {
	for label, r := range byLabel {
		if r.Allowed+r.Denied+r.Charged > 0 {
			list = append(list, status.Decisions{
				Rule: label, Allowed: r.Allowed, Denied: r.Denied, Charged: r.Charged,
				False: r.FalseDenials, Lost: r.Lost + r.Overflow,
			})
		}
	}
	slices.SortFunc(list, func(a, b status.Decisions) int {
		return strings.Compare(a.Rule, b.Rule)
	})
	return list
}
