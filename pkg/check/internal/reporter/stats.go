package reporter

import (
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
)

// StatsLocked returns a snapshot. It also adds the hits taken off allowances so far to the tallies
// of their groups.
func (r *Reporter) StatsLocked() Stats {
	r.eachQueuedLocked((*counter.Counter).PutDown)
	s := r.counts
	s.Shards = len(r.shards)
	if r.lastContact != 0 {
		s.Heard = max(time.Duration(r.now-r.lastContact), 1) // just now is not never
	}
	return s
}

// eachQueuedLocked calls f with every queued counter; only these may have an allowance. It may call
// f twice with a counter. While the reporter is locked, no counter leaves its queue.
func (r *Reporter) eachQueuedLocked(f func(*counter.Counter)) {
	r.host.EachDirty(f)
	for _, c := range r.unsharded {
		f(c)
	}
	for i := range r.shards {
		r.shards[i].each(f)
	}
}

// Lock keeps the reporter from doing anything until Unlock.
func (r *Reporter) Lock() { r.mu.Lock() }

// Unlock ends that.
func (r *Reporter) Unlock() { r.mu.Unlock() }
