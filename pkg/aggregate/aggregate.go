// Package aggregate adds the reports of a fleet's checkers to the store, each exactly once, and
// answers with the totals.
//
// A [Worker] carries each report through five steps. It queues reports for 2 ms, merges those of
// one shard into a batch with one delta per key and bucket, applies the batch to a [storage.Store]
// in one atomic call, answers each report with the totals of its keys, and sends an alarm to all
// checkers about keys near their limit. A repeated report, whose checker has not received the
// answer, is recognised by the store's marks and answered without being counted again. Any number
// of workers share one store, and agree which of them a shard's reports go to first: its owner. A
// worker keeps nothing that another could miss, except the states in which it has seen the shards,
// which workers exchange through a [Memory].
//
// Lease requests, for permits of keys under strict enforcement, take the same steps in batches of
// their own: they are queued for a shorter time, since callers wait for them, and need no marks.
//
// A request whose batch fails is dropped without an answer: its checker sends it again, and the
// marks make that safe, whatever became of the first attempt. A batch that fails because of its
// content is split until the request is found that the store cannot take; it is answered with an
// error and delays no other.
//
// Times are Unix nanoseconds. A worker's own time is its machine's; buckets are judged by the
// fleet's time, which is the store's clock plus an offset on record.
//
// A change usually touches one of three files: exchange.go is what both kinds of requests have in
// common, reports.go and leases.go are their differences. shard.go decides which shards this worker
// serves, members.go which of them it owns.
package aggregate

import (
	"context"
	"errors"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/events"
)

// Bus carries messages between this worker and the checkers. Packages natsbus and membus hold
// implementations.
type Bus interface {
	// Attend says which shards this worker takes requests of from now on: those to any worker, of
	// shards that are attended, and those to the owner, of shards that are owned. Before that,
	// none. While none is attended, hellos come with a nil reply only. It does not wait; messages
	// that are on their way when a shard is left may be lost, until they are repeated.
	Attend(attended, owned []bool) error
	// Tell sends a message to all workers, this one included. It does not keep the bytes.
	Tell(member []byte) error
	// Serve calls h for each report, lease request and hello, and for what workers tell each other,
	// until ctx is done, and then returns nil. h may be called from several goroutines at once; it
	// returns quickly and keeps nothing of the payload. reply answers that message and may be
	// called later, from any goroutine; it is nil for a hello that another worker answers, and for
	// what workers tell each other.
	Serve(
		ctx context.Context,
		h func(kind events.Kind, payload []byte, reply func([]byte) error),
	) error
	// Alarm sends an alarm to every checker. It does not keep the bytes.
	Alarm(shard uint32, alarm []byte) error
}

// Memory keeps the latest state of each shard outside of the store, so that a loss of the store's
// data is found out even if every worker that has seen the state is gone. Package natsmemory holds
// an implementation. Its method is safe for concurrent use.
type Memory interface {
	// Merge raises the state that is kept of each shard to the given one, by the shard's number,
	// where that is later, and returns the states kept then; these may be of more shards, or of
	// fewer. After an error the states may or may not have been kept; it wraps [ErrNoMemory] if
	// there is nothing to keep them in.
	Merge(ctx context.Context, states []storage.State) ([]storage.State, error)
}

// ErrNoMemory is wrapped by errors of a [Memory] that has nothing to keep states in.
var ErrNoMemory = errors.New("there is nothing to keep states in")
