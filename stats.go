package offpath

import "github.com/offpath-io/offpath/pkg/check"

// Stats say how a participant is.
type Stats struct {
	// Checker is the checker's; zero while there is none.
	Checker check.Stats
	// ByLabel sums Checker.Rules by labels for metrics: at most 200 rules have one of their own,
	// the others are "other", and those no longer in force "removed". No counter goes backwards.
	ByLabel map[string]check.RuleStats
	Rules   RulesState
	Blocks  BlocksState
	// RulesCache and BlocksCache are what Options.CacheDir has; nil if it has none.
	RulesCache, BlocksCache *CacheState
}

// Stats returns a snapshot.
func (m *Participant) Stats() Stats {
	s := Stats{
		Rules: m.rules.now(), Blocks: m.blocks.state(),
		RulesCache: m.caches.rules.now(), BlocksCache: m.caches.blocks.now(),
	}
	s.Checker, s.ByLabel = m.labels.sums(m.rules.stats)
	return s
}
