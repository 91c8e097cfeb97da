package reporter

import (
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
)

// StatsLocked returns a snapshot. Hits that were taken off allowances until now are in the tallies
// of their groups from then on.
func (r *Reporter) StatsLocked() Stats {
	r.eachQueuedLocked((*counter.Counter).PutDown)
	s := r.counts
	s.Shards = len(r.shards)
	if r.lastContact != 0 {
		s.Heard = max(time.Duration(r.now-r.lastContact), 1) // just now is not never
	}
	return s
}

// eachQueuedLocked calls f with every queued counter, which are all that may hold an allowance.
// Some may come twice. While the reporter is locked, none leaves its queue.
func (r *Reporter) eachQueuedLocked(f func(*counter.Counter)) {
	r.host.EachDirty(f)
	for _, c := range r.unsharded {
		f(c)
	}
	for i := range r.shards {
		r.shards[i].queue.Each(f)
	}
}

// Lock keeps the reporter from doing anything until unlock.
func (r *Reporter) Lock() { r.mu.Lock() }

func (r *Reporter) Unlock() { r.mu.Unlock() }
