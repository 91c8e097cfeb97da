package check

import (
	"github.com/offpath-io/offpath/pkg/check/internal/fleetstate"
	"github.com/offpath-io/offpath/pkg/check/internal/reporter"
	"github.com/offpath-io/offpath/pkg/rules"
)

// New returns a checker that decides at once. It starts nothing: until Run, hits stay pending and
// no counter leaves.
func New(o Options) (*Checker, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	if err := o.keepGoodKeys(); err != nil {
		return nil, err
	}
	c := &Checker{o: o, ended: make(chan struct{})}
	c.host.Init(fleetstate.Config{
		MaxLiveKeys: int64(o.MaxLiveKeys), Epoch: o.Epoch, ExpectCheckers: int64(o.ExpectCheckers),
		DenyUnmatched: o.DenyUnmatched,
		Local:         o.Link == nil, NoForecast: o.Tuning.NoForecast, OnDenied: o.OnDenied, Now: o.Now, KeyHash: o.KeyHash,
		FlushEvery: o.FlushEvery, FlushFloor: o.Tuning.FlushFloor, QuietFor: o.QuietFor,
	})
	c.o.Rules = nil // they need not stay in memory once other rules are in force
	c.reporter.Init(&c.host, reporter.Config{
		Link: o.Link, Epoch: o.Epoch, Groups: ruleGroups{c}, Settling: &c.settling, Trace: o.tracing(), Now: c.host.OwnTime,
		FlushEvery: o.FlushEvery, HelloEvery: o.HelloEvery,
		StaleAfter: o.StaleAfter, ShareAfter: o.ShareAfter, OutageAfter: o.OutageAfter,
		ExpectCheckers: o.ExpectCheckers, Tuning: o.Tuning,
	})
	c.host.UpdateNormalInterval() // checks read both intervals before the first flush
	c.waiting.Init(&c.host, c.ruleset.Load, c.ended, int64(o.MaxWaiting))
	c.install(c.compile(o.Rules, o.Revision, 0, nil), nil)
	return c, nil
}

// Limiter returns the limiter of the rule of this name in the set in force.
func (c *Checker) Limiter(rule string) (*Limiter, bool) {
	l, ok := c.ruleset.Load().ByName[rule]
	if !ok {
		return nil, false
	}
	return limiterOf(l), true
}

// Rules returns the set in force. A set never changes: if the pointer differs, another set is in
// force.
func (c *Checker) Rules() *rules.Set { return c.ruleset.Load().Rules }

// Revision returns the revision of the rules in force.
func (c *Checker) Revision() uint64 { return c.ruleset.Load().Revision }
