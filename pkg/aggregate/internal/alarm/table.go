package alarm

import (
	"slices"

	"github.com/offpath-io/offpath/pkg/aggregate/internal/queue"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/window"
)

// table holds totals of keys, in the order in which they came, so that the same run gives the same
// messages.
type table struct {
	rules   []storage.Rule
	ruleAt  map[storage.RuleID]int
	entries []entry
	entryAt map[keyID]int
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
	if e.version >= t.entries[at].version { // batches of one shard may end in another order than begun
		t.entries[at] = e
	}
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
	newer, older table // as much as one alarm holds, each
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
