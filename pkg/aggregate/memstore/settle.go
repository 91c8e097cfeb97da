package memstore

import "github.com/offpath-io/offpath/pkg/aggregate"

// numbers are those of so many settlements of one checker, one after the other.
type numbers struct {
	epoch, chunk uint64
}

const chunkSize = 512

// mostHeld is the largest number of permits held in a bucket.
const mostHeld = int64(1e15)

// spent says which of them have been met.
type spent struct {
	bits    [chunkSize / 64]uint64
	expires int64
}

func (p *spent) has(number uint64) bool {
	return p != nil && p.bits[number%chunkSize/64]>>(number%64)&1 == 1
}

// areSpent returns the indices of the fold's settlements that are not new.
func (s *shard) areSpent(fold *aggregate.Fold) []int {
	var indices []int
	for i, id := range fold.Settled {
		if p := s.spent[numbers{id.Epoch, id.Number / chunkSize}]; p.has(id.Number) && fold.Now < p.expires {
			indices = append(indices, i)
		}
	}
	return indices
}

// spend takes in the fold's settlements, and what they change of the permits that are held.
func (s *shard) spend(fold *aggregate.Fold) {
	for _, id := range fold.Settled {
		at := numbers{id.Epoch, id.Number / chunkSize}
		p := s.spent[at]
		if p == nil || fold.Now >= p.expires {
			p = new(spent)
			s.spent[at] = p
		}
		p.bits[id.Number%chunkSize/64] |= 1 << (id.Number % 64)
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
