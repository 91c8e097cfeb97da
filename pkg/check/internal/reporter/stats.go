package reporter

import (
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
)

// StatsLocked returns a snapshot. Hits that were taken off allowances until now are in the tallies
// of their groups from then on.
func (b *Reporter) StatsLocked() Stats {
	b.eachQueuedLocked((*counter.Counter).PutDown)
	s := b.counts
	s.Shards = len(b.shards)
	if b.lastContact != 0 {
		s.Heard = max(time.Duration(b.now-b.lastContact), 1) // just now is not never
	}
	return s
}

// eachQueuedLocked calls f with every queued counter, which are all that may hold an allowance.
// Some may come twice. While the reporter is locked, none leaves its queue.
func (b *Reporter) eachQueuedLocked(f func(*counter.Counter)) {
	b.host.EachDirty(f)
	for _, c := range b.unsharded {
		f(c)
	}
	for i := range b.shards {
		b.shards[i].queue.Each(f)
	}
}

// Lock keeps the reporter from doing anything until unlock.
func (b *Reporter) Lock() { b.mu.Lock() }

func (b *Reporter) Unlock() { b.mu.Unlock() }
