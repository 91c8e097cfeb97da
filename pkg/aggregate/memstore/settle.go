package memstore

import "github.com/offpath-io/offpath/pkg/aggregate"

// numbers are those of so many settlements of one checker, one after the other.
type numbers struct {
	epoch, chunk uint64
}

// mostHeld is the largest number of permits held in a bucket.
const mostHeld = int64(1e15)

// spent says which of them have been met.
type spent struct {
	bits    [aggregate.Chunk / 64]uint64
	expires int64
}

func (p *spent) has(number uint64) bool {
	return p != nil && p.bits[number%aggregate.Chunk/64]>>(number%64)&1 == 1
}

func numbersOf(id aggregate.Settled) numbers { return numbers{id.Epoch, id.Number / aggregate.Chunk} }

// areSpent returns the indices of the fold's settlements that are not new.
func (s *shard) areSpent(fold *aggregate.Fold) []int {
	var indices []int
	for i, id := range fold.Settled {
		if p := s.spent[numbersOf(id)]; p.has(id.Number) && fold.Now < p.expires {
			indices = append(indices, i)
		}
	}
	return indices
}

// chunks is how many one sender lets the shard remember, until a day after the first.
type chunks struct {
	count, expires int64
}

// countChunks returns how many chunks the senders of the fold's settlements let the shard remember
// with them, and the indices of those that are too many. A chunk that nobody has added to since the
// sender's count began is one more.
func (s *shard) countChunks(fold *aggregate.Fold) (counted map[uint32]chunks, tooMany []int) {
	counted = make(map[uint32]chunks)
	type added struct {
		sender uint32
		numbers
	}
	already := make(map[added]bool)
	for i, id := range fold.Settled {
		c, ok := counted[id.Sender]
		if !ok {
			if c = s.chunks[id.Sender]; fold.Now >= c.expires {
				c = chunks{0, fold.Now + markLife}
			}
			counted[id.Sender] = c
		}
		at := numbersOf(id)
		p := s.spent[at]
		if p != nil && fold.Now >= p.expires {
			p = nil
		}
		if already[added{id.Sender, at}] || p.has(id.Number) || p != nil && p.expires >= c.expires {
			continue
		}
		if fold.MaxChunks > 0 && c.count >= fold.MaxChunks {
			tooMany = append(tooMany, i)
			continue
		}
		already[added{id.Sender, at}] = true
		c.count++
		counted[id.Sender] = c
	}
	return counted, tooMany
}

// spend takes in the fold's settlements, and what they change of the permits that are held.
func (s *shard) spend(fold *aggregate.Fold) {
	for _, id := range fold.Settled {
		at := numbersOf(id)
		p := s.spent[at]
		if p == nil || fold.Now >= p.expires {
			p = new(spent)
			s.spent[at] = p
		}
		p.bits[id.Number%aggregate.Chunk/64] |= 1 << (id.Number % 64)
		p.expires = fold.Now + markLife
	}
	for i := range fold.Permits {
		p := &fold.Permits[i]
		rule := &fold.Rules[p.Rule]
		k := s.leasesOf(rule, fold.Now).find(p.Text)
		if k != nil && k.has(p.Bucket) {
			held := k.held.at(p.Bucket)
			*held = min(max(*held+p.Count, 0), mostHeld)
		}
	}
}

// has says whether there are, or were, permits of a bucket.
func (k *lease) has(bucket int64) bool {
	for _, c := range k.held {
		if c.Bucket == bucket {
			return true
		}
	}
	return false
}
