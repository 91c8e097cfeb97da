package check

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/offpath-io/offpath/internal/checktuning"
	"github.com/offpath-io/offpath/pkg/check/internal/reporter"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
)

// Link carries a checker's messages to the aggregators and theirs back. Package natsbus has one.
type Link interface {
	// Report sends an encoded report to the owner of its shard, which is an aggregator, or to any
	// aggregator. It does not wait, and does not keep the slice. An error means that the report was
	// certainly not sent. It must not call the function that Listen was given.
	Report(shard uint32, toOwner bool, report []byte) error
	// Lease sends an encoded lease request, likewise.
	Lease(shard uint32, toOwner bool, request []byte) error
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
	// DenyUnmatched denies requests that no rule matches ([Decision.Unmatched]), which may pass
	// otherwise. It does not concern Limiters and inline limits.
	DenyUnmatched bool
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
	// StaleAfter, ShareAfter and OutageAfter are degradation levels: how long a shard has been
	// silent ([Freshness]) when the checker's knowledge of its keys is stale, when it keeps to its
	// share of their limits, and when rules whose OnOutage is rules.Open or rules.Closed decide by
	// that. They must be in this order, and at least HelloEvery. Default 3, 10 and 300 times
	// HelloEvery: 6 s, 20 s and 10 minutes.
	StaleAfter, ShareAfter, OutageAfter time.Duration
	// ExpectCheckers is the least number of checkers that the fleet is assumed to have, whatever
	// aggregators say, which may not have heard of all yet. With more than 1, this checker keeps to
	// its share of every limit until it hears of the fleet. Default 0: until then it decides by its
	// own hits alone.
	ExpectCheckers int
	// MaxLiveKeys is the most keys that have unreported hits or hits in flight, or are over their
	// limit. Such a key takes about 200 bytes beside its text with one bucket per window, 16 bytes
	// more per further bucket, and 800 more with a forecast, which at most a quarter of them have.
	// When there are more, new keys share the rule's OnOutage decision. Default 1,048,576.
	MaxLiveKeys int
	// MaxIdleKeys is the most keys in the idle cache, of about 400 bytes each. A key moves there
	// when it has been silent for 35 s, unless it is blocked, or when MaxLiveKeys leaves no room.
	// Forgetting one costs exactness until its next report is answered. Negative: none. Default
	// 1,048,576.
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
	setDefault(&o.QuietFor, time.Second)
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

// keepGoodKeys lets ReceiptKeys return the last good keys, which are the checker's own where none
// are given.
func (o *Options) keepGoodKeys() error {
	given := o.ReceiptKeys
	if given == nil {
		own := events.NewReceiptKeys()
		o.ReceiptKeys = func() events.ReceiptKeys { return own }
		return nil
	}
	first := given()
	if err := first.Check(); err != nil {
		return fmt.Errorf("check: ReceiptKeys: %w", err)
	}
	var last atomic.Pointer[events.ReceiptKeys]
	last.Store(&first)
	o.ReceiptKeys = func() events.ReceiptKeys {
		keys := given()
		if keys.Check() != nil {
			return *last.Load()
		}
		last.Store(&keys)
		return keys
	}
	return nil
}

// tracing translates Options.Trace for the reporter.
func (o *Options) tracing() reporter.Tracing {
	if o.Trace == nil {
		return nil
	}
	return func(shard uint32, sequence uint64, keys int) (string, func(reporter.Event)) {
		traceparent, follow := o.Trace(shard, sequence, keys)
		if follow == nil {
			return traceparent, nil
		}
		return traceparent, func(e reporter.Event) { follow(TraceEvent(e)) }
	}
}

// errNoRules is the error of a nil set.
var errNoRules = errors.New("check: no rules")
