// Package storage is the contract between an aggregator and the store that keeps the fleet's
// counters: what a batch of reports or lease requests holds, what the store answers, and the
// arithmetic on which all stores agree.
//
// Times are Unix nanoseconds of the fleet's time: the store's and an offset, which is 0 until the
// store's clock is set.
package storage

import (
	"context"
	"errors"
	"time"

	"github.com/offpath-io/offpath/pkg/events"
)

// ErrShards is wrapped by the error of [Store.Join] when the store has another number of shards on
// record than the one asked for.
var ErrShards = errors.New("another number of shards is on record")

// ErrBatch is wrapped by errors of [Store.Apply] and [Store.Lease] whose cause is the content of
// the batch, and by errors about an answer that makes no sense: the same batch would fail again,
// another one may not.
var ErrBatch = errors.New("the store cannot take this batch")

// MaxShards is the largest number of shards.
const MaxShards = events.MaxShards

// Store holds the counters, the marks and the ledger of all shards. All methods are safe for
// concurrent use.
type Store interface {
	// Join returns the number of shards and the store's time. With shards > 0 it records that
	// number if none is on record, and otherwise returns an error that wraps [ErrShards] unless it
	// is the same; with 0 it returns the number on record, or records one of the store's own
	// choice. It is cheap. An aggregator calls it twice a second: to read the clock, as a probe,
	// and to record the number again in a store that has lost its data.
	Join(ctx context.Context, shards int) (Fleet, error)
	// KeepOffset puts another offset on record, which [Fleet] then has, if the present one is was;
	// otherwise it changes nothing.
	KeepOffset(ctx context.Context, was, offset time.Duration) error
	// Apply adds the batch in one atomic step and returns the totals, or changes nothing and
	// returns which of its marks are not new, or returns an error, after which the batch may or may
	// not have been added; the error wraps [ErrBatch] if the batch's content is the cause. It keeps
	// nothing of the batch. A store may require a Join first.
	Apply(ctx context.Context, batch *Batch) (Applied, error)
	// Lease takes back the permits that the batch returns, and then grants permits, in one atomic
	// step: to each request what [LeaseRequest.Wants] says, as far as there is [Room], by [Divide]
	// where there is not, and nothing at all before [QuietUntil]. After an error the batch may or
	// may not have been carried out; it may be repeated in either case. It keeps nothing of the
	// batch.
	Lease(ctx context.Context, batch *LeaseBatch) (Leased, error)
}

// Fleet is what a store has on record about the fleet that uses it.
type Fleet struct {
	// Shards is the number of shards, from 1 to MaxShards. It never changes while the store keeps
	// its data.
	Shards int
	// Time is the store's time, the same for all aggregators; zero if the store has no clock, and
	// each aggregator's own is the fleet's.
	Time time.Time
	// Offset is the fleet's time less the store's, as it was put on record; 0 if it never was, or
	// is lost.
	Offset time.Duration
}
