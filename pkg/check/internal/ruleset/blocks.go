package ruleset

import (
	"maps"
	"slices"
	"time"
)

// Blocks are the ends of blocks in Unix nanoseconds, by rule, and by key as counters have it. They
// never change: new Blocks replace them. Limits of rules without blocks have a nil map, so that
// their checks do not look for blocks.
type Blocks map[string]map[string]int64

// Add adds a block. It must not be called once the Blocks are in force. Of two blocks of a key, the
// later end is used.
func (b Blocks) Add(rule, key string, until time.Time) {
	of := b[rule]
	if of == nil {
		of = make(map[string]int64)
		b[rule] = of
	}
	of[key] = max(of[key], until.UnixNano())
}

// addBlocks adds blocks to an entry's limits, which are not in use yet.
func (e *Entry) addBlocks(all Blocks, hashes bool) {
	t := e.Limits
	t.Blocks = all[t.Name]
	t.plain = t.Clauses == nil && !hashes && t.Blocks == nil
}

// WithBlocks returns the ruleset with other blocks, by which its limiters decide at once; nil if it
// has the same blocks already.
func (p *Compiled) WithBlocks(all Blocks, hashes bool) *Compiled {
	next := *p
	next.Entries = slices.Clone(p.Entries)
	changed := false
	for i := range next.Entries {
		e := &next.Entries[i]
		if maps.Equal(e.Limits.Blocks, all[e.Limits.Name]) {
			continue
		}
		t := *e.Limits // with the same stamp: allowances in counters stay valid for keys that are not blocked
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
