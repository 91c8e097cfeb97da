package aggregate

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/offpath-io/offpath/pkg/events"
)

// Options make a Worker. Store and Bus are needed; the zero value of everything else is its default.
type Options struct {
	// Store holds what is counted.
	Store Store
	// Bus brings reports, lease requests and hellos, and takes alarms.
	Bus Bus
	// Memory keeps the states of shards outside of the store, for workers that start later.
	// Default: nothing does, and when all workers have been restarted while the store lost data
	// nobody can tell.
	Memory Memory
	// Shards is the number of shards, recorded in the store at first use; a store with another number
	// on record is refused. 0: what is on record, or the store's own choice.
	Shards int
	// Gather is how long a report waits for others to be folded with; default 2 ms. More saves the
	// store work where many checkers report the same keys, and makes every answer later.
	Gather time.Duration
	// GatherLeases is the same for a lease request; default 1 ms. It is shorter because callers may be
	// waiting for permits.
	GatherLeases time.Duration
	// FoldKeys is about how many keys one fold holds at most, so that no call holds up the store for
	// long; default 2000. Keys of more than two live buckets count for more than one. A single larger
	// report is folded alone.
	FoldKeys int
	// AlarmEvery is the least time between two alarms of one shard, and so of two words to all checkers
	// about any one key near its limit. Default 4 ms, or 10 µs for each live checker if that is more:
	// every one of them hears it, and so a worker has NATS deliver 100,000 alarms a second for each
	// shard at the most, unless one does not fit a message. Raise it where there are many shards,
	// workers and checkers, all with keys near their limit.
	AlarmEvery time.Duration
	// Tolerance is how far ahead of the fleet's time a bucket may start; hits of later ones are
	// refused, and so are lease requests that speak of them. Default 5 s.
	Tolerance time.Duration
	// Timeout is how long the store may take for one call; default 3 s.
	Timeout time.Duration
	// Forget is how long after its last hello a checker counts as live; default 15 s.
	Forget time.Duration
	// MaxCheckers bounds the live checkers of one credential (the owner of their epochs) that are told apart: whoever has stolen it can make
	// everybody believe in so many, and keep to smaller shares. Expired ones give their place back. Default 10,000.
	MaxCheckers int
	// MaxWindow is the longest window of a rule whose reports and lease requests are taken, since the store keeps what is counted for
	// two windows; others are refused whole. Default, and most, 366 days.
	MaxWindow time.Duration
	// MaxRules bounds the rules, by name and window, that checkers of one credential (the owner of
	// their epochs) may speak of; each stays in the store's ledger for ever. What speaks of others
	// is refused whole, until some have not been heard of for half a day or a day. Each worker
	// counts by itself. Default 100,000.
	MaxRules int
	// MaxChunks bounds what settlements can make the store remember: how many times 8,192
	// consecutive numbers of receipts, at 1 KB, in a shard and a day, for one credential's sake
	// (the owner of the checkers' epochs that report them). Others count for nothing. Default
	// 100,000, which does for 9,000 settlements a second all day.
	MaxChunks int
	// OnApply, if not nil, is called after each call of Store.Apply, from several goroutines at once.
	OnApply func(ApplyInfo)
	// OnUnleased, if not nil, is called when keys of a strict rule got no permits because too many
	// of its keys are new, with how many, from several goroutines at once.
	OnUnleased func(rule string, keys int64)
	// Trace, if not nil, is told of each report that is traced, and may follow it: see [Tracing].
	Trace Tracing
	// Log takes what an operator should know; default: nothing is logged.
	Log *slog.Logger
}

// ApplyInfo tells [Options.OnApply] of one call of Store.Apply.
type ApplyInfo struct {
	// Fold is what was to be applied. It may be looked at during the call only.
	Fold *Fold
	// Took is how long the store took.
	Took time.Duration
	// Repeated is how many reports and settlements turned out to have been counted before. If there are any, nothing
	// was applied, and the fold comes again without them.
	Repeated int
	// Excess says which of the fold's rules have keys beyond their limit now, each once.
	Excess []Excess
	// Overflow is that of [Applied].
	Overflow []Overflow
	// Unheard is for about how long hits have lately been made before they were counted. Excess
	// misses those.
	Unheard time.Duration
	// Err is the store's, nil if it answered.
	Err error
}

const (
	// joinEvery is how often the store is asked for the time, and so whether it is there.
	joinEvery = 2 * time.Second
	// joinSooner is when it is asked again after it was not there, at first.
	joinSooner = 100 * time.Millisecond
	// staleJoin is when the last word from the store is too old to call the worker ready.
	staleJoin = 5 * joinEvery
	// staleTrouble is when a shard's failed fold is too old to call the worker not ready; by then its
	// checkers would have sent again.
	staleTrouble = 10 * time.Second
	// stopGrace is how long Run takes at most, after its end, for the reports in hand.
	stopGrace = 5 * time.Second
)

func (o Options) withDefaults() (Options, error) {
	defaults := Options{
		Gather:       2 * time.Millisecond,
		GatherLeases: time.Millisecond,
		FoldKeys:     2000,
		Tolerance:    5 * time.Second,
		Timeout:      3 * time.Second,
		Forget:       15 * time.Second,
		MaxCheckers:  10_000,
		MaxWindow:    events.MaxWindow,
		MaxRules:     100_000,
		MaxChunks:    100_000,
		Log:          slog.New(slog.DiscardHandler),
	}
	orDefault(&o.Gather, defaults.Gather)
	orDefault(&o.GatherLeases, defaults.GatherLeases)
	orDefault(&o.FoldKeys, defaults.FoldKeys)
	orDefault(&o.Tolerance, defaults.Tolerance)
	orDefault(&o.Timeout, defaults.Timeout)
	orDefault(&o.Forget, defaults.Forget)
	orDefault(&o.MaxCheckers, defaults.MaxCheckers)
	orDefault(&o.MaxWindow, defaults.MaxWindow)
	orDefault(&o.MaxRules, defaults.MaxRules)
	orDefault(&o.MaxChunks, defaults.MaxChunks)
	orDefault(&o.Log, defaults.Log)
	switch {
	case o.Store == nil || o.Bus == nil:
		return o, errors.New("aggregate: a worker needs a store and a bus")
	case o.Shards < 0 || o.Shards > events.MaxShards:
		return o, fmt.Errorf("aggregate: %d shards: want 1 to %d, or 0", o.Shards, events.MaxShards)
	case o.Gather < 0 || o.GatherLeases < 0 || o.FoldKeys < 0 || o.AlarmEvery < 0 || o.Tolerance < 0 || o.Timeout < 0 ||
		o.Forget < 0 || o.MaxCheckers < 0 || o.MaxWindow < 0 || o.MaxRules < 0 || o.MaxChunks < 0:
		return o, errors.New("aggregate: a negative option")
	}
	return o, nil
}

func orDefault[T comparable](value *T, otherwise T) {
	var zero T
	if *value == zero {
		*value = otherwise
	}
}
