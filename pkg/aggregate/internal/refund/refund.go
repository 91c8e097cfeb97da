// Package refund relates refunded hits, which are counters of their own, to the admitted hits that
// they are subtracted from.
package refund

import (
	"slices"
	"sync"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
)

// Pairs finds the refunded totals that belong to a batch's admitted keys. It is nil for a batch
// without any, as most are.
type Pairs struct {
	refunded map[int]int // by rule of admitted hits, that of its refunded ones
	keys     map[keyID]int
	// freed are the keys of which permits are given back.
	freed map[keyID]struct{}
}

type keyID struct {
	rule int
	text string
}

// PairsOf returns the pairs of a batch.
func PairsOf(batch *storage.Batch) *Pairs {
	var p *Pairs
	for i := range batch.Rules {
		back := &batch.Rules[i]
		if back.Kind != storage.Refunded {
			continue
		}
		admitted := slices.IndexFunc(batch.Rules, func(a storage.Rule) bool {
			return a.Kind == storage.Admitted && a.Name == back.Name && a.Shape == back.Shape
		})
		if admitted < 0 {
			continue
		}
		if p == nil {
			p = &Pairs{refunded: make(map[int]int), keys: make(map[keyID]int)}
		}
		p.refunded[admitted] = i
	}
	if p == nil {
		return nil
	}
	for i := range batch.Keys {
		if key := &batch.Keys[i]; batch.Rules[key.Rule].Kind == storage.Refunded {
			p.keys[keyID{key.Rule, key.Text}] = i
		}
	}
	for _, change := range batch.Permits {
		if change.Count < 0 {
			if p.freed == nil {
				p.freed = make(map[keyID]struct{})
			}
			p.freed[keyID{change.Rule, change.Text}] = struct{}{}
		}
	}
	return p
}

// FreesPermits says whether the batch gives permits of a key back. Checkers that were told that
// there are none have to learn of it, whatever has been counted by then.
func (p *Pairs) FreesPermits(key *storage.Key) bool {
	if p == nil {
		return false
	}
	_, ok := p.freed[keyID{key.Rule, key.Text}]
	return ok
}

// Of returns the index of the batch's key that holds the refunds of an admitted one.
func (p *Pairs) Of(key *storage.Key) (index int, ok bool) {
	if p == nil {
		return 0, false
	}
	rule, ok := p.refunded[key.Rule]
	if !ok {
		return 0, false
	}
	index, ok = p.keys[keyID{rule, key.Text}]
	return index, ok
}

// Net subtracts from a key's totals what had been refunded before the batch, which refunds now: a
// key that was near its limit until the batch has news for the checkers that deny it. It reuses the
// memory of dst.
func Net(dst, totals, refunded, now []storage.Cell) []storage.Cell {
	dst = append(dst[:0], totals...)
	for i := range dst {
		n := storage.CountOf(refunded, dst[i].Bucket) - storage.CountOf(now, dst[i].Bucket)
		dst[i].Count = max(dst[i].Count-max(n, 0), 0)
	}
	return dst
}

// Recent are the rules of a shard of which hits were refunded lately, so that a checker whose
// reports do not ask for refunds learns that it should. The zero value has none. Its methods are
// safe for concurrent use.
type Recent struct {
	mu sync.Mutex
	at map[storage.RuleID]int64 // fleet time of the last refund
}

// maxRecent bounds the rules; beyond it, all are forgotten.
const maxRecent = 1 << 14

// Observe takes in the refunds of an applied batch.
func (r *Recent) Observe(batch *storage.Batch, applied *storage.Applied) {
	refunded := func(r storage.Rule) bool { return r.Kind == storage.Refunded }
	if !slices.ContainsFunc(batch.Rules, refunded) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range batch.Keys {
		rule := &batch.Rules[batch.Keys[i].Rule]
		if rule.Kind != storage.Refunded || len(applied.Totals[i]) == 0 {
			continue
		}
		if len(r.at) >= maxRecent {
			clear(r.at)
		}
		if r.at == nil {
			r.at = make(map[storage.RuleID]int64)
		}
		r.at[storage.RuleID{Name: rule.Name, Shape: rule.Shape}] = batch.Now
	}
}

// Hints appends to dst which of a report's rules, given as indices of the batch's and negative
// where they are unknown, its checker should ask refunds of: those refunded in the last two windows
// and a minute, unless the report asks already.
func (r *Recent) Hints(dst []uint32, batch *storage.Batch, rules []int32) []uint32 {
	dst = dst[:0]
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.at) == 0 {
		return dst
	}
	for i, rule := range rules {
		if rule < 0 {
			continue
		}
		id := batch.Rules[rule].ID()
		at, ok := r.at[id]
		if !ok || batch.Now > at+2*int64(id.Shape.Length)+int64(time.Minute) {
			continue
		}
		id.Kind = storage.Refunded
		asks := slices.ContainsFunc(rules, func(other int32) bool {
			return other >= 0 && batch.Rules[other].ID() == id
		})
		if !asks {
			dst = append(dst, uint32(i))
		}
	}
	return dst
}
