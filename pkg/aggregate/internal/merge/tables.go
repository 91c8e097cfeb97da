// Package merge merges the requests of many checkers into one call of the store, and turns the
// store's answer into one answer per request. It merges reports ([Reports]) and lease requests
// ([Leases]) the same way: each rule and each key once, in the order in which they came.
package merge

import (
	"hash/maphash"
	"slices"

	"github.com/offpath-io/offpath/pkg/aggregate/internal/wire"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/events"
)

// rules are the rules of a batch, each identity once.
type rules struct {
	list []storage.Rule
	byID map[storage.RuleID]int32
}

func newRules() rules { return rules{byID: make(map[storage.RuleID]int32)} }

func (r *rules) reset() {
	r.list = r.list[:0]
	clear(r.byID)
}

// add returns the index of a rule; a new one gets the next one.
func (r *rules) add(m *events.Rule, kind storage.Kind) int32 {
	id := storage.RuleID{Name: m.GetName(), Shape: wire.Shape(m), Kind: kind}
	limit, burst, revision := int64(m.GetLimit()), int64(m.GetBurst()), m.GetRevision()
	rule, ok := r.byID[id]
	if !ok {
		rule = int32(len(r.list))
		r.byID[id] = rule
		r.list = append(r.list, storage.Rule{
			Name: id.Name, Shape: id.Shape, Kind: kind,
			Limit: limit, Burst: burst, Revision: revision,
		})
	}
	r.list[rule].Learn(limit, burst, revision)
	r.list[rule].Loose = r.list[rule].Loose || m.GetLoose()
	return rule
}

// keys are the keys of a batch, numbered in the order in which they came.
//
// With this table, merging and answering take 40 ns per key (BenchmarkReports); with a Go map of
// hash to index in its place they took 53, and of struct{rule, text} to index 95.
type keys struct {
	seed  maphash.Seed
	list  []hashed
	table []int32 // open addressing: hash to index in the list, plus 1
}

type hashed struct {
	hash uint64
	rule int32
	text string
}

func newKeys() keys { return keys{seed: maphash.MakeSeed()} }

// reset makes room for at most so many keys.
func (k *keys) reset(most int) {
	clear(k.list)
	k.list = k.list[:0]
	size := 64
	for size < 2*most {
		size *= 2
	}
	k.table = slices.Grow(k.table[:0], size)[:size]
	clear(k.table)
}

// find returns the index of a key; a new one gets the next one.
func (k *keys) find(rule int32, text string) (index int32, isNew bool) {
	hash := maphash.String(k.seed, text) + uint64(rule)*0x9e3779b97f4a7c15
	mask := uint64(len(k.table) - 1)
	slot := hash & mask
	for ; k.table[slot] != 0; slot = (slot + 1) & mask {
		index = k.table[slot] - 1
		if at := &k.list[index]; at.hash == hash && at.rule == rule && at.text == text {
			return index, false
		}
	}
	k.list = append(k.list, hashed{hash, rule, text})
	k.table[slot] = int32(len(k.list))
	return k.table[slot] - 1, true
}
