package ruleset

import (
	"maps"
	"slices"
	"time"
)

// Blocks are the ends of blocks in Unix nanoseconds, by rule, and by key as counters have it. They
// never change: another set takes their place. Rules without any have none in their limits, and do
// not look; so checks pay nothing for what is not there.
type Blocks map[string]map[string]int64

// Add adds a block, before they are in force. Of two of the same key the later end holds.
func (b Blocks) Add(rule, key string, until time.Time) {
	of := b[rule]
	if of == nil {
		of = make(map[string]int64)
		b[rule] = of
	}
	of[key] = max(of[key], until.UnixNano())
}

// addBlocks completes an entry's limits, which nobody uses yet.
func (e *Entry) addBlocks(all Blocks, hashes bool) {
	t := e.Limits
	t.Blocks = all[t.Name]
	t.plain = t.Clauses == nil && !hashes && t.Blocks == nil
}

// WithBlocks returns the ruleset with other blocks, nil if it has the same already. Its limiters
// decide by them at once.
func (p *Compiled) WithBlocks(all Blocks, hashes bool) *Compiled {
	next := *p
	next.Entries = slices.Clone(p.Entries)
	changed := false
	for i := range next.Entries {
		e := &next.Entries[i]
		if maps.Equal(e.Limits.Blocks, all[e.Limits.Name]) {
			continue
		}
		t := *e.Limits // with the same stamp: what is left in counters is for keys that are not blocked
		e.Limits, changed = &t, true
		e.addBlocks(all, hashes)
	}
	if !changed {
		return nil
	}
	for i := range next.Entries {
		next.Entries[i].Limiter.SetLimits(next.Entries[i].Limits)
	}
	return &next
}
