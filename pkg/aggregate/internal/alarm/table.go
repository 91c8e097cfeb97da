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
	maxCells = 32 << 10
	maxText  = 256 << 10 // bytes
)

// table holds totals of keys, in an order that the same run repeats.
type table struct {
	rules   []storage.Rule
	ruleAt  map[storage.RuleID]int
	entries []entry
	entryAt map[keyID]int
	moves   int // how often moveTo was called
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
	since     int    // moves of its table when it came
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
		t.entries[at].since = t.moves
	}
	old := &t.entries[at]
	e.reporters, e.since = e.reporters|old.reporters, old.since
	if e.version < old.version { // batches of one shard may end in another order than begun
		old.reporters = e.reporters
		return
	}
	*old = e
}

// has reports whether a key of a rule is in the table.
func (t *table) has(r *storage.Rule, text string) bool {
	rule, ok := t.ruleAt[r.ID()]
	if ok {
		_, ok = t.entryAt[keyID{rule, text}]
	}
	return ok
}

// moveTo moves at most so many rows to another table, whose own are dropped: those of the keys that
// most checkers are concerned with, or that have waited for long.
func (t *table) moveTo(to *table, most int) {
	to.clear()
	t.moves++
	if len(t.entries) <= most {
		*t, *to = *to, *t
		t.moves = to.moves
		return
	}
	goes := t.choose(most)
	for i := len(t.entries) - 1; i >= 0; i-- { // backwards, as the last one takes the place of what goes
		if e := t.entries[i]; goes[i] {
			to.put(&t.rules[e.rule], e.text, e)
			t.remove(i)
		}
	}
}

func (t *table) remove(i int) {
	last := len(t.entries) - 1
	delete(t.entryAt, t.entries[i].keyID)
	if i != last {
		t.entries[i] = t.entries[last]
		t.entryAt[t.entries[i].keyID] = i
	}
	t.entries[last] = entry{}
	t.entries = t.entries[:last]
}

// choose says of each row whether it goes first, if at most so many may. A key's denied hits mean
// nothing without its admitted ones, so they go together.
func (t *table) choose(most int) []bool {
	rows, byRank := make([]int, len(t.entries)), [ranks]int{}
	for i := range t.entries {
		leader := t.leader(i)
		rows[leader]++
		byRank[t.rank(leader)]++
	}
	floor := ranks - 1 // all keys above it go, and the first of those that are on it
	for floor > 0 && byRank[floor] <= most {
		most -= byRank[floor]
		floor--
	}
	goes := make([]bool, len(t.entries))
	for i, n := range rows {
		switch rank := t.rank(i); {
		case rank > floor:
			goes[i] = true
		case rank == floor && n <= most:
			goes[i] = true
			most -= n
		}
	}
	for i := range t.entries {
		goes[i] = goes[t.leader(i)]
	}
	return goes
}

// leader returns the row that decides when row i goes: that of the key's admitted hits, if there is
// one.
func (t *table) leader(i int) int {
	e := &t.entries[i]
	if id := t.rules[e.rule].ID(); id.Kind != storage.Admitted {
		id.Kind = storage.Admitted
		if rule, ok := t.ruleAt[id]; ok {
			if at, ok := t.entryAt[keyID{rule, e.text}]; ok {
				return at
			}
		}
	}
	return i
}

// Each checker that is concerned with a key raises its rank by one, and so does waiting for
// movesPerRank alarms: no key waits for ever.
const (
	ranks        = 128
	movesPerRank = 4
)

func (t *table) rank(i int) int {
	e := &t.entries[i]
	return min(bits.OnesCount64(e.reporters)+(t.moves-e.since)/movesPerRank, ranks-1)
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
