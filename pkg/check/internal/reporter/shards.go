package reporter

// follow takes in the generation of a shard that a message speaks of. It returns false if a later
// one is known: the message's totals are of a store that has since lost data. But if the message
// answers what was sent when that later one was known already, the store itself has gone back, and
// no aggregator remembers: then its totals count from now on. Of what answers nothing, known is 0.
func (b *Reporter) follow(s *shard, generation, known uint64) bool {
	switch {
	case generation == s.generation:
		return true
	case generation < s.generation && known < s.generation:
		return false
	case s.generation != 0:
		b.enterState(s)
	}
	s.generation = generation
	return true
}

// enterState lets the bases of the shard's counters count no longer.
func (b *Reporter) enterState(s *shard) {
	b.states++
	s.state = b.states
}
