package aggregate

import (
	"sync"

	"github.com/offpath-io/offpath/pkg/events"
)

// maxCheckers bounds how many checkers are told apart; beyond it, new ones are not counted.
const maxCheckers = 1 << 16

// roll is the list of checkers that have said hello lately. Every worker hears every hello.
type roll struct {
	forget int64 // how long a checker counts after its last hello, in ns
	most   int   // of one owner

	mu     sync.Mutex
	heard  map[uint64]int64 // by epoch, own time
	owners map[uint32]int   // by owner, how many of these are its checkers
	pruned int64            // own time
}

func newRoll(forget int64, most int) *roll {
	return &roll{forget: forget, most: most, heard: make(map[uint64]int64), owners: make(map[uint32]int)}
}

// note takes note of a hello at own time now.
func (r *roll) note(h *events.Hello, now int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.prune(now)
	epoch, owner := h.GetEpoch(), events.OwnerOf(h.GetEpoch())
	_, known := r.heard[epoch]
	full := len(r.heard) >= maxCheckers || r.owners[owner] >= r.most
	switch {
	case known && h.GetLeaving():
		r.drop(epoch)
	case known:
		r.heard[epoch] = now
	case !full && !h.GetLeaving():
		r.heard[epoch] = now
		r.owners[owner]++
	}
}

func (r *roll) drop(epoch uint64) {
	delete(r.heard, epoch)
	owner := events.OwnerOf(epoch)
	if r.owners[owner]--; r.owners[owner] == 0 {
		delete(r.owners, owner)
	}
}

// live counts the checkers at own time now.
func (r *roll) live(now int64) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.prune(now)
	return len(r.heard)
}

// prune looks for checkers that have gone, only now and then, so that a thousand hellos do not each walk a thousand checkers.
// The lock is held.
func (r *roll) prune(now int64) {
	if now-r.pruned >= r.forget/16 || now < r.pruned {
		r.pruned = now
		for epoch, at := range r.heard {
			if now-at > r.forget {
				r.drop(epoch)
			}
		}
	}
}

// welcome answers a hello with the number of shards, the fleet's time and size. Until the store has been reached, and while it
// answers for less than most shards, there is no answer: who cannot count must not let checkers believe that what they know is fresh. They
// ask again, and others, or go down their ladder.
func (w *Worker) welcome(now int64, h *events.Hello, reply func([]byte) error) {
	shards := len(w.shards())
	if reply == nil || shards == 0 || h.GetLeaving() || !w.counts() {
		return
	}
	data, err := events.Append(nil, &events.Welcome{
		Epoch:    h.GetEpoch(),
		Sent:     h.GetSent(),
		Shards:   uint32(shards),
		Time:     w.clock.fleet(now),
		Checkers: uint32(w.checkers.live(now)),
		Error:    w.clock.error(),
	})
	if err == nil {
		err = reply(data)
	}
	if err != nil {
		w.counters.replyErrors.Add(1)
	}
}
