package redisstore

import (
	"hash/maphash"
	"sync"
)

// recall remembers totals of buckets that are over, so that batches need not read them again: with
// it, a key that is reported several times in a bucket costs Redis one addition each time, and its
// previous bucket one lookup in all.
//
// It is exact, because the store keeps count, for each rule and shard, of the batches that add to a
// bucket after another batch has named a later one. A total remembered at one count is used at no
// other; and if the reply to a batch shows that the count had moved, its keys are read again
// without it.
//
// It is of fixed size and forgets the oldest: sets of four entries, one cache line each.
type recall struct {
	seed maphash.Seed
	size int // number of sets, a power of two; 0 remembers nothing

	mu   sync.Mutex
	late map[watched]lateness
	sets [][4]remembered // none before something is remembered
}

// watched is a rule in a shard.
type watched struct {
	shard uint32
	rule  string
}

// lateness is the last known count of late batches, in a generation.
type lateness struct {
	generation uint64
	batches    int64
}

// remembered is a total. Its tag stands for the key, rule, shard and bucket, and for the lateness
// at which it was read; that two of them are the same by chance happens once in 2^64 lookups.
type remembered struct {
	tag   uint64
	total int64
}

// maxWatched bounds the rules whose lateness is known; beyond it, all are forgotten.
const maxWatched = 1 << 14

func newRecall(entries int) *recall {
	r := &recall{seed: maphash.MakeSeed(), late: make(map[watched]lateness)}
	if entries > 0 {
		for r.size = 1; r.size*4 < entries; r.size *= 2 {
		}
	}
	return r
}

// known is the last known lateness of a rule.
func (r *recall) known(w watched) (lateness, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l, ok := r.late[w]
	return l, ok
}

// learn takes note of a rule's lateness.
func (r *recall) learn(w watched, l lateness) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.late) >= maxWatched {
		clear(r.late)
	}
	r.late[w] = l
}

// column is what the tags of a bucket's keys have in common: tag = hash of the key ^ column.
func (r *recall) column(w watched, l lateness, bucket int64) uint64 {
	return maphash.Comparable(r.seed, struct {
		w      watched
		l      lateness
		bucket int64
	}{w, l, bucket})
}

func (r *recall) hash(field string) uint64 { return maphash.String(r.seed, field) }

// find sets totals to what is remembered of the hashed keys, and to unknown where nothing is. It
// reports whether it has found any.
func (r *recall) find(column uint64, hashes []uint64, totals []int64) (any bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, hash := range hashes {
		totals[i] = unknown
		if r.sets == nil {
			continue
		}
		tag := hash ^ column
		for _, e := range r.sets[tag&uint64(r.size-1)] {
			if e.tag == tag {
				totals[i], any = e.total, true
				break
			}
		}
	}
	return any
}

// put remembers the totals of the hashed keys, other than those that skip says are known already.
func (r *recall) put(column uint64, hashes []uint64, totals []int64, skip func(i int) bool) {
	if r.size == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sets == nil {
		r.sets = make([][4]remembered, r.size)
	}
	for i, hash := range hashes {
		if skip(i) {
			continue
		}
		tag := hash ^ column
		set := &r.sets[tag&uint64(r.size-1)]
		copy(set[1:], set[:3])
		set[0] = remembered{tag, totals[i]}
	}
}
