package storetest

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/window"
)

// model is what a store should hold: the simplest program that keeps the contract.
type model struct {
	state   map[uint32]storage.State
	marks   map[checker]uint64
	counts  map[entity]map[int64]int64 // by bucket
	ledger  storage.Ledger
	spent   map[settled]bool
	credits map[credit]int64
	leases  map[entity]*leases
	lost    map[uint32]int64 // when a shard lost its data
}

// credit is of which checkers, rule and window. The entity has no key.
type credit struct {
	entity
	credential uint32
	window     int64
}

type settled struct {
	shard uint32
	id    storage.Settled
}

type checker struct {
	shard uint32
	epoch uint64
}

// entity is a key of a rule.
type entity struct {
	shard uint32
	name  string
	shape window.Shape
	kind  storage.Kind
	key   string
}

func newModel() *model {
	return &model{
		state:   make(map[uint32]storage.State),
		marks:   make(map[checker]uint64),
		counts:  make(map[entity]map[int64]int64),
		ledger:  make(storage.Ledger),
		spent:   make(map[settled]bool),
		credits: make(map[credit]int64),
		leases:  make(map[entity]*leases),
		lost:    make(map[uint32]int64),
	}
}

// repeated is which of the batch's marks are not new.
func (m *model) repeated(f *storage.Batch) []int {
	return indices(f.Marks, func(k storage.Mark) bool { return k.Sequence <= m.marks[checker{f.Shard, k.Epoch}] })
}

// areSpent is which of the batch's settlements are not new.
func (m *model) areSpent(f *storage.Batch) []int {
	return indices(f.Settled, func(id storage.Settled) bool { return m.spent[settled{f.Shard, id}] })
}

func indices[T any](list []T, is func(T) bool) (found []int) {
	for i, v := range list {
		if is(v) {
			found = append(found, i)
		}
	}
	return found
}

func creditOf(f *storage.Batch, c *storage.Credit) credit {
	r := &f.Rules[c.Rule]
	return credit{entity{f.Shard, r.Name, r.Shape, r.Kind, ""}, c.Credential, c.Window}
}

// overdrawn is which of the batch's credits return more than there is.
func (m *model) overdrawn(f *storage.Batch) []storage.Overdrawn {
	var list []storage.Overdrawn
	for i := range f.Credits {
		c := &f.Credits[i]
		if left := m.credits[creditOf(f, c)]; c.Returned > left+c.Reported {
			list = append(list, storage.Overdrawn{Credit: i, Left: left})
		}
	}
	return list
}

// apply adds a batch that has only new marks and settlements, and is covered.
func (m *model) apply(f *storage.Batch) {
	for _, mark := range f.Marks {
		m.marks[checker{f.Shard, mark.Epoch}] = mark.Sequence
	}
	for i, t := range f.Ledger {
		l := m.ledger[f.Rules[i].Name]
		l.Counted, l.Late, l.Refused = l.Counted+t.Counted, l.Late+t.Late, l.Refused+t.Refused
		l.Refunded, l.Settled = l.Refunded+t.Refunded, l.Settled+t.Settled
		if l != (storage.RuleLedger{}) {
			m.ledger[f.Rules[i].Name] = l
		}
	}
	for _, id := range f.Settled {
		m.spent[settled{f.Shard, id}] = true
	}
	for i := range f.Credits {
		c := &f.Credits[i]
		at := creditOf(f, c)
		m.credits[at] = min(m.credits[at]+c.Reported-c.Returned, storage.MaxCredit)
	}
	for i := range f.Keys {
		e := entityOf(f, i)
		if m.counts[e] == nil {
			m.counts[e] = make(map[int64]int64)
		}
		for _, c := range f.Keys[i].Cells {
			m.counts[e][c.Bucket] += c.Count
		}
	}
}

func entityOf(f *storage.Batch, key int) entity {
	k := &f.Keys[key]
	r := &f.Rules[k.Rule]
	return entity{f.Shard, r.Name, r.Shape, r.Kind, k.Text}
}

// totals is what the answer has to say of a key: every total that is not 0 of a bucket that is live
// or asked for.
func (m *model) totals(f *storage.Batch, key int) map[int64]int64 {
	counts, want := m.counts[entityOf(f, key)], make(map[int64]int64)
	add := func(bucket int64) {
		if n := counts[bucket]; n > 0 {
			want[bucket] = n
		}
	}
	shape := f.Rules[f.Keys[key].Rule].Shape
	for age := range shape.Live() {
		add(shape.Bucket(f.Now) - int64(age))
	}
	for _, c := range f.Keys[key].Cells {
		add(c.Bucket)
	}
	return want
}

// level is what the answer has to say of the level of a key whose rule drains: all that ever came,
// less what was refunded of its bucket, drained bucket by bucket, in parts of a hit.
func (m *model) level(f *storage.Batch, key int) window.Level {
	r, e := &f.Rules[f.Keys[key].Rule], entityOf(f, key)
	hits := m.counts[e]
	e.kind = storage.Refunded
	back := m.counts[e]
	want := window.Level{Bucket: r.Shape.Bucket(f.Now) - int64(r.Shape.Live())}
	most := window.MaxCount * int64(r.Shape.Buckets)
	buckets := slices.Sorted(maps.Keys(hits))
	for i, bucket := range buckets {
		if bucket > want.Bucket {
			break
		}
		parts := min(max(hits[bucket]-back[bucket], 0)*int64(r.Shape.Buckets), most)
		want.Parts = min(want.Parts+parts, most)
		next := want.Bucket
		if i+1 < len(buckets) {
			next = min(next, buckets[i+1])
		}
		for ; bucket < next && want.Parts > 0; bucket++ {
			want.Parts = max(want.Parts-drainIn(r, bucket+1), 0)
		}
	}
	return want
}

// drainIn is how much drains in a bucket: what each limit drains in as many eighths of it as it is
// in force.
func drainIn(r *storage.Rule, bucket int64) (parts int64) {
	n := make(map[int64]int64) // eighths by limit
	for eighth := 8 * bucket; eighth < 8*(bucket+1); eighth++ {
		limit := r.Limit
		for _, past := range slices.Backward(r.Past) {
			if eighth < past.Until {
				limit = past.Limit
			}
		}
		n[limit]++
	}
	for limit, eighths := range n {
		parts += limit * eighths / 8
	}
	return parts
}

// draft is a batch in the making.
type draft struct{ storage.Batch }

// denied and refunded at the end of a name stand for other hits of a rule than its admitted ones.
const denied, refunded = " (denied)", " (refunded)"

func kindOf(name string) (string, storage.Kind) {
	if name, ok := strings.CutSuffix(name, denied); ok {
		return name, storage.Denied
	}
	if name, ok := strings.CutSuffix(name, refunded); ok {
		return name, storage.Refunded
	}
	return name, storage.Admitted
}

// rule returns the index of a rule in the batch.
func (d *draft) rule(name string, shape window.Shape) int {
	r := storage.Rule{Name: name, Shape: shape, Limit: 100, Burst: 40, Revision: 1}
	r.Name, r.Kind = kindOf(name)
	i := place(&d.Rules, r, isRule)
	if i == len(d.Ledger) {
		d.Ledger = append(d.Ledger, storage.Tally{})
	}
	return i
}

func isRule(a, b *storage.Rule) bool {
	return a.Name == b.Name && a.Shape == b.Shape && a.Kind == b.Kind
}

// place returns where v is in a list, to which it is added if it is not there.
func place[T any](list *[]T, v T, equal func(a, b *T) bool) int {
	for i := range *list {
		if equal(&(*list)[i], &v) {
			return i
		}
	}
	*list = append(*list, v)
	return len(*list) - 1
}

// mark makes the batch hold a report.
func (d *draft) mark(epoch, sequence uint64) *draft {
	d.Marks = append(d.Marks, storage.Mark{Epoch: epoch, Sequence: sequence})
	return d
}

// read makes the batch ask for a key.
func (d *draft) read(name string, shape window.Shape, key string) *storage.Key {
	rule := d.rule(name, shape)
	i := place(&d.Keys, storage.Key{Rule: rule, Text: key}, func(a, b *storage.Key) bool { return a.Rule == b.Rule && a.Text == b.Text })
	return &d.Keys[i]
}

// add makes the batch add n hits to the bucket that is age buckets old.
func (d *draft) add(name string, shape window.Shape, key string, age, n int64) *draft {
	k := d.read(name, shape, key)
	bucket := shape.Bucket(d.Now) - age
	d.Ledger[k.Rule].Counted += n
	i, found := slices.BinarySearchFunc(k.Cells, bucket, func(c storage.Cell, b int64) int { return int(c.Bucket - b) })
	if !found {
		k.Cells = slices.Insert(k.Cells, i, storage.Cell{Bucket: bucket})
	}
	k.Cells[i].Count += n
	return d
}

var (
	// A store with a clock forgets what has expired by it, so windows are much longer than a test
	// takes.
	inTwo     = window.Shape{Length: time.Minute, Buckets: 2}
	perMinute = window.Shape{Length: time.Minute, Buckets: 1}
	inMinutes = window.Shape{Length: time.Hour, Buckets: 60}
	fixed     = window.Shape{Length: time.Minute, Buckets: 1, Fixed: true}
	log       = window.Shape{Length: time.Minute, Buckets: 100, Kind: window.Log}
	tokens    = window.Shape{Length: time.Minute, Buckets: 60, Kind: window.Token}
	queue     = window.Shape{Length: 10 * time.Minute, Buckets: 50, Kind: window.Leaky}
	coarse    = window.Shape{Length: time.Minute, Buckets: 1, Kind: window.Token}
	shapes    = map[string]window.Shape{
		"one": perMinute, "many": inMinutes, "fixed": fixed, "log": log, "tokens": tokens, "queue": queue, "coarse": coarse,
	}
)
