package redisstore

import (
	"hash/maphash"
	"slices"
	"sync"
)

// memory remembers totals, so that batches need not read what they add to. What it says of a shard
// is right as long as [chain] holds; when that breaks, the shard gets another era, under which
// nothing is remembered yet.
//
// It holds no pointers, and forgets the oldest: entries are made in the young half, and taken over
// from the old one when they are used. A half that is full becomes the old one.
//
// An entry is found by a hash of its era, rule and key, and checked by another hash of the key: two
// keys are taken for one with a probability of 2^-96 for each pair.
type memory struct {
	seed maphash.Seed
	most int // totals of a half; 0 remembers nothing

	mu         sync.Mutex
	young, old half
	number     uint32 // of the young half
}

type half struct {
	at     map[uint64]uint32 // by tag, where in words
	words  []int64           // entries, one after the other
	totals int
}

// entry is what is remembered of a key: the totals of consecutive buckets, the oldest first.
type entry []int64

// The words of an entry before its totals.
const (
	entryCheck  = iota // a hash of the key, and how many totals there are
	entryNewest        // the bucket of the last total
	entryTotals
)

const (
	// unknown is a total that has to be read.
	unknown = -1
	// maxTotal is the largest total that is remembered. Larger ones are no exact numbers in Lua.
	maxTotal = 1 << 53
	// maxTotals is how many totals an entry may have.
	maxTotals = 1 << 12
)

func newMemory(totals int) *memory {
	m := &memory{seed: maphash.MakeSeed(), most: max(totals, 0)}
	m.young.at, m.old.at = make(map[uint64]uint32), make(map[uint64]uint32)
	return m
}

// held is how many totals there are.
func (m *memory) held() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.young.totals + m.old.totals
}

// place is where an entry is, as long as its half is the young one; 0 for nowhere.
type place struct{ number, at uint32 } // at is one more

// find returns the place of an entry, which lasts until the young half is full. The memory is
// locked.
func (m *memory) find(tag uint64, check uint32) place {
	if at, ok := m.young.at[tag]; ok && uint32(m.young.words[at]>>32) == check {
		return place{m.number, at + 1}
	}
	at, ok := m.old.at[tag]
	if !ok || uint32(m.old.words[at]>>32) != check {
		return place{}
	}
	from := entry(m.old.words[at:][:entryTotals+m.old.words[at]&(maxTotals-1)])
	if m.isFull(len(from) - entryTotals) {
		from = slices.Clone(from) // its memory is the next young half's
	}
	p, e := m.add(tag, check, len(from)-entryTotals)
	copy(e, from)
	return p
}

// entry returns the entry at a place, if it is still there. The memory is locked.
func (m *memory) entry(p place) entry {
	if p.at == 0 || p.number != m.number {
		return nil
	}
	words := m.young.words[p.at-1:]
	return words[:entryTotals+words[0]&(maxTotals-1)]
}

func (m *memory) isFull(totals int) bool {
	return m.young.totals > 0 && m.young.totals+max(totals, 1) > m.most
}

// add makes an entry for n totals, which the caller fills in; nil if that is more than there is
// room for. The memory is locked.
func (m *memory) add(tag uint64, check uint32, n int) (place, entry) {
	if n > min(m.most, maxTotals-1) {
		return place{}, nil
	}
	if m.isFull(n) {
		m.young, m.old = half{at: m.old.at, words: m.old.words[:0]}, m.young
		clear(m.young.at)
		m.number++
	}
	g := &m.young
	at := len(g.words)
	g.totals += max(n, 1)
	g.words = append(g.words, int64(uint64(check)<<32|uint64(n)), 0)
	for range n {
		g.words = append(g.words, unknown)
	}
	g.at[tag] = uint32(at)
	return place{m.number, uint32(at) + 1}, g.words[at:]
}

// total returns what is remembered of a bucket, or unknown.
func (e entry) total(bucket int64) int64 {
	if len(e) > 0 {
		if i := e.index(bucket); i >= 0 {
			return e[i]
		}
	}
	return unknown
}

// index is where in the entry a bucket's total is, negative if it is nowhere.
func (e entry) index(bucket int64) int {
	age := e[entryNewest] - bucket
	if age < 0 || age >= int64(len(e)-entryTotals) {
		return -1
	}
	return len(e) - 1 - int(age)
}

// advance makes room for later buckets, of which all have this total.
func (e entry) advance(newest, total int64) {
	totals := e[entryTotals:]
	by := int(min(max(newest-e[entryNewest], 0), int64(len(totals))))
	copy(totals, totals[by:])
	for i := len(totals) - by; i < len(totals); i++ {
		totals[i] = total
	}
	e[entryNewest] = max(newest, e[entryNewest])
}

// set sets the total of a bucket, unless there is no place for it. With one that cannot be
// remembered, all others are forgotten.
func (e entry) set(bucket, total int64) {
	if total > maxTotal {
		e.drop()
	} else if i := e.index(bucket); i >= 0 {
		e[i] = total
	}
}

// drop forgets all totals so far.
func (e entry) drop() {
	for i := entryTotals; i < len(e); i++ {
		e[i] = unknown
	}
}

// spans reports whether the entry of a key of many buckets has the totals of a bucket and of all
// later ones: totals are forgotten together, so those after a known one are known.
func (e entry) spans(bucket int64) bool {
	if len(e) == 0 || e[entryNewest]-int64(len(e)-entryTotals) >= bucket {
		return false
	}
	i := e.index(bucket)
	return i < 0 || e[i] != unknown // or the bucket is later than all, and nothing is in it
}

// any reports whether there is a hit in a bucket or a later one. The entry spans it.
func (e entry) any(bucket int64) bool {
	for i := len(e) - 1; i >= entryTotals && e[entryNewest]-int64(len(e)-1-i) >= bucket; i-- {
		if e[i] > 0 {
			return true
		}
	}
	return false
}

// tagged is what the tags of many keys have in common.
type tagged struct {
	era    uint64
	rule   string
	bucket int64
}

func (m *memory) hashOf(t tagged) uint64 { return maphash.Comparable(m.seed, t) }

func (m *memory) hash(text string) uint64 { return maphash.String(m.seed, text) }
