package aggregate

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/offpath-io/offpath/pkg/events"
)

// ruleBound bounds the rules that checkers of one credential speak of. Each takes up room in the
// store's ledger for ever, and counters of its own for two of its windows; so whoever makes up
// names could fill the store.
type ruleBound struct {
	most int // of one owner
	seed maphash.Seed

	mu     sync.Mutex
	owners map[uint32]*spoken
}

// spoken are the rules that an owner's checkers have spoken of since a turn, and those that they
// had spoken of only between that and the turn before.
type spoken struct {
	young, old map[uint64]struct{} // by hash: two of one are taken for one
	turned     int64               // own time
}

const (
	// rulesFor is the time from turn to turn: a rule that nobody speaks of any more is forgotten in
	// the second one.
	rulesFor = 12 * time.Hour
	// mostOwners bounds the owners that are told apart; others are taken for one.
	mostOwners = 1 << 14
)

func newRuleBound(most int) *ruleBound {
	return &ruleBound{most: most, seed: maphash.MakeSeed(), owners: make(map[uint32]*spoken)}
}

// note takes in which rules a checker speaks of at own time now, if there is room for all of them,
// and returns whether there is. Those that are known have it.
func (b *ruleBound) note(epoch uint64, rules []*events.Rule, now int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	o := b.of(events.OwnerOf(epoch))
	if now-o.turned >= int64(rulesFor) {
		o.old, o.young, o.turned = o.young, make(map[uint64]struct{}), now
	}
	var added []uint64
	for _, r := range rules {
		id := maphash.Comparable(b.seed, ruleID{name: r.GetName(), shape: shapeOf(r)})
		if _, known := o.young[id]; known {
			continue
		}
		if _, known := o.old[id]; known {
			delete(o.old, id)
		} else if len(o.young)+len(o.old) >= b.most {
			for _, id := range added {
				delete(o.young, id)
			}
			return false
		} else {
			added = append(added, id)
		}
		o.young[id] = struct{}{}
	}
	return true
}

func (b *ruleBound) of(owner uint32) *spoken {
	o := b.owners[owner]
	if o == nil && len(b.owners) >= mostOwners {
		owner = 1 << 31 // which no epoch has: they have 24 bits
		o = b.owners[owner]
	}
	if o == nil {
		o = &spoken{young: make(map[uint64]struct{})}
		b.owners[owner] = o
	}
	return o
}
