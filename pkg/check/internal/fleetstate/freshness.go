package fleetstate

import (
	"sync/atomic"

	"github.com/offpath-io/offpath/pkg/events"
)

// Freshness says how current a checker's knowledge of a shard is, from best to worst but for Local.
type Freshness uint8

const (
	// Local: no aggregator has ever been heard. Own hits alone decide.
	Local Freshness = iota
	// Fresh: nothing of the shard has waited long for an answer.
	Fresh
	// Stale: a report or lease request has waited for its answer for a while, or no aggregator has
	// been heard for as long. The forecast fades.
	Stale
	// LocalShare: the same for longer. Each checker keeps to its share of every limit.
	LocalShare
	// Outage: the same for very long. Rules decide by their OnOutage.
	Outage
)

// String returns the freshness in lower case.
func (f Freshness) String() string {
	switch f {
	case Fresh:
		return "fresh"
	case Stale:
		return "stale"
	case LocalShare:
		return "local_share"
	case Outage:
		return "outage"
	}
	return "local"
}

// differ is the bit of State.worst that says that not all keys have this freshness: nearly always
// they do, and a check reads one word.
const differ = 1 << 7

// SetShards sets the number of shards, and the freshness of all of them. Before it is known, all
// keys are of one shard. One goroutine at a time calls this and the other methods that set a
// freshness.
func (s *State) SetShards(n int, f Freshness) {
	list := make([]atomic.Uint32, n)
	for i := range list {
		list[i].Store(uint32(f))
	}
	s.levels.Store(&list)
	s.count = [Outage + 1]int{}
	s.count[f] = n
	s.summarize()
}

// SetFreshness sets the freshness of a shard.
func (s *State) SetFreshness(shard int, f Freshness) {
	old := (*s.levels.Load())[shard].Swap(uint32(f))
	if old == uint32(f) {
		return
	}
	s.count[old]--
	s.count[f]++
	s.summarize()
}

// Refused is a rule in a shard where its reports are refused.
type Refused struct {
	Rule  string
	Shard uint32
}

// SetRefused sets the freshness of rules whose keys are less fresh than their shards; nil if there
// are none.
func (s *State) SetRefused(rules map[Refused]Freshness) {
	switch {
	case rules != nil:
		s.refused.Store(&rules)
	case s.refused.Swap(nil) == nil:
		return
	}
	s.summarize()
}

// summarize sets the word that checks read: after the lists, at which a check looks if keys differ.
func (s *State) summarize() {
	worst, levels := Local, 0
	for f, n := range s.count {
		if n > 0 {
			worst = Freshness(f)
			levels++
		}
	}
	word := uint32(worst)
	if levels > 1 || s.refused.Load() != nil {
		word |= differ
	}
	s.worst.Store(word)
}

// Freshness returns the worst freshness of all shards.
func (s *State) Freshness() Freshness { return Freshness(s.worst.Load() &^ differ) }

// FreshnessOf returns the freshness of the shard of a rule's key. It is small enough to be inlined.
func (s *State) FreshnessOf(rule, key string) (f Freshness) {
	if f = Freshness(s.worst.Load()); f >= differ {
		f = s.lookUpFreshness(rule, key)
	}
	return
}

// lookUpFreshness is FreshnessOf if keys differ.
//
//go:noinline
func (s *State) lookUpFreshness(rule, key string) Freshness {
	list := *s.levels.Load()
	shard := events.Shard(rule, key, uint32(len(list)))
	f := Freshness(list[shard].Load())
	if refused := s.refused.Load(); refused != nil {
		f = max(f, (*refused)[Refused{rule, shard}])
	}
	return f
}

// ByFreshness returns how many shards have each freshness.
func (s *State) ByFreshness() map[Freshness]int {
	n := make(map[Freshness]int)
	list := *s.levels.Load()
	for i := range list {
		n[Freshness(list[i].Load())]++
	}
	return n
}
