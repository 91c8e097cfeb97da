// Package check decides at once whether a request may pass, from counts in its own memory, and
// reports what it admitted afterwards.
//
// A [Checker] holds a set of rules. [Checker.Check] finds the rules that match a request's attributes
// and asks all of them; a [Limiter] decides by one of them about a key. [Checker.Do] does the same in
// other modes: to look, to charge without deciding, to reserve a turn, to explain. None of these does
// any I/O, waits for anybody, or fails: they work before the first connection and while everything
// behind is dead. [Checker.Wait] is for callers that can wait. A Checker without a [Link] is a plain
// local limiter.
//
// Behind the decisions, [Checker.Run] moves hits along: an admitted hit is *pending* until a flush
// freezes it into a report, *in flight* until the report is answered, and from then on part of the
// key's *base*, the total that the fleet knows of. A key's count is always base + in flight +
// pending, and each of these steps happens under the key's lock, so that no decision sees a hit
// twice or not at all.
//
// The pieces, in the order in which a hit meets them: limiter.go and several.go (find the keys, decide by one rule and by several), request.go (all modes), cell.go
// (one key's counts; cells.go has the map of them, keytext.go the text of keys), live.go (where cells live, and what happens when there is no room), flush.go
// and report.go (pending to report), receive.go (answers and alarms), welcome.go (the time, and the number of shards), age.go (idle
// cells leave), run.go (the goroutines around it). Everything but run.go, acquire.go and wait.go is a function of
// the time it is given.
//
// What others have admitted unheard is forecast once a key is near its limit (ahead.go, and
// internal/forecast, which also estimates which denials were false). Others decide when a key is
// reported: rounds.go near its limit, quiet.go far from it. ladder.go has what is decided by while
// nobody answers.
//
// Token and leaky buckets have a level beside their counts (level.go), and callers who would rather wait for their
// turn than be denied (reserve.go, wait.go, line.go).
//
// A hit's true cost can be settled afterwards: receipt.go (what was charged), settle.go (the true
// cost), internal/settlement (until the store has it), refund.go (what was given back).
//
// What a rule says beyond its limit are its clauses: clauses.go (what they make of it), apply.go (what they make of a request), elastic.go
// (whether there is room elsewhere), view.go and peek.go (to decide without charging, and to charge without deciding), explain.go (why).
//
// Under strict enforcement a limiter spends *permits* instead, which the store has granted:
// internal/permit (what a key has), strict.go (what a check does with it), lease.go and grants.go
// (how permits are asked for, and come), internal/fleetclock (until when they last), acquire.go (how
// callers wait for them).
//
// Rules may change at any time: terms.go (what a decision goes by), program.go (a set, ready to decide by), reload.go
// (how one takes the place of another), former.go (what becomes of limiters whose rules have gone). inline.go has
// the limits that requests bring along.
// Whatever the rules say, single keys may be kept out for a time: blocks.go.
//
// Others can follow what happens: stats.go (counters), ondenied.go (each denial), trace.go (the way of a report).
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
	// Report sends an encoded report to the aggregator of this ID, or to any if that is 0, without waiting and
	// without keeping the slice. An error means that it was certainly not sent. It must not hand over a message before
	// it returns.
	Report(shard uint32, aggregator uint64, report []byte) error
	// Lease sends an encoded lease request, likewise.
	Lease(shard uint32, aggregator uint64, request []byte) error
	// Hello sends a hello to the aggregators, likewise.
	Hello(hello []byte) error
	// Listen hands every message for this checker to h, until ctx is done, and [events.KindUnheard] where it knows that
	// a report or lease request has reached nobody. Once it has returned it does not call h any more.
	Listen(ctx context.Context, h func(kind events.Kind, payload []byte)) error
}

// Options make a Checker. Only Rules is required.
type Options struct {
	// Rules that this checker decides by, and their revision; see [Checker.SetRules].
	Rules    *rules.Set
	Revision uint64
	// Link to the aggregators. Nil makes a local limiter: nothing is reported, nothing is learnt.
	Link Link
	// FlushEvery is how long hits wait for their report at the most, while reports are answered and their
	// key is not far below its limit.
	// Shorter is more exact, longer is less traffic. Default 50 ms.
	FlushEvery time.Duration
	// QuietFor is how long hits of a key far below its limit may wait for their report, at most;
	// never longer than a tenth of its window. A checker that is killed loses them. Longer is fewer
	// updates of keys that come often and are far below their limit. Less than twice FlushEvery: no
	// longer than others. Default 1 s.
	QuietFor time.Duration
	// HelloEvery is the time between heartbeats. Default 2 s.
	HelloEvery time.Duration
	// StaleAfter, ShareAfter and OutageAfter are after how long without a word from any aggregator the
	// checker's knowledge is stale, it keeps to its share of every limit, and rules whose OnOutage is
	// rules.Open or rules.Closed decide by that; in this order, and HelloEvery at least. Default 3, 10
	// and 300 times HelloEvery: 6 s, 20 s and 10 minutes.
	StaleAfter, ShareAfter, OutageAfter time.Duration
	// ExpectCheckers is how many checkers the fleet is thought to have until it is heard of. With more
	// than 1, this checker keeps to its share of every limit until then. Default 0: it decides by its own hits alone.
	ExpectCheckers int
	// MaxLiveKeys bounds the keys with unreported hits or hits in flight, and blocked keys; a live
	// key takes about 200 bytes beside its text with one bucket per window, 16 bytes more per
	// further bucket, and 800 more once it has come near its limit. Beyond it new keys share the rule's OnOutage decision. Default 1,048,576.
	MaxLiveKeys int
	// MaxIdleKeys bounds the keys that are only remembered; losing one costs exactness until its
	// next report is answered. About 200 bytes each. Negative: none. Default 1,048,576.
	MaxIdleKeys int
	// KeyHash replaces keys by keyed hashes wherever they are kept or sent, so that neither NATS nor the store sees who
	// is limited. All checkers of a fleet need the same secret. Nil: keys are as they are.
	KeyHash *identity.Hasher
	// Trace, if not nil, is told of each new report, and may follow it: see [Tracing].
	Trace Tracing
	// OnDenied, if not nil, is told of denials, of the counter's name (RuleStats.Rule) and the key as it is kept and sent: how many
	// decisions, mostly one at a time, but of a key that is denied in bulk at its next report. Where a rule with `shadow: true` bars a
	// request by a list, an override or a block, the key is "". Decisions call it, some
	// with locks held, so it must be quick, safe for concurrent use, and must not call the checker. The key is only good
	// during the call.
	OnDenied func(rule, key string, decisions int64)
	// MaxWaiting bounds the callers of Wait that wait at a time, with about 400 bytes each. Beyond it
	// Wait is Do. Default 65,536.
	MaxWaiting int
	// MaxSettling bounds the settlements that wait to be reported and answered, about 200 bytes each; beyond it Settle
	// refuses. Default 65,536.
	MaxSettling int
	// ReceiptKeys returns the fleet's secrets, by which a checker knows the receipts that it, or
	// another one, has made: one or two, of at least 32 bytes each. Each receipt that is made or
	// settled asks for them, so they can change; it is called by several goroutines, and where it
	// returns others than such, those of before stay. Nil: the checker draws one of its own, and
	// nobody else settles its receipts, nor does it after a restart. Give each fleet its own: it is
	// what tells fleets' receipts apart.
	ReceiptKeys func() events.ReceiptKeys
	// DrainTimeout bounds the last flush when Run is told to stop. Default 5 s.
	DrainTimeout time.Duration
	// Now is the time of this process, by which the checker estimates the fleet's: for simulations and
	// tests. It is called by every check, from several goroutines, and must not go back. Default: the
	// wall clock at the start and the time since, so that a step of the system's clock changes nothing;
	// checks read it to the millisecond while Run is at work.
	Now func() time.Time
	// Tuning is for tests and the simulator.
	Tuning checktuning.Tuning
	// Epoch names this life of this checker: see [events.NewEpoch]. It must be unique in the fleet and
	// over time. Default: a new one.
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
	program    atomic.Pointer[program] // what it decides by at present
	scratch    sync.Pool               // *asking
	everStrict atomic.Bool             // some limiter is, or has been, strict
	settling   settlement.Queue
	receipts   atomic.Uint64 // the number of the last one

	reload   sync.Mutex // held while the rules change
	limiters uint64     // how many there have been
	blocks   blocks
	strays   strays
	inline   inlineLimits

	clock     fleetclock.Clock
	cells     cells
	waits     atomic.Uint64 // calls of Wait
	freshness atomic.Uint32 // Freshness of everything this checker knows
	liveKeys  atomic.Int64  // cells in all limiters' live maps
	idle      idleCells
	dirty     [stripes]stack // cells with hits that no flush has seen yet
	stripe    atomic.Uint32  // hands out stripes in turn

	fleet  atomic.Int64 // live checkers, as the last welcome said
	rounds rounds
	behind behind
	wake   chan struct{} // an early flush is wanted
	ended  chan struct{} // closed when Run has
	swaps  swaps         // of rules, for who waits
	end    sync.Once
}

// New returns a checker that decides at once. It starts nothing: until Run, hits stay pending and
// no cell leaves.
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
	c.scratch.New = func() any { return new(asking) }
	c.freshness.Store(uint32(Local))
	c.cells.init()
	c.behind.checker = c
	c.behind.calm()
	c.behind.install(c.compile(o.Rules, o.Revision, 0, nil, c.behind.former), nil)
	return c, nil
}

// Limiter returns the limiter of the rule of this name in the set in force.
func (c *Checker) Limiter(rule string) (*Limiter, bool) {
	l, ok := c.program.Load().byName[rule]
	return l, ok
}

// Rules returns the set in force, which never changes: another one has taken its place when the pointer is another.
func (c *Checker) Rules() *rules.Set { return c.program.Load().set }

// Revision returns the revision of the rules in force.
func (c *Checker) Revision() uint64 { return c.program.Load().revision }
