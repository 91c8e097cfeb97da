package checker

import (
	"github.com/offpath-io/offpath"
)

func (c collector) rules(s offpath.RulesState) {
	c.gauge("rules", "Rules in force.", float64(s.Rules))
	c.gauge("rules_revision", "Revision of the rules in force: the bucket's, "+
		"or the file's time in Unix milliseconds. 0 while there are none.", float64(s.Revision))
	if s.InForce() {
		c.gauge("rules_loaded_timestamp_seconds",
			"When the rules in force were loaded, as Unix time. Absent while there are none.",
			float64(s.Loaded.UnixMilli())/1000)
	}
	c.outcomes("rules_loads_total", "Sets of rules that the source had, by outcome.",
		outcomes{"loaded": s.Loads, "refused": s.Refusals})
	c.gauge("rules_refused", "1 while the newest rules are refused, and those before, if any, "+
		"are in force; else 0.", oneIf(s.Refused != nil))
	c.gauge("rules_source_up", "1 while the rules' file or bucket can be read, else 0.",
		oneIf(s.Trouble == nil))
}

func (c collector) blocks(s offpath.BlocksState) {
	c.gauge("blocked_keys", "Keys that are blocked.", float64(s.Keys))
	c.gauge("blocks_source_up", "1 while the bucket of blocks can be read, else 0.", oneIf(s.Up))
}

var (
	cacheSavedDesc = describe("cache_saved_timestamp_seconds",
		"When the values of the bucket were written to --cache-dir, as Unix time. 0 for never.",
		"bucket")
	cacheFailuresDesc = describe("cache_failures_total",
		"Failures to read, write or verify the values of the bucket in --cache-dir.", "bucket")
)

// caches sends the metrics of the caches, with which a checker starts while NATS is away; nil for
// a cache that is not kept.
func (c collector) caches(rules, blocks *offpath.CacheState) {
	revision := uint64(0)
	if rules != nil {
		revision = rules.Revision
		c.cache("rules", rules)
	}
	if blocks != nil {
		c.cache("entries", blocks)
		c.gauge("cache_rules_revision",
			"Revision of the rules in --cache-dir. 0 while there are none.", float64(revision))
	}
}

func (c collector) cache(bucket string, s *offpath.CacheState) {
	c.gaugeOf(cacheSavedDesc, max(float64(s.Saved.UnixMilli())/1000, 0), bucket)
	c.countOf(cacheFailuresDesc, s.Failures, bucket)
}
