package memstore

import (
	"slices"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
)

// numbers names a chunk of the settlements of one checker.
type numbers struct {
	epoch, chunk uint64
}

// mostHeld is the largest number of permits held in a bucket.
const mostHeld = int64(1e15)

// spent says which settlements of a chunk were applied.
type spent struct {
	bits    [storage.Chunk / 64]uint64
	expires int64
}

func (p *spent) has(number uint64) bool {
	return p != nil && p.bits[number%storage.Chunk/64]>>(number%64)&1 == 1
}

func numbersOf(id storage.Settled) numbers { return numbers{id.Epoch, id.Number / storage.Chunk} }

// areSpent returns the indices of the batch's settlements that are not new.
func (s *shard) areSpent(batch *storage.Batch) []int {
	var indices []int
	for i, id := range batch.Settled {
		if p := s.spent[numbersOf(id)]; p.has(id.Number) && batch.Now < p.expires {
			indices = append(indices, i)
		}
	}
	return indices
}

// chunks is how many chunks one sender lets the shard remember, until a day after the first.
type chunks struct {
	count, expires int64
}

// countChunks returns how many chunks the senders of the batch's settlements let the shard
// remember, these settlements included, and the indices of those for which there is no room. A
// chunk without a settlement since the sender's count began counts as new.
func (s *shard) countChunks(batch *storage.Batch) (counted map[uint32]chunks, tooMany []int) {
	counted = make(map[uint32]chunks)
	type added struct {
		sender uint32
		numbers
	}
	already := make(map[added]bool)
	for i, id := range batch.Settled {
		c, ok := counted[id.Sender]
		if !ok {
			if c = s.chunks[id.Sender]; batch.Now >= c.expires {
				c = chunks{0, batch.Now + markLife}
			}
			counted[id.Sender] = c
		}
		at := numbersOf(id)
		p := s.spent[at]
		if p != nil && batch.Now >= p.expires {
			p = nil
		}
		if already[added{id.Sender, at}] || p.has(id.Number) || p != nil && p.expires >= c.expires {
			continue
		}
		if batch.MaxChunks > 0 && c.count >= batch.MaxChunks {
			tooMany = append(tooMany, i)
			continue
		}
		already[added{id.Sender, at}] = true
		c.count++
		counted[id.Sender] = c
	}
	return counted, tooMany
}

// spend takes in the batch's settlements, and what they change of the permits that are held.
func (s *shard) spend(batch *storage.Batch) {
	for _, id := range batch.Settled {
		at := numbersOf(id)
		p := s.spent[at]
		if p == nil || batch.Now >= p.expires {
			p = new(spent)
			s.spent[at] = p
		}
		p.bits[id.Number%storage.Chunk/64] |= 1 << (id.Number % 64)
		p.expires = batch.Now + markLife
	}
	for i := range batch.Permits {
		p := &batch.Permits[i]
		rule := &batch.Rules[p.Rule]
		k := s.leasesOf(rule, batch.Now).find(p.Text)
		known := func(c storage.Cell) bool { return c.Bucket == p.Bucket }
		if k != nil && slices.ContainsFunc(k.held, known) {
			held := k.held.at(p.Bucket)
			*held = min(max(*held+p.Count, 0), mostHeld)
		}
	}
}
