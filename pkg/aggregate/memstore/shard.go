package memstore

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/window"
)

// markLife is how long a mark is kept after its checker's last report.
const markLife = int64(24 * time.Hour)

// sweepEvery is how often marks and whole rules that have expired are looked for.
const sweepEvery = int64(time.Minute)

// shard is one shard and its lock.
type shard struct {
	mu sync.Mutex
	data
}

// data is what a shard holds.
type data struct {
	state   storage.State
	marks   map[uint64]mark // by epoch
	spent   map[numbers]*spent
	chunks  map[uint32]chunks // by sender of settlements
	ledger  map[string]storage.RuleLedger
	rules   map[storage.RuleID]*counters
	leases  map[storage.RuleID]*leases
	lost    int64 // when a generation last began because data had been lost, 0 for never
	loss    storage.Loss
	swept   int64 // the fleet's time
	credits map[storage.CreditID]credit
}

type mark struct {
	sequence uint64
	expires  int64
}

func newShard() *shard {
	return &shard{data: data{
		marks:   make(map[uint64]mark),
		spent:   make(map[numbers]*spent),
		chunks:  make(map[uint32]chunks),
		ledger:  make(map[string]storage.RuleLedger),
		rules:   make(map[storage.RuleID]*counters),
		leases:  make(map[storage.RuleID]*leases),
		credits: make(map[storage.CreditID]credit),
	}}
}

func (s *shard) apply(batch *storage.Batch) storage.Applied {
	s.mu.Lock()
	defer s.mu.Unlock()
	repeated, spent, overdrawn := s.repeated(batch), s.areSpent(batch), s.overdrawn(batch)
	chunks, tooMany := s.countChunks(batch)
	if len(repeated)+len(spent)+len(overdrawn)+len(tooMany) > 0 {
		return storage.Applied{
			Repeated: repeated, Spent: spent, SettledOverflow: tooMany, Overdrawn: overdrawn,
		}
	}
	maps.Copy(s.chunks, chunks)
	s.advance(batch.Seen, batch.Now)
	if len(batch.Marks) > 0 {
		s.state.Version++
	}
	for _, m := range batch.Marks {
		s.marks[m.Epoch] = mark{m.Sequence, batch.Now + markLife}
	}
	s.spend(batch)
	s.addCredits(batch)
	rules := make([]*counters, len(batch.Rules))
	for i := range batch.Rules {
		rules[i] = s.rule(&batch.Rules[i], batch.Now)
		s.record(batch.Rules[i].Name, batch.Ledger[i])
	}
	totals, levels := make([][]storage.Cell, len(batch.Keys)), levelsFor(batch)
	room := make([]storage.Cell, 0, 2*len(batch.Keys))
	for i := range batch.Keys {
		key := &batch.Keys[i]
		r, c := &batch.Rules[key.Rule], rules[key.Rule]
		from := len(room)
		room = c.add(r, key, batch.Now, room)
		totals[i] = room[from:len(room):len(room)]
		if r.Drains() {
			levels[i], totals[i] = c.levelOf(r, key.Text, totals[i], batch.Now)
		}
	}
	s.sweep(batch.Now)
	return storage.Applied{State: s.state, Loss: s.loss, Totals: totals, Levels: levels}
}

// levelsFor makes room for the levels of the batch's keys, if there are any.
func levelsFor(batch *storage.Batch) []window.Level {
	if slices.ContainsFunc(batch.Rules, func(r storage.Rule) bool { return r.Drains() }) {
		return make([]window.Level, len(batch.Keys))
	}
	return nil
}

// repeated returns the indices of the batch's marks that are not new.
func (s *shard) repeated(batch *storage.Batch) []int {
	var repeated []int
	for i, m := range batch.Marks {
		if old, ok := s.marks[m.Epoch]; ok && m.Sequence <= old.sequence && batch.Now < old.expires {
			repeated = append(repeated, i)
		}
	}
	return repeated
}

// advance starts a new generation if the shard has none, or is behind a state that was seen before.
func (s *shard) advance(seen storage.State, now int64) {
	if s.state.Generation != 0 && !s.state.Less(seen) {
		return
	}
	if seen.Generation > 0 { // the shard has lost data
		s.lost, s.loss = now, storage.Loss{Remembered: seen, Found: s.state}
	}
	s.state = storage.State{Generation: max(uint64(max(now/1000, 1)), seen.Generation+1)}
}

func (s *shard) rule(r *storage.Rule, now int64) *counters {
	id := r.ID()
	if r.BesideLevel() {
		id.Kind = storage.Admitted
	}
	c := s.rules[id]
	if c == nil {
		c = &counters{shape: r.Shape}
		s.rules[id] = c
	}
	c.rotate(now)
	return c
}

func (s *shard) record(rule string, t storage.Tally) {
	l := s.ledger[rule]
	l.Add(t)
	if l != (storage.RuleLedger{}) {
		s.ledger[rule] = l
	}
}

func (s *shard) addLedger(sum storage.Ledger) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for rule, l := range s.ledger {
		all := sum[rule]
		all.Add(storage.Tally{
			Counted: l.Counted, Late: l.Late, Refused: l.Refused,
			Refunded: l.Refunded, Settled: l.Settled,
		})
		sum[rule] = all
	}
}

// sweep drops expired marks, and rules that are no longer used.
func (s *shard) sweep(now int64) {
	if now-s.swept < sweepEvery {
		return
	}
	s.swept = now
	maps.DeleteFunc(s.marks, func(_ uint64, m mark) bool { return now >= m.expires })
	maps.DeleteFunc(s.spent, func(_ numbers, p *spent) bool { return now >= p.expires })
	maps.DeleteFunc(s.chunks, func(_ uint32, c chunks) bool { return now >= c.expires })
	maps.DeleteFunc(s.credits, func(_ storage.CreditID, c credit) bool { return now >= c.expires })
	maps.DeleteFunc(s.rules, func(_ storage.RuleID, c *counters) bool {
		c.rotate(now)
		return c.expired(now)
	})
	maps.DeleteFunc(s.leases, func(_ storage.RuleID, l *leases) bool {
		l.rotate(now)
		return l.expired(now)
	})
}

func (s *shard) clone() *shard {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.data
	c.marks, c.ledger = maps.Clone(s.marks), maps.Clone(s.ledger)
	c.credits, c.chunks = maps.Clone(s.credits), maps.Clone(s.chunks)
	c.spent = cloneAll(s.spent, func(p *spent) *spent { return new(*p) })
	c.rules = cloneAll(s.rules, (*counters).clone)
	c.leases = cloneAll(s.leases, (*leases).clone)
	return &shard{data: c}
}

// cloneAll copies a map with its values.
func cloneAll[K comparable, V any](from map[K]*V, one func(*V) *V) map[K]*V {
	to := make(map[K]*V, len(from))
	for key, v := range from {
		to[key] = one(v)
	}
	return to
}
