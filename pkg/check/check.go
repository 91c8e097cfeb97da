// Package check decides at once whether a request may pass, from counts in its own memory, and
// reports what it admitted afterwards.
//
// A [Checker] holds a set of rules. [Checker.Check] finds the rules that match a request's
// attributes and asks all of them; a [Limiter] decides by one of them about a key. [Checker.Do]
// does the same in other modes: to look, to charge without deciding, to reserve a turn, to explain.
// None of these does any I/O, waits for anybody, or fails: they work before the first connection
// and while everything behind is dead. [Checker.Wait] is for callers that can wait. A Checker
// without a [Link] is a plain local limiter.
//
// Behind the decisions, [Checker.Run] moves hits along: an admitted hit is *pending* until a flush
// freezes it into a report, *in flight* until the report is answered, and from then on part of the
// key's *base*, the total that the fleet knows of. A key's count is always base + in flight +
// pending, and each of these steps happens under the key's lock, so that no decision sees a hit
// twice or not at all.
//
// The pieces, in the order in which a hit meets them: evaluation.go (find the rules and keys),
// limiter.go and several.go (decide by one rule and by several), request.go (all modes), counter.go
// (one key's counts; table.go has the map of them, keytext.go the text of keys), live.go (where
// counters live, and what happens when there is no room), flush.go and report.go (pending to
// report), receive.go (answers and alarms), welcome.go (the time, and the number of shards),
// eviction.go (idle counters leave), run.go (the goroutines around it). Everything but run.go,
// acquire.go and wait.go is a function of the time it is given.
//
// What others have admitted unheard is forecast once a key is near its limit (forecast.go, and
// internal/forecast, which also estimates which denials were false). Others decide when a key is
// reported: rounds.go near its limit, quiet.go far from it. degradation.go has what is decided by
// while nobody answers.
//
// Token and leaky buckets have a level beside their counts (level.go), and callers who would rather
// wait for their turn than be denied (reserve.go, wait.go, line.go).
//
// A hit's true cost can be settled afterwards: receipt.go (what was charged), settle.go (the true
// cost), internal/settlement (until the store has it), refund.go (what was given back).
//
// What a rule says beyond its limit are its clauses: clauses.go (what they make of it), apply.go
// (what they make of a request), elastic.go (whether there is room elsewhere), view.go and peek.go
// (to decide without charging, and to charge without deciding), explain.go (why).
//
// Under strict enforcement a limiter spends *permits* instead, which the store has granted:
// internal/permit (what a key has), strict.go (what a check does with it), lease.go and grants.go
// (how permits are asked for, and come), internal/fleetclock (until when they last), acquire.go
// (how callers wait for them).
//
// Rules may change at any time: limits.go (what a decision goes by), ruleset.go (a set, ready to
// decide by), reload.go (how one takes the place of another), retired.go (what becomes of limiters
// whose rules have gone). inline.go has the limits that requests bring along. Whatever the rules
// say, single keys may be kept out for a time: blocks.go.
//
// Others can follow what happens: stats.go (counters), ondenied.go (each denial), trace.go (the way
// of a report).
package check

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/offpath-io/offpath/internal/checktuning"
	"github.com/offpath-io/offpath/pkg/check/internal/fleetclock"
	"github.com/offpath-io/offpath/pkg/check/internal/settlement"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
)

// Link carries a checker's messages to the aggregators and theirs back. Packages natsbus and membus
// have one each.
type Link interface {
	// Report sends an encoded report to the aggregator of this ID, or to any if that is 0. It does
	// not wait, and does not keep the slice. An error means that the report was certainly not sent.
	// It must not call the function that Listen was given.
	Report(shard uint32, aggregator uint64, report []byte) error
	// Lease sends an encoded lease request, likewise.
	Lease(shard uint32, aggregator uint64, request []byte) error
	// Hello sends a hello to the aggregators, likewise.
	Hello(hello []byte) error
	// Listen calls h with every message for this checker until ctx is done, and with
	// [events.KindUnheard] when it learns that a report or lease request has reached nobody. It
	// does not call h after it has returned.
	Listen(ctx context.Context, h func(kind events.Kind, payload []byte)) error
}

// Options make a Checker. Only Rules is required.
type Options struct {
	// Rules that this checker decides by, and their revision; see [Checker.SetRules].
	Rules    *rules.Set
	Revision uint64
	// Link to the aggregators. Nil makes a local limiter: nothing is reported, nothing is learnt.
	Link Link
	// FlushEvery is the longest that hits wait for their report, while reports are answered and
	// unless their key is far below its limit. Shorter is more exact, longer is less traffic. At
	// least 1 ms, default 50 ms.
	FlushEvery time.Duration
	// QuietFor is the longest that hits of a key far below its limit wait for their report, which
	// is never more than a tenth of its window. A checker that is killed loses them. Longer is less
	// traffic for frequent keys that are far below their limits. Less than twice FlushEvery: such
	// hits wait no longer than others. Default 1 s.
	QuietFor time.Duration
	// HelloEvery is the time between heartbeats. At least 10 ms, default 2 s.
	HelloEvery time.Duration
	// StaleAfter, ShareAfter and OutageAfter are degradation levels: how long no aggregator has
	// been heard when the checker's knowledge is stale, when it keeps to its share of every limit,
	// and when rules whose OnOutage is rules.Open or rules.Closed decide by that. They must be in
	// this order, and at least HelloEvery. Default 3, 10 and 300 times HelloEvery: 6 s, 20 s and 10
	// minutes.
	StaleAfter, ShareAfter, OutageAfter time.Duration
	// ExpectCheckers is how many checkers the fleet is assumed to have until it is heard of. With
	// more than 1, this checker keeps to its share of every limit until then. Default 0: it decides
	// by its own hits alone.
	ExpectCheckers int
	// MaxLiveKeys is the most keys that have unreported hits or hits in flight, or are over their
	// limit. Such a key takes about 200 bytes beside its text with one bucket per window, 16 bytes
	// more per further bucket, and 800 more once it has come near its limit. When there are more,
	// new keys share the rule's OnOutage decision. Default 1,048,576.
	MaxLiveKeys int
	// MaxIdleKeys is the most keys in the idle cache, of about 200 bytes each. Forgetting one costs
	// exactness until its next report is answered. Negative: none. Default 1,048,576.
	MaxIdleKeys int
	// KeyHash replaces keys by keyed hashes wherever they are kept or sent, so that neither NATS
	// nor the store shows who is limited. All checkers of a fleet need the same secret. Nil: keys
	// are as they are.
	KeyHash *identity.Hasher
	// Trace, if not nil, is called with each new report, and may follow it: see [Tracing].
	Trace Tracing
	// OnDenied, if not nil, is called with denials: the counter's name (RuleStats.Rule), the key as
	// it is kept and sent, and the number of decisions. That is mostly 1; a key that is denied in
	// bulk is told with its next report. If a rule with `shadow: true` bars a request by a list, an
	// override or a block, the key is "". It is called by decisions, some with locks held, so it
	// must be quick and safe for concurrent use, and must not call the checker. The key is only
	// good during the call.
	OnDenied func(rule, key string, decisions int64)
	// MaxWaiting is the most callers of Wait that wait at a time, of about 400 bytes each. The
	// others are decided at once, as by Do. Default 65,536.
	MaxWaiting int
	// MaxSettling is the most settlements that wait to be reported and answered, of about 200 bytes
	// each. When there are more, Settle returns ErrSettling. Default 65,536.
	MaxSettling int
	// ReceiptKeys returns the fleet's secrets, by which a checker verifies the receipts that it or
	// another checker has made: one or two, of at least 32 bytes each. It is called for each
	// receipt that is made or settled, by several goroutines, so the secrets can change. Invalid
	// ones are ignored. Nil: the checker draws a secret of its own; no other checker can settle its
	// receipts then, nor can it after a restart. Each fleet needs secrets of its own, which tell
	// fleets' receipts apart.
	ReceiptKeys func() events.ReceiptKeys
	// DrainTimeout is the longest that Run delivers what is left when it is told to stop. Default 5
	// s.
	DrainTimeout time.Duration
	// Now returns this process' time, by which the checker estimates the fleet's. It is for
	// simulations and tests: every check calls it. It must be safe for concurrent use and must not
	// go back. Nil: the wall clock at the start plus the time since, so that steps of the system's
	// clock change nothing; while Run is at work, checks read it to the millisecond.
	Now func() time.Time
	// Tuning is for tests and the simulator.
	Tuning checktuning.Tuning
	// Epoch names this life of this checker: see [events.NewEpoch]. It must be unique in the fleet
	// and over time. Default: a new one.
	Epoch uint64
}

func (o Options) withDefaults() Options {
	setDefault(&o.FlushEvery, 50*time.Millisecond)
	setDefault(&o.QuietFor, quietFor)
	setDefault(&o.HelloEvery, 2*time.Second)
	setDefault(&o.StaleAfter, 3*o.HelloEvery)
	setDefault(&o.ShareAfter, 10*o.HelloEvery)
	setDefault(&o.OutageAfter, 300*o.HelloEvery)
	setDefault(&o.MaxLiveKeys, 1<<20)
	setDefault(&o.MaxIdleKeys, 1<<20)
	setDefault(&o.MaxWaiting, 1<<16)
	setDefault(&o.MaxSettling, 1<<16)
	setDefault(&o.DrainTimeout, 5*time.Second)
	setDefault(&o.Epoch, events.NewEpoch(""))
	setDefault(&o.Tuning.FlushFloor, min(4*time.Millisecond, o.FlushEvery))
	setDefault(&o.Tuning.ReportKeys, 1000)
	setDefault(&o.Tuning.ReportTimeout, 250*time.Millisecond)
	return o
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (o Options) validate() error {
	switch {
	case o.Rules == nil:
		return errNoRules
	case o.FlushEvery < time.Millisecond:
		return fmt.Errorf("check: FlushEvery %v: want at least 1ms", o.FlushEvery)
	case o.Tuning.FlushFloor < time.Millisecond || o.Tuning.FlushFloor > o.FlushEvery:
		return fmt.Errorf("check: FlushFloor %v: want 1ms to FlushEvery (%v)", o.Tuning.FlushFloor, o.FlushEvery)
	case o.QuietFor < 0:
		return fmt.Errorf("check: QuietFor %v: want none or a positive one", o.QuietFor)
	case o.HelloEvery < 10*time.Millisecond:
		return fmt.Errorf("check: HelloEvery %v: want at least 10ms", o.HelloEvery)
	case o.StaleAfter < o.HelloEvery || o.ShareAfter < o.StaleAfter || o.OutageAfter < o.ShareAfter:
		return fmt.Errorf("check: StaleAfter %v, ShareAfter %v, OutageAfter %v: "+
			"want them in this order, from HelloEvery (%v) on",
			o.StaleAfter, o.ShareAfter, o.OutageAfter, o.HelloEvery)
	case o.ExpectCheckers < 0:
		return fmt.Errorf("check: ExpectCheckers %d: want none or some", o.ExpectCheckers)
	case o.MaxLiveKeys < 1:
		return fmt.Errorf("check: MaxLiveKeys %d: want at least 1", o.MaxLiveKeys)
	case o.Tuning.ReportKeys < 1 || o.Tuning.ReportKeys >= events.MaxKeys-1: // the last key may take three rows
		return fmt.Errorf("check: ReportKeys %d: want 1 to %d", o.Tuning.ReportKeys, events.MaxKeys-2)
	case o.Tuning.ReportTimeout < 10*time.Millisecond:
		return fmt.Errorf("check: ReportTimeout %v: want at least 10ms", o.Tuning.ReportTimeout)
	case o.MaxWaiting < 0:
		return fmt.Errorf("check: MaxWaiting %d: want a positive one", o.MaxWaiting)
	case o.MaxSettling < 0:
		return fmt.Errorf("check: MaxSettling %d: want a positive one", o.MaxSettling)
	case o.DrainTimeout < 0:
		return fmt.Errorf("check: DrainTimeout %v: want none or a positive one", o.DrainTimeout)
	}
	return nil
}

// Checker decides for one set of rules at a time. Its methods are safe for concurrent use.
type Checker struct {
	o          Options
	ruleset    atomic.Pointer[ruleset] // what it decides by at present
	scratch    sync.Pool               // *evaluation
	everStrict atomic.Bool             // some limiter is, or has been, strict
	settling   settlement.Queue
	receipts   atomic.Uint64 // the number of the last one

	reload   sync.Mutex // held while the rules change
	limiters uint64     // how many there have been
	blocks   blocks
	strays   revivals
	inline   inlineLimits

	clock     fleetclock.Clock
	table     counterTable
	waits     atomic.Uint64 // calls of Wait
	freshness atomic.Uint32 // Freshness of everything this checker knows
	liveKeys  atomic.Int64  // counters in all limiters' live maps
	idle      idleCounters
	dirty     [stripes]stack // counters with hits that no flush has seen yet
	stripe    atomic.Uint32  // hands out stripes in turn

	fleet    atomic.Int64 // live checkers, as the last welcome said
	rounds   rounds
	reporter reporter
	wake     chan struct{} // an early flush is wanted
	ended    chan struct{} // closed when Run has
	swaps    swaps         // of rules, for who waits
	end      sync.Once
}

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
	c := &Checker{o: o, wake: make(chan struct{}, 1), ended: make(chan struct{})}
	c.o.Rules = nil // they are not in force for ever
	c.scratch.New = func() any { return new(evaluation) }
	c.freshness.Store(uint32(Local))
	c.table.init()
	c.reporter.checker = c
	c.reporter.normalInterval()
	c.reporter.install(c.compile(o.Rules, o.Revision, 0, nil, c.reporter.findRetired), nil)
	return c, nil
}

// Limiter returns the limiter of the rule of this name in the set in force.
func (c *Checker) Limiter(rule string) (*Limiter, bool) {
	l, ok := c.ruleset.Load().byName[rule]
	return l, ok
}

// Rules returns the set in force, which never changes: another one has taken its place when the
// pointer is another.
func (c *Checker) Rules() *rules.Set { return c.ruleset.Load().set }

// Revision returns the revision of the rules in force.
func (c *Checker) Revision() uint64 { return c.ruleset.Load().revision }
