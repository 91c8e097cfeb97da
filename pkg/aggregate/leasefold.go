package aggregate

import (
	"cmp"
	"slices"

	"github.com/offpath-io/offpath/pkg/events"
)

// maxLeaseFold bounds the asks of one key in one fold: so many wishes of events.MaxCount can be added up.
const maxLeaseFold = 1 << 14

// leaseRequest is a lease request that waits for its answer.
type leaseRequest struct {
	waiting
	m *events.LeaseRequest

	places []place // by key of the request, where it is in the fold
}

// place is where a fold has a checker's ask.
type place struct{ key, ask int }

// leaseFolder folds lease requests, and keeps its memory for the next fold. One goroutine uses it at a
// time.
type leaseFolder struct {
	tolerance int64 // how far in the future a bucket may start, in ns

	fold  LeaseFold
	rules map[ruleID]int
	keys  map[leaseID]int
}

type leaseID struct {
	rule int
	text string
}

func newLeaseFolder(tolerance int64) leaseFolder {
	return leaseFolder{tolerance: tolerance, rules: make(map[ruleID]int), keys: make(map[leaseID]int)}
}

// make folds requests of different checkers, all of one shard, at the fleet's time now, and sorts them:
// what a store cannot share out evenly goes to the first, who must not be the same again and again. The
// result is valid until the next call; so is what the requests are told about it.
func (f *leaseFolder) make(shard uint32, requests []*leaseRequest, seen State, now int64) *LeaseFold {
	f.fold = LeaseFold{Shard: shard, Now: now, Seen: seen, Rules: f.fold.Rules[:0], Keys: f.fold.Keys[:0]}
	clear(f.rules)
	clear(f.keys)
	slices.SortFunc(requests, func(a, b *leaseRequest) int {
		return cmp.Compare(mix(a.epoch, now), mix(b.epoch, now))
	})
	var rules []int
	for _, r := range requests {
		rules = f.addRules(rules[:0], r.m.GetKeys().GetRules())
		f.addKeys(r, rules)
	}
	return &f.fold
}

// mix makes another number of a checker's at each time, as SplitMix64 does.
func mix(epoch uint64, now int64) uint64 {
	h := epoch + uint64(now)*0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// addRules appends to dst the indices of a request's rules among the fold's.
func (f *leaseFolder) addRules(dst []int, rules []*events.Rule) []int {
	for _, wire := range rules {
		id := ruleID{name: wire.GetName(), shape: shapeOf(wire)}
		limit, revision := int64(wire.GetLimit()), wire.GetRevision()
		rule, ok := f.rules[id]
		if !ok {
			rule = len(f.fold.Rules)
			f.rules[id] = rule
			f.fold.Rules = append(f.fold.Rules, Rule{Name: id.name, Shape: id.shape, Limit: limit, Revision: revision})
		}
		f.fold.Rules[rule].learn(limit, 0, revision)
		dst = append(dst, rule)
	}
	return dst
}

// addKeys adds what a request asks of each of its keys. Of a key that it names twice, only the first
// counts.
func (f *leaseFolder) addKeys(r *leaseRequest, rules []int) {
	table := r.m.GetKeys()
	text := string(table.GetKeyText()) // one copy, of which the fold's keys are parts
	ages, values := table.GetAge(), table.GetValue()
	r.places = r.places[:0]
	for i, length := range table.GetKeyLength() {
		newest := table.Rules[table.KeyRule[i]].GetNewest()
		key := f.find(rules[table.KeyRule[i]], text[:length])
		text = text[length:]
		cells := table.KeyCells[i]
		asks := &f.fold.Keys[key].Asks
		if n := len(*asks); n == 0 || (*asks)[n-1].Epoch != r.epoch {
			a := Ask{Epoch: r.epoch, Bucket: newest - r.m.Age[i], Known: int64(r.m.Known[i]), Want: int64(r.m.Want[i])}
			a.Returns = f.returns(f.fold.Keys[key].Rule, newest, ages[:cells], values[:cells])
			*asks = append(*asks, a)
		}
		r.places = append(r.places, place{key, len(*asks) - 1})
		ages, values = ages[cells:], values[cells:]
	}
}

// returns are those of a key's returns that a store could do anything with.
func (f *leaseFolder) returns(rule int, newest int64, ages []int64, values []uint64) []Cell {
	var cells []Cell
	s := f.fold.Rules[rule].Shape
	for i, age := range ages {
		if bucket := newest - age; !s.Gone(bucket, f.fold.Now) && bucket <= s.Bucket(f.fold.Now+f.tolerance) && values[i] > 0 {
			cells = append(cells, Cell{Bucket: bucket, Count: int64(values[i])})
		}
	}
	return cells
}

// find returns the index of a key in the fold; a new key gets the next one.
func (f *leaseFolder) find(rule int, text string) int {
	id := leaseID{rule, text}
	key, ok := f.keys[id]
	if !ok {
		key = len(f.fold.Keys)
		f.keys[id] = key
		f.fold.Keys = append(f.fold.Keys, LeaseKey{Rule: rule, Text: text})
	}
	return key
}
