package reporter

import (
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
)

// Stats returns a snapshot. Hits that were taken off allowances until now are in the tallies of
// their groups from then on. The lock is held.
func (b *Reporter) Stats() Stats {
	b.eachQueued((*counter.Counter).PutDown)
	s := b.counts
	s.Shards = len(b.shards)
	if b.lastContact != 0 {
		s.Heard = max(time.Duration(b.now-b.lastContact), 1) // just now is not never
	}
	return s
}

// eachQueued calls f with every queued counter, which are all that may hold an allowance. Some may
// come twice. The reporter's lock is held, so that none leaves its queue.
func (b *Reporter) eachQueued(f func(*counter.Counter)) {
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
