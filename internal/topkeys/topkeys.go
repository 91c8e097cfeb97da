// Package topkeys finds the most frequent keys, in bounded memory whatever the number of keys.
//
// A count-min sketch counts all keys: never too low, and as a rule too high by at most 0.1 % of
// everything that was counted. The keys with the highest counts are kept by name. There are two
// sketches, of the present half of a span and of the half before: so old counts are forgotten.
package topkeys

import (
	"cmp"
	"hash"
	"hash/maphash"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	boom "github.com/tylertreat/BoomFilters"
)

const (
	// Span is the longest time that counts reach back; the shortest is half of it.
	Span = time.Minute
	// kept is the number of keys that are kept by name: more than callers ask for, so that the two
	// halves add up.
	kept = 256
	// epsilon is the error of the sketch, as a part of all counts; delta is the probability of a
	// larger one.
	epsilon, delta = 0.001, 0.01
	// maxText is the most bytes of a key that is counted; no key of a rule is longer.
	maxText = 1024
)

// Key is a key of a rule.
type Key struct{ Rule, Text string }

// Count is a key and its count.
type Count struct {
	Key
	Count int64
}

// Top counts keys. It is safe for concurrent use.
type Top struct {
	now func() time.Time

	mu          sync.Mutex
	text        []byte // scratch memory
	began       time.Time
	first       time.Time // when the half before began
	half, older *half

	gate gate
}

// half has the counts of half a span.
type half struct {
	sketch *boom.CountMinSketch
	// counts are those of the most frequent keys. They are changed in place: an assignment to an
	// existing key would keep the caller's text, which is reused.
	counts map[Key]*int64
	least  int64 // no count in counts is below it
}

// New returns a Top; now returns the time.
func New(now func() time.Time) *Top {
	t := &Top{now: now, half: newHalf(), older: newHalf(), began: now()}
	t.first = t.began
	return t
}

func newHalf() *half {
	h := &half{sketch: boom.NewCountMinSketch(epsilon, delta), counts: make(map[Key]*int64, kept)}
	// A random seed: callers cannot choose keys that collide.
	h.sketch.SetHash(newSeeded())
	return h
}

// newSeeded returns a hash with a random seed.
func newSeeded() hash.Hash64 {
	h := new(maphash.Hash)
	h.SetSeed(maphash.MakeSeed())
	return h
}

// Add adds n to the count of a key. It does not keep the texts.
func (t *Top) Add(rule, text string, n int64) {
	if n <= 0 || len(rule)+len(text) > maxText {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turn()
	t.text = append(append(append(t.text[:0], rule...), 0), text...)
	t.half.add(t.text, rule, text, n)
}

// AddSome is Add for callers that must not wait: at high rates it counts a sample, with weights.
func (t *Top) AddSome(rule, text string, n int64) {
	if weight := t.gate.weigh(t.now().UnixNano()); weight > 0 {
		t.Add(rule, text, min(n, math.MaxInt64/weight)*weight)
	}
}

func (h *half) add(bytes []byte, rule, text string, n int64) {
	h.sketch.AddN(bytes, uint64(n))
	count := int64(min(h.sketch.Count(bytes), math.MaxInt64/2)) // hits may cost 10^15 each
	if known := h.counts[Key{rule, text}]; known != nil {
		*known = count
		return
	}
	if len(h.counts) >= kept && count <= h.least {
		return
	}
	h.counts[Key{strings.Clone(rule), strings.Clone(text)}] = &count
	if len(h.counts) > 2*kept { // not each time: it is expensive
		h.thin()
	}
}

// thin forgets all but the most frequent keys.
func (h *half) thin() {
	list := make([]Count, 0, len(h.counts))
	for key, count := range h.counts {
		list = append(list, Count{key, *count})
	}
	order(list)
	for _, c := range list[kept:] {
		delete(h.counts, c.Key)
	}
	h.least = list[kept-1].Count
}

// turn starts the next half when the present one is over.
func (t *Top) turn() {
	now := t.now()
	switch past := now.Sub(t.began); {
	case past < Span/2:
		return
	case past < Span:
		t.older, t.first = t.half, t.began
	default: // the half before is over, too
		t.older, t.first = newHalf(), now
	}
	t.half, t.began = newHalf(), now
}

// Top returns the n most frequent keys, or fewer, in descending order, and the time over which they
// were counted.
func (t *Top) Top(n int) ([]Count, time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turn()
	sums := make(map[Key]int64, len(t.half.counts)+len(t.older.counts))
	for _, h := range []*half{t.half, t.older} {
		for key, count := range h.counts {
			sums[key] += *count
		}
	}
	list := make([]Count, 0, len(sums))
	for key, count := range sums {
		list = append(list, Count{key, count})
	}
	order(list)
	return list[:min(n, len(list))], t.now().Sub(t.first)
}

// order sorts by descending counts.
func order(list []Count) {
	slices.SortFunc(list, func(a, b Count) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Text, b.Text))
	})
}

// gate samples calls: about perSlot in each slot of time.
type gate struct {
	slot   atomic.Int64
	came   atomic.Int64
	stride atomic.Int64 // one call in stride is in the sample
}

const (
	slotLength = int64(100 * time.Millisecond)
	perSlot    = 2000
)

// weigh returns the weight of this call; 0 if it is not in the sample.
func (g *gate) weigh(now int64) int64 {
	slot := now / slotLength
	if at := g.slot.Load(); at != slot && g.slot.CompareAndSwap(at, slot) {
		g.stride.Store((g.came.Swap(0) + perSlot - 1) / perSlot)
	}
	n, stride := g.came.Add(1), max(g.stride.Load(), 1)
	if n > perSlot*stride { // more calls than expected: a sparser sample for the rest of the slot
		stride *= n/(perSlot*stride) + 1
	}
	if n%stride != 0 {
		return 0
	}
	return stride
}
