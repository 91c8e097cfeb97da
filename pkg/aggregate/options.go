package aggregate

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/events"
)

// Options make a Worker. Store and Bus are needed; the zero value of everything else is its
// default.
type Options struct {
	// Store holds the counters.
	Store storage.Store
	// Bus brings reports, lease requests and hellos, and takes alarms.
	Bus Bus
	// ID tells this life of this worker from all others of the fleet. Default: a random one.
	ID uint64
	// Memory keeps the states of shards outside of the store, for workers that start later.
	// Default: none, and a loss of the store's data is not noticed if all workers have been
	// restarted since.
	Memory Memory
	// Shards is the number of shards, recorded in the store at first use; a store with another
	// number on record is refused. 0: the number on record, or the store's own choice.
	Shards int
	// BatchKeys is about how many keys one batch holds at most, so that no call occupies the store
	// for long; default 2000. Keys of more than two live buckets count for more than one. A single
	// larger report is applied alone.
	BatchKeys int
	// AlarmEvery is the least time between two alarms of one shard, and so between two alarms about
	// the same key. Default 4 ms, or 10 µs for each live checker if that is more: all of them
	// receive every alarm, so a worker has NATS deliver at most 100,000 alarms a second for each
	// shard, unless one does not fit a message. Raise it where there are many shards, workers and
	// checkers, all with keys near their limit.
	AlarmEvery time.Duration
	// Tolerance is how far ahead of the fleet's time a bucket may start; hits of later ones are
	// refused, and so are lease requests that name them. Default 5 s.
	Tolerance time.Duration
	// Timeout is how long the store may take for one call; default 3 s.
	Timeout time.Duration
	// Forget is how long after its last hello a checker counts as live; default 8 s. It is at
	// least six times the longest time between a checker's hellos: after a sixth of it, or 2.5 s if
	// that is more, a worker that has just started reckons that it has heard all of them.
	Forget time.Duration
	// MaxCheckers bounds the live checkers of one credential (the part of their epochs that names
	// it) that are told apart: with a stolen credential anybody can make up checkers, and all
	// others keep to smaller shares. Expired ones give their place back. Default 10,000.
	MaxCheckers int
	// MaxWindow is the longest window of a rule whose reports and lease requests are taken, since
	// the store keeps counters for two windows; others are refused whole. Default, and most, 366
	// days.
	MaxWindow time.Duration
	// MaxRules bounds the rules, by name and window, that checkers of one credential may report;
	// each stays in the store's ledger for ever. Messages with further rules are refused whole,
	// until some have not been reported for half a day or a day. Each worker counts by itself.
	// Default 100,000.
	MaxRules int
	// MaxChunks bounds how much settlements can make the store remember: how many times 8,192
	// consecutive numbers of receipts, at 1 KB, in a shard and a day, for settlements of one
	// credential. Further ones count for
	// nothing. Default 100,000, which suffices for 9,000 settlements a second all day.
	MaxChunks int
	// OnApply, if not nil, is called after each call of Store.Apply with reports, from several
	// goroutines at once.
	OnApply func(ApplyInfo)
	// OnUnleased, if not nil, is called when keys of a strict rule got no permits because too many
	// of its keys are new, with their number, from several goroutines at once.
	OnUnleased func(rule string, keys int64)
	// Trace, if not nil, is called for each report that is traced: see [Tracing].
	Trace Tracing
	// Now returns this machine's time, by which Run measures the fleet's. It is for tests. It must be
	// safe for concurrent use and must not go back, unless its values have monotonic readings, as
	// those of time.Now, the default: steps of that clock change nothing, and it is noticed when
	// the machine was suspended.
	Now func() time.Time
	// Log takes messages for operators; default: none.
	Log *slog.Logger
}

// ApplyInfo describes one call of Store.Apply to [Options.OnApply].
type ApplyInfo struct {
	// Batch is what was to be applied. It may be read during the call only.
	Batch *storage.Batch
	// Took is how long the store took.
	Took time.Duration
	// Repeated is how many reports and settlements turned out to have been counted before. If there
	// are any, nothing was applied, and the batch comes again without them.
	Repeated int
	// Excess are those of the batch's rules with keys beyond their limit now, each once. None if
	// another worker owns the shard: it alone knows how new the totals are.
	Excess []Excess
	// Near are the batch's keys whose counts are at least [NearLimit] of their limits, also of
	// rules whose limit may be exceeded on purpose. None if another worker owns the shard.
	Near []Near
	// Overflow is that of [storage.Applied].
	Overflow []storage.Overflow
	// Delay is about how long hits have lately taken from their admission until they were counted;
	// 0 if another worker owns the shard. Excess misses the hits of that time.
	Delay time.Duration
	// Err is the store's, nil if it answered.
	Err error
}

// Excess is by how much a batch has taken keys of one rule beyond their limit: an estimate of the
// over-admission, since a worker receives hits in batches, and those of other batches later.
type Excess struct {
	// Rule is an index in the batch's rules.
	Rule int
	// Hits of the batch beyond limit + [Band].
	Hits float64
	// Most is the largest count of a key ÷ its limit − 1.
	Most float64
}

// Near is a key near its limit, or beyond it.
type Near struct {
	// Key is an index in the batch's keys.
	Key int
	// Count is the key's count by its rule, with the batch.
	Count float64
}

// Tracing is called for a report that carries a W3C traceparent. The function that it returns,
// which may be nil, is called with each event of the report. Both may be called from several
// goroutines at once, but the calls for one report come one after the other. They must be quick. A
// report that is replaced by its repeat has no further events.
type Tracing func(
	traceparent string, shard uint32, sequence uint64, keys int,
) (follow func(TraceEvent))

// TraceEvent is an event of a report.
type TraceEvent struct {
	Kind TraceKind
	// Keys and Reports are those of the batch, of TraceApply.
	Keys, Reports int
	// Err is the error of TraceApplied and TraceAnswered, nil if there was none.
	Err error
}

// TraceKind says which event it is.
type TraceKind uint8

// The events of a report. The last one is TraceAnswered or TraceDropped.
const (
	// TraceApply: a batch with the report goes to the store now. TraceApplied: the store has
	// answered. Both may come again, if other reports of the batch had been counted before.
	TraceApply TraceKind = iota + 1
	TraceApplied
	// TraceAnswered: the totals were sent to the checker.
	TraceAnswered
	// TraceDropped: no answer was sent; the checker will ask again.
	TraceDropped
)

func (o Options) withDefaults() (Options, error) {
	o.BatchKeys = cmp.Or(o.BatchKeys, 2000)
	o.Tolerance = cmp.Or(o.Tolerance, 5*time.Second)
	o.Timeout = cmp.Or(o.Timeout, 3*time.Second)
	o.Forget = cmp.Or(o.Forget, 8*time.Second)
	o.MaxCheckers = cmp.Or(o.MaxCheckers, 10_000)
	o.MaxWindow = cmp.Or(o.MaxWindow, events.MaxWindow)
	o.MaxRules = cmp.Or(o.MaxRules, 100_000)
	o.MaxChunks = cmp.Or(o.MaxChunks, 100_000)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Now == nil {
		o.Now = time.Now
	}
	least := min(
		int64(o.BatchKeys), int64(o.AlarmEvery), int64(o.Tolerance), int64(o.Timeout), int64(o.Forget), int64(o.MaxCheckers),
		int64(o.MaxWindow), int64(o.MaxRules), int64(o.MaxChunks),
	)
	switch {
	case o.Store == nil || o.Bus == nil:
		return o, errors.New("aggregate: a worker needs a store and a bus")
	case o.Shards < 0 || o.Shards > events.MaxShards:
		return o, fmt.Errorf("aggregate: %d shards: want 1 to %d, or 0", o.Shards, events.MaxShards)
	case least < 0:
		return o, errors.New("aggregate: a negative option")
	}
	return o, nil
}
