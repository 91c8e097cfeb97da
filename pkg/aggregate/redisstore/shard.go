package redisstore

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
)

// shard is what this process knows of a shard. Its calls come one after the other, as each has to
// find what the last one left.
type shard struct {
	turn  chan struct{}         // holds a value while a call is under way
	known atomic.Pointer[known] // changed by the call that has the turn
	chain chain                 // used by the call that has the turn
	order sync.Mutex            // of replies: taken before the turn ends
	own   ownBatches

	mu      sync.Mutex
	changes []change // of hashes, for the next batch
	waiting int      // how many fields they have
}

// known is the era under which totals are remembered, and that under which it is remembered which
// groups have their expiry, with what the node's clock was in it: by that clock hashes expire, also
// when it was set. Totals stay right then, as nobody else has written; the store's may be lower.
type known struct {
	era, groups uint64
	behind      int64 // by how many ms it was ahead of the fleet's time, at least
	clock       int64 // the latest that it said, in ms
}

// clockStep is how far a node's clock may be set, in ms, before another era of groups begins.
const clockStep = 10_000

// chain is the state in which this process' last batch left a shard. A shard that is still in it
// has the counts that this process knows of.
type chain struct {
	generation, version string // the version without the leases that have raised it
	last                string // a random number of the batch; empty if nothing is known
}

// ownBatches is how many batches of this process, leases too, have changed a shard in its latest
// generation, as the store has told it. A store that knows of fewer has lost some, however many of
// others it has had since then. Those of which no answer was heard make it know of more.
type ownBatches struct {
	mu         sync.Mutex
	generation uint64
	told       int64
}

// expected is how many the store must know of, if it is in the generation that the caller has seen.
func (o *ownBatches) expected(seen storage.State) int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if seen.Generation != o.generation {
		return 0
	}
	return o.told
}

// note takes in what the store has told. Answers may come in another order than the calls.
func (o *ownBatches) note(generation uint64, batches int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case generation > o.generation:
		o.generation, o.told = generation, batches
	case generation == o.generation:
		o.told = max(o.told, batches)
	}
}

func newShard() *shard {
	s := &shard{turn: make(chan struct{}, 1)}
	s.forget()
	return s
}

// take waits for the shard's turn.
func (s *shard) take(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// eras numbers the eras of all shards.
var eras atomic.Uint64

// forget begins another era.
func (s *shard) forget() { s.known.Store(&known{era: eras.Add(1), groups: eras.Add(1)}) }

// newID returns a random number for a batch, or for this process.
func newID() string { return strconv.FormatUint(rand.Uint64(), 36) }

// leave takes in how a call of fleet time now, in ms, has left the shard: h is what the script
// says.
func (s *shard) leave(h *header, id string, now int64) {
	k, clock := *s.known.Load(), now+h.shift
	if !h.holds {
		k.era = eras.Add(1)
	}
	if !h.holds || k.clock-clock > clockStep || h.shift-k.behind > clockStep {
		k.groups, k.behind, k.clock = eras.Add(1), h.shift, clock
	}
	s.known.Store(&known{k.era, k.groups, min(k.behind, h.shift), max(k.clock, clock)})
	switch {
	case id != "":
		s.chain = chain{strconv.FormatInt(h.generation, 10), strconv.FormatInt(h.version-h.leases, 10), id}
	case !h.holds: // nobody can tell what this state was made of
		s.chain = chain{}
	}
}

// change has the next batch make a change, if there is room for it.
func (s *shard) change(ch change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting+len(ch.fields) <= mostWaiting {
		s.changes, s.waiting = append(s.changes, ch), s.waiting+len(ch.fields)
	}
}

// takeChanges returns the changes that wait.
func (s *shard) takeChanges() []change {
	s.mu.Lock()
	defer s.mu.Unlock()
	changes := s.changes
	s.changes, s.waiting = nil, 0
	return changes
}
