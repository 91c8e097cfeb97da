// Package topkeys finds out which keys come most, within a bound of memory whatever the number of keys.
//
// A count-min sketch counts all keys, never too low, and too high by 0.1 % of everything that was counted at the most, as a rule; the
// keys with the highest counts are kept by name. There are two of these: one of the present half of a span, and one of the half before;
// so what a key did long ago is forgotten.
package topkeys

import (
	"cmp"
	"hash"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	boom "github.com/tylertreat/BoomFilters"
)

const (
	// Span is about how far back counts reach: from half of it to all of it.
	Span = time.Minute
	// kept is how many keys are kept by name: more than anybody asks for, so that two halves add up.
	kept = 256
	// epsilon and delta are the sketch's: by which part of all counts one may be too high, and how likely it is more.
	epsilon, delta = 0.001, 0.01
	// maxText is the longest key that is kept; longer ones are passed over, since no key of a rule is.
	maxText = 1024
)

// Key is a key of a rule.
type Key struct{ Rule, Text string }

// Count is how often a key came in some time.
type Count struct {
	Key
	Count int64
}

// Top counts keys. It is safe for concurrent use.
type Top struct {
	now func() time.Time

	mu          sync.Mutex
	text        []byte // memory to work with
	began       time.Time
	first       time.Time // when the half before began
	half, older *half

	gate gate
}

// half is what came in half of a span.
type half struct {
	sketch *boom.CountMinSketch
	// counts are of those that came most. They are changed in place: to assign to a key that is there would put the caller's text into the
	// map, which he uses for other keys afterwards.
	counts map[Key]*int64
	least  int64 // no count in counts is below it
}

// New returns a Top that tells time by now.
func New(now func() time.Time) *Top {
	t := &Top{now: now, half: newHalf(), older: newHalf(), began: now()}
	t.first = t.began
	return t
}

func newHalf() *half {
	h := &half{sketch: boom.NewCountMinSketch(epsilon, delta), counts: make(map[Key]*int64, kept)}
	// A seed of our own, so that nobody can choose keys that are taken for each other.
	h.sketch.SetHash(newSeeded())
	return h
}

// newSeeded is a hash that nobody outside can foresee.
func newSeeded() hash.Hash64 {
	h := new(maphash.Hash)
	h.SetSeed(maphash.MakeSeed())
	return h
}

// Add counts a key n times more. It keeps none of the texts.
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

// AddSome is Add for those who cannot wait: when more come than can be counted, one in so many counts for all of them.
func (t *Top) AddSome(rule, text string, n int64) {
	if weight := t.gate.weigh(t.now().UnixNano()); weight > 0 {
		t.Add(rule, text, n*weight)
	}
}

func (h *half) add(bytes []byte, rule, text string, n int64) {
	h.sketch.AddN(bytes, uint64(n))
	count := int64(h.sketch.Count(bytes))
	if known := h.counts[Key{rule, text}]; known != nil {
		*known = count
		return
	}
	if len(h.counts) >= kept && count <= h.least {
		return
	}
	h.counts[Key{strings.Clone(rule), strings.Clone(text)}] = &count
	if len(h.counts) > 2*kept { // now and then, instead of each time
		h.thin()
	}
}

// thin forgets all but those that came most.
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

// turn begins another half when the present one is over.
func (t *Top) turn() {
	now := t.now()
	switch past := now.Sub(t.began); {
	case past < Span/2:
		return
	case past < Span:
		t.older, t.first = t.half, t.began
	default: // nothing came for so long
		t.older, t.first = newHalf(), now
	}
	t.half, t.began = newHalf(), now
}

// Top returns the keys that came most, at most n of them, the first one most often; and over how long they were counted.
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

// order puts those that came most first.
func order(list []Count) {
	slices.SortFunc(list, func(a, b Count) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Text, b.Text))
	})
}

// gate lets about so many through in each slot of time.
type gate struct {
	slot   atomic.Int64
	came   atomic.Int64
	stride atomic.Int64 // one in so many goes through
}

const (
	slotLength = int64(100 * time.Millisecond)
	perSlot    = 2000
)

// weigh returns for how many this one counts; 0 if it does not go through.
func (g *gate) weigh(now int64) int64 {
	slot := now / slotLength
	if at := g.slot.Load(); at != slot && g.slot.CompareAndSwap(at, slot) {
		g.stride.Store((g.came.Swap(0) + perSlot - 1) / perSlot)
	}
	n, stride := g.came.Add(1), max(g.stride.Load(), 1)
	if n > perSlot*stride { // more than were expected: within the slot, sparser still
		stride *= n/(perSlot*stride) + 1
	}
	if n%stride != 0 {
		return 0
	}
	return stride
}
