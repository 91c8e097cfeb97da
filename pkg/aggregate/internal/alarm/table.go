package alarm

import (
	"math/bits"
	"slices"

	"github.com/offpath-io/offpath/pkg/aggregate/internal/queue"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/window"
)

// Bounds of one alarm message; more totals take several.
const (
	maxKeys  = 1000
	maxRows  = 3 * maxKeys // a key's admitted, denied and refunded hits
	maxCells = 32 << 10
	maxText  = 256 << 10 // bytes
)

// table holds totals of keys, in the order in which they came, so that the same run gives the same
// messages.
type table struct {
	rules   []storage.Rule
	ruleAt  map[storage.RuleID]int
	entries []entry
	entryAt map[keyID]int
	from    int // where thin begins to look
}

type keyID struct {
	rule int
	text string
}

type entry struct {
	keyID
	version uint64
	totals  []storage.Cell
	level   window.Level // of a rule that drains

	reporters uint64 // since its last alarm: see Observe
	refunds   bool   // it brings refunded hits, and not only what was asked for
}

func newTable() table {
	return table{ruleAt: make(map[storage.RuleID]int), entryAt: make(map[keyID]int)}
}

func (t *table) put(r *storage.Rule, text string, e entry) {
	id := r.ID()
	rule, ok := t.ruleAt[id]
	if !ok {
		rule = len(t.rules)
		t.ruleAt[id] = rule
		t.rules = append(t.rules, *r)
	}
	t.rules[rule].Learn(r.Limit, r.Burst, r.Revision)
	e.keyID = keyID{rule, text}
	at, ok := t.entryAt[e.keyID]
	if !ok {
		at = len(t.entries)
		t.entryAt[e.keyID] = at
		t.entries = append(t.entries, e)
	}
	e.reporters, e.refunds = e.reporters|t.entries[at].reporters, e.refunds || t.entries[at].refunds
	if e.version < t.entries[at].version { // batches of one shard may end in another order than begun
		t.entries[at].reporters, t.entries[at].refunds = e.reporters, e.refunds
		return
	}
	t.entries[at] = e
}

// thin leaves the rows of at most so many keys: those that most checkers have reported; of equal
// ones, now these and now those. Keys of refunded hits stay as well, since nobody reports them
// again. The table is good only for messages afterwards.
func (t *table) thin(most int) {
	if len(t.entries) <= most {
		return
	}
	stays, byRank := make([]bool, len(t.entries)), [65]int{}
	for i := range t.entries {
		switch {
		case t.entries[i].refunds:
			stays[t.leader(i)] = true
		case t.leader(i) == i:
			byRank[t.rank(i)]++
		}
	}
	floor := len(byRank) - 1 // all keys above it stay, and some of those that are on it
	for floor > 0 && byRank[floor] <= most {
		most -= byRank[floor]
		floor--
	}
	t.from += most
	for n := range t.entries {
		i := (t.from + n) % len(t.entries)
		if rank := t.rank(i); t.leader(i) == i && rank >= floor {
			if rank == floor {
				if most == 0 {
					continue
				}
				most--
			}
			stays[i] = true
		}
	}
	kept := t.entries[:0]
	for i, e := range t.entries {
		if stays[t.leader(i)] {
			kept = append(kept, e)
		}
	}
	clear(t.entries[len(kept):])
	t.entries = kept
}

// rank is by how many checkers the key of a row was reported.
func (t *table) rank(i int) int { return bits.OnesCount64(t.entries[i].reporters) }

// leader returns the row of the same key's admitted hits, without which its others mean nothing; if
// there is none, row i itself.
func (t *table) leader(i int) int {
	e := &t.entries[i]
	id := t.rules[e.rule].ID()
	if id.Kind == storage.Admitted {
		return i
	}
	id.Kind = storage.Admitted
	if rule, ok := t.ruleAt[id]; ok {
		if at, ok := t.entryAt[keyID{rule, e.text}]; ok {
			return at
		}
	}
	return i
}

func (t *table) clear() {
	clear(t.rules)
	clear(t.entries)
	clear(t.ruleAt)
	clear(t.entryAt)
	t.rules, t.entries = t.rules[:0], t.entries[:0]
}

// recent are the totals that alarms have carried lately. A checker that starts, or comes back from
// an outage, has not received them, and nobody reports a key that is blocked everywhere; so the
// checker asks, and they are sent again.
type recent struct {
	newer, older table // as much as one alarm holds, each, if nothing is denied
	cells, text  int   // in the newer ones
	wanted       bool
	nextDue      int64 // own time
}

// repeatPart is how much more seldom totals are sent again than alarms are.
const repeatPart = 64

func newRecent() recent { return recent{newer: newTable(), older: newTable()} }

// add takes in the totals of an alarm.
func (r *recent) add(t *table) {
	for _, e := range t.entries {
		if len(r.newer.entries) >= maxKeys || r.cells > maxCells || r.text > maxText {
			r.older, r.newer, r.cells, r.text = r.newer, newTable(), 0, 0
		}
		e.totals = slices.Clone(e.totals) // not the whole batch's
		before := len(r.newer.entries)
		r.newer.put(&t.rules[e.rule], e.text, e)
		if len(r.newer.entries) > before {
			r.cells, r.text = r.cells+len(e.totals), r.text+len(e.text)
		}
	}
}

// due is when totals have to be sent again, in own time.
func (r *recent) due() int64 {
	if !r.wanted {
		return queue.Never
	}
	return r.nextDue
}
