package aggregate

import (
	"slices"
	"sync"
	"time"
)

// refunds finds the refunded totals that belong to a fold's admitted keys. It is nil for a fold without any, as most
// are.
type refunds struct {
	twin map[int]int     // by rule of admitted hits, that of its refunded ones
	keys map[alarmID]int // by rule of refunded hits and text, the key of the fold
	// permits are the keys of which permits are given back.
	permits map[alarmID]struct{}
}

func refundsOf(fold *Fold) *refunds {
	var r *refunds
	for i := range fold.Rules {
		back := &fold.Rules[i]
		if back.Kind != Refunded {
			continue
		}
		admitted := slices.IndexFunc(fold.Rules, func(a Rule) bool {
			return a.Kind == Admitted && a.Name == back.Name && a.Shape == back.Shape
		})
		if admitted < 0 {
			continue
		}
		if r == nil {
			r = &refunds{twin: make(map[int]int), keys: make(map[alarmID]int)}
		}
		r.twin[admitted] = i
	}
	if r == nil {
		return nil
	}
	for i := range fold.Keys {
		if key := &fold.Keys[i]; fold.Rules[key.Rule].Kind == Refunded {
			r.keys[alarmID{key.Rule, key.Text}] = i
		}
	}
	for _, p := range fold.Permits {
		if p.Count < 0 {
			if r.permits == nil {
				r.permits = make(map[alarmID]struct{})
			}
			r.permits[alarmID{p.Rule, p.Text}] = struct{}{}
		}
	}
	return r
}

// freesPermits says whether the fold gives permits of a key back. Checkers who were told that there are none have to
// hear of it, whatever has been counted by then.
func (r *refunds) freesPermits(key *Key) bool {
	if r == nil {
		return false
	}
	_, ok := r.permits[alarmID{key.Rule, key.Text}]
	return ok
}

// of returns the key of the fold that holds what was refunded of an admitted one's hits.
func (r *refunds) of(key *Key) (index int, ok bool) {
	if r == nil {
		return 0, false
	}
	twin, ok := r.twin[key.Rule]
	if !ok {
		return 0, false
	}
	index, ok = r.keys[alarmID{twin, key.Text}]
	return index, ok
}

// net is what is left of a key's totals without what had been refunded before the fold: a key that was near its limit
// until now has news for those whom it keeps out. dst is memory to work with.
func net(dst, totals, refunded, now []Cell) []Cell {
	dst = append(dst[:0], totals...)
	for i := range dst {
		n := cellOf(refunded, dst[i].Bucket) - cellOf(now, dst[i].Bucket)
		dst[i].Count = max(dst[i].Count-max(n, 0), 0)
	}
	return dst
}

func cellOf(cells []Cell, bucket int64) int64 {
	for i := len(cells) - 1; i >= 0; i-- {
		if cells[i].Bucket == bucket {
			return cells[i].Count
		}
	}
	return 0
}

// refunding are the rules of a shard of which hits were refunded lately, so that checkers which have not heard of it
// can be told to ask.
type refunding struct {
	mu sync.Mutex
	at map[ruleID]int64 // the fleet's time at which a refund was last met
}

// maxRefunding bounds the rules; beyond it, all are forgotten.
const maxRefunding = 1 << 14

// learn takes in the refunds that an applied fold has met.
func (r *refunding) learn(fold *Fold, applied *Applied) {
	if !slices.ContainsFunc(fold.Rules, func(r Rule) bool { return r.Kind == Refunded }) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range fold.Keys {
		rule := &fold.Rules[fold.Keys[i].Rule]
		if rule.Kind != Refunded || len(applied.Totals[i]) == 0 {
			continue
		}
		if len(r.at) >= maxRefunding {
			clear(r.at)
		}
		if r.at == nil {
			r.at = make(map[ruleID]int64)
		}
		r.at[ruleID{rule.Name, rule.Shape, Admitted}] = fold.Now
	}
}

// hints appends to dst which of a report's rules its checker should ask refunds of: those of which there were some in
// the last two windows and a minute, and the report asks for none.
func (r *refunding) hints(dst []uint32, fold *Fold, rules []int32) []uint32 {
	dst = dst[:0]
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.at) == 0 {
		return dst
	}
	for i, rule := range rules {
		if rule == none {
			continue
		}
		is := &fold.Rules[rule]
		at, ok := r.at[ruleID{is.Name, is.Shape, is.Kind}]
		if !ok || fold.Now > at+2*int64(is.Shape.Length)+int64(time.Minute) {
			continue
		}
		asks := slices.ContainsFunc(rules, func(other int32) bool {
			if other == none {
				return false
			}
			o := &fold.Rules[other]
			return o.Kind == Refunded && o.Name == is.Name && o.Shape == is.Shape
		})
		if !asks {
			dst = append(dst, uint32(i))
		}
	}
	return dst
}
