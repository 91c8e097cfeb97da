// Package tap listens in on a checker's link and on an aggregator's store: it counts what counting
// costs, and finds out how long a hit takes until other checkers know of it.
package tap

import (
	"context"
	"sync/atomic"

	"github.com/offpath-io/offpath/loadtest/scenario"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/events"
)

// Cost is what went over a link, or to a store.
type Cost struct {
	Reports, ReportBytes int64 // repeats included
	HeardBytes           int64 // answers, grants and alarms
	StoreCommands        int64 // StoreJoins among them
	StoreJoins           int64
}

// Sub returns the difference of two snapshots.
func (c Cost) Sub(d Cost) Cost {
	return c.Add(Cost{-d.Reports, -d.ReportBytes, -d.HeardBytes, -d.StoreCommands, -d.StoreJoins})
}

// Add returns the sum.
func (c Cost) Add(d Cost) Cost {
	return Cost{
		c.Reports + d.Reports, c.ReportBytes + d.ReportBytes, c.HeardBytes + d.HeardBytes,
		c.StoreCommands + d.StoreCommands, c.StoreJoins + d.StoreJoins,
	}
}

// Link is a checker's link that is listened in on. It is safe for concurrent use.
type Link struct {
	check.Link
	now   func() int64
	trace *Trace // may be nil

	reports, reportBytes, heardBytes atomic.Int64
}

// NewLink listens in on a link. now tells the time in Unix nanoseconds; trace is nil if nobody
// wants to know when the checker learnt what.
func NewLink(link check.Link, now func() int64, trace *Trace) *Link {
	return &Link{Link: link, now: now, trace: trace}
}

// Report sends a report on.
func (l *Link) Report(shard uint32, toOwner bool, report []byte) error {
	l.reports.Add(1)
	l.reportBytes.Add(int64(len(report)))
	if l.trace != nil {
		l.trace.sent(l.now(), report)
	}
	return l.Link.Report(shard, toOwner, report)
}

// Listen listens, and in.
func (l *Link) Listen(ctx context.Context, h func(events.Kind, []byte)) error {
	return l.Link.Listen(ctx, func(kind events.Kind, payload []byte) {
		h(kind, payload)
		l.Heard(kind, payload)
	})
}

// Heard takes note of a message that the checker has just taken in. Listen calls it; whoever hands
// messages over in another way does so too.
func (l *Link) Heard(kind events.Kind, payload []byte) {
	if kind != events.KindRefresh && kind != events.KindAlarm && kind != events.KindGrant {
		return
	}
	l.heardBytes.Add(int64(len(payload)))
	if l.trace != nil && kind != events.KindGrant {
		l.trace.heard(l.now(), kind, payload)
	}
}

// Cost returns what went over the link so far.
func (l *Link) Cost() Cost {
	return Cost{Reports: l.reports.Load(), ReportBytes: l.reportBytes.Load(), HeardBytes: l.heardBytes.Load()}
}

// Checker is a checker whose link is listened in on.
type Checker struct {
	*check.Checker
	Limiters []*check.Limiter // of the scenario's rules, in their order
	Link     *Link
}

// NewChecker returns a checker of a scenario's fleet, with the link. The options say the rest.
func NewChecker(sc *scenario.Scenario, link *Link, o check.Options) (c Checker, err error) {
	o.Link, o.FlushEvery = link, sc.Flush
	if sc.TimerOnly {
		o.Tuning.FlushFloor = sc.Flush
	}
	c.Link = link
	if c.Checker, err = check.New(o); err != nil {
		return c, err
	}
	for _, r := range sc.Rules {
		l, _ := c.Limiter(r.Name)
		c.Limiters = append(c.Limiters, l)
	}
	return c, nil
}

// Store is an aggregator's store whose commands are counted: calls, each of which is one command,
// but for the first ones to a new Redis. It is safe for concurrent use.
type Store struct {
	storage.Store
	commands, joins atomic.Int64
}

// NewStore counts the commands of a store.
func NewStore(s storage.Store) *Store { return &Store{Store: s} }

// Join is one command, sent twice a second whatever the load.
func (s *Store) Join(ctx context.Context, shards int) (storage.Fleet, error) {
	s.commands.Add(1)
	s.joins.Add(1)
	return s.Store.Join(ctx, shards)
}

// Apply is one command.
func (s *Store) Apply(ctx context.Context, fold *storage.Batch) (storage.Applied, error) {
	s.commands.Add(1)
	return s.Store.Apply(ctx, fold)
}

// Lease is one command.
func (s *Store) Lease(ctx context.Context, fold *storage.LeaseBatch) (storage.Leased, error) {
	s.commands.Add(1)
	return s.Store.Lease(ctx, fold)
}

// Cost returns how many commands there were so far.
func (s *Store) Cost() Cost {
	return Cost{StoreCommands: s.commands.Load(), StoreJoins: s.joins.Load()}
}
