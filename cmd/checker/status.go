package main

import (
	"context"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/offpath-io/offpath/cmd/internal/console"
	"github.com/offpath-io/offpath/cmd/internal/daemon"
	"github.com/offpath-io/offpath/internal/status"
	"github.com/offpath-io/offpath/internal/topkeys"
	"github.com/offpath-io/offpath/internal/version"
	"github.com/offpath-io/offpath/pkg/check"
)

// topShown is how many keys a status names.
const topShown = 30

// speaker tells the fleet's consoles how this checker is.
type speaker struct {
	part     status.Part
	wantsLog bool
	living   *living
	metrics  *metrics
	denied   *topkeys.Top
	blocked  func() int

	told  int // statuses since the set was told
	setOf uint64
}

func newSpeaker(c config, name string, l *living, m *metrics, denied *topkeys.Top, blocked func() int) *speaker {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	part := status.Part{Name: name, Host: host, Version: version.Get().Version, Started: time.Now()}
	return &speaker{part: part, wantsLog: c.othersMakeLog(), living: l, metrics: m, denied: denied, blocked: blocked}
}

// run is its part of the daemon. It ends after the checker has delivered its last report, so what it says last is exact.
func (s *speaker) run(l *lifeline) daemon.Part {
	return daemon.Part{Name: "status", Run: func(ctx context.Context) error {
		every := func() time.Duration { return status.Interval(s.living.stats().Checkers) }
		return l.each(ctx, func(ctx context.Context, at *strand) error {
			return status.PublishChecker(ctx, at.conn, l.namespace, s.now, every)
		})
	}}
}

func (s *speaker) now() status.Checker {
	stats, sums := s.metrics.snapshot()
	rules := s.living.keeper.State()
	c := status.Checker{
		Part: s.part, Freshness: stats.Freshness.String(), HeardAgo: -1,
		RulesRevision: rules.Revision, RulesDigest: rules.Digest,
		Unreported: stats.Unreported(), LiveKeys: stats.LiveKeys, Blocks: s.blocked(), WantsLog: s.wantsLog,
	}
	if stats.Heard > 0 {
		c.HeardAgo = stats.Heard.Milliseconds()
	}
	switch {
	case !rules.InForce():
		c.Problem = "no rules: " + rules.String()
	case rules.Refused != nil:
		c.Problem = "rules refused: " + rules.Refused.Err.Error()
	default:
		c.Problem = stats.Problem
	}
	c.Set = s.set()
	c.Rules = decisionsOf(sums)
	list, span := s.denied.Top(topShown)
	c.Denied.Span = span.Milliseconds()
	for _, k := range list {
		c.Denied.List = append(c.Denied.List, status.Key{Rule: k.Rule, Key: status.Text(k.Text), Count: k.Count})
	}
	return c
}

// setEvery is how many statuses it takes until the rules are told again, for those who have begun to listen meanwhile.
const setEvery = 10

// set are the rules in force, when it is time to tell them.
func (s *speaker) set() []status.Rule {
	at := s.living.at.Load()
	if at == nil {
		return nil
	}
	revision := at.checker.Revision()
	if s.told++; s.told < setEvery && s.setOf == revision {
		return nil
	}
	s.told, s.setOf = 0, revision
	return console.RulesOf(at.checker.Rules(), revision)
}

// decisionsOf are the counters that /metrics has, but for rules that nothing has happened under.
func decisionsOf(byLabel map[string]check.RuleStats) (list []status.Decisions) {
	for label, r := range byLabel {
		if r.Allowed+r.Denied+r.Charged > 0 {
			list = append(list, status.Decisions{Rule: label, Allowed: r.Allowed, Denied: r.Denied, Charged: r.Charged})
		}
	}
	slices.SortFunc(list, func(a, b status.Decisions) int { return strings.Compare(a.Rule, b.Rule) })
	return list
}
