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

	mu     sync.Mutex
	heard  map[uint64]int64 // by epoch, own time
	pruned int64            // own time
}

func newRoll(forget int64) *roll {
	return &roll{forget: forget, heard: make(map[uint64]int64)}
}

// note takes note of a hello at own time now.
func (r *roll) note(h *events.Hello, now int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, known := r.heard[h.GetEpoch()]
	switch {
	case h.GetLeaving():
		delete(r.heard, h.GetEpoch())
	case known || len(r.heard) < maxCheckers:
		r.heard[h.GetEpoch()] = now
	}
}

// live counts the checkers at own time now. It looks for those that have gone only now and then, so
// that a thousand hellos do not each walk a thousand checkers.
func (r *roll) live(now int64) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now-r.pruned >= r.forget/16 || now < r.pruned {
		r.pruned = now
		for epoch, at := range r.heard {
			if now-at > r.forget {
				delete(r.heard, epoch)
			}
		}
	}
	return len(r.heard)
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
	})
	if err == nil {
		err = reply(data)
	}
	if err != nil {
		w.counters.replyErrors.Add(1)
	}
}
