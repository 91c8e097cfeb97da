package rules

import (
	"time"

	"github.com/offpath-io/offpath/pkg/window"
)

// validateAlgorithm refuses what the algorithm has no use for.
func (r *Rule) validateAlgorithm() faults {
	switch {
	case r.Window.Fixed != (r.Algorithm == FixedWindow):
		return faultf("%v has no fixed window", r.Algorithm).in("algorithm")
	case r.Window.Kind != r.Algorithm.kind():
		return faultf("%v has no window of kind %d", r.Algorithm, r.Window.Kind).in("algorithm")
	case r.Algorithm == LeakyBucket && r.Count == All:
		return faultf("all: a hit that a leaky_bucket denies does not wait in its queue, so " +
			"there is nothing to count: want admitted").in("count")
	}
	return nil
}

// validateStrict refuses what permits cannot promise.
func (r *Rule) validateStrict() faults {
	if r.Enforcement != Strict {
		return nil
	}
	bad := map[Algorithm]string{
		SlidingLog:  "a sliding_log counts whole buckets that have partly left",
		TokenBucket: "token_bucket has tokens that belong to no bucket",
		LeakyBucket: "leaky_bucket grants turns already",
	}
	switch why := bad[r.Algorithm]; {
	case r.OnOutage != Closed:
		return faultf("%s lets requests pass without a permit, and under strict enforcement none "+
			"may: want closed", r.OnOutage).in("on_outage")
	case why != "":
		return faultf("strict enforcement grants permits per bucket beforehand, and %s: want "+
			"sliding_window or fixed_window", why).in("enforcement")
	case r.Count == All:
		return faultf("all: denied hits have no permit, so they cannot count under strict " +
			"enforcement: want admitted, or enforcement: async").in("count")
	}
	return nil
}

func (t *Throttle) validate() (all faults) {
	if t.Kind != Soft && t.Exceed != 0 {
		all = faultf("throttle is %v: leave this out, or write throttle: soft", t.Kind).in("soft")
	}
	if t.Kind != Elastic && (t.UpTo != 0 || t.While != "" || t.Below != 0) {
		all.add(path{"elastic"}, "throttle is %v: leave this out, or write throttle: elastic", t.Kind)
	}
	if t.Kind == Soft && !(t.Exceed > 0 && t.Exceed <= 10) { // so that NaN is refused too
		all.add(path{"soft", "exceed"}, "%s: want more than 0%%, at most 1000%%", given(t.Exceed))
	}
	if t.Kind != Elastic {
		return all
	}
	if !(t.UpTo > 1 && t.UpTo <= 100) {
		all.add(path{"elastic", "up_to"}, "%s: want more than 100%%, at most 10000%%",
			given(t.UpTo))
	}
	if t.While == "" {
		all.add(path{"elastic", "while", "rule"}, "is missing: want the rule that says whether "+
			"there is room")
	}
	if !(t.Below > 0 && t.Below <= 1) {
		all.add(path{"elastic", "while", "below"}, "%s: want more than 0%%, at most 100%%",
			given(t.Below))
	}
	return all
}

const (
	maxWait  = time.Hour
	maxDepth = 1_000_000
)

func (o *OnLimit) validate(algorithm Algorithm) faults {
	switch {
	case !o.Queue && o.MaxWait != 0:
		return faultf("nobody waits: leave this out, or write on_limit: queue").in("max_wait")
	case !o.Queue && o.MaxDepth != 0:
		return faultf("nobody waits: leave this out, or write on_limit: queue").in("max_depth")
	case !o.Queue:
		return nil
	case o.MaxWait == 0:
		return faultf("queue: write max_wait: 200ms beside it, or how long else a caller may wait").in("on_limit")
	case o.MaxWait < 0 || o.MaxWait > maxWait || o.MaxWait%time.Millisecond != 0:
		return faultf("%v: want whole milliseconds, more than 0, at most %v", o.MaxWait, maxWait).
			in("max_wait")
	case algorithm == LeakyBucket && o.MaxDepth != 0:
		return faultf("how many wait for a leaky_bucket is its burst: leave this out, and write burst").in("max_depth")
	case algorithm != LeakyBucket && (o.MaxDepth < 1 || o.MaxDepth > maxDepth):
		return faultf("%d: want 1 to %d", o.MaxDepth, maxDepth).in("max_depth")
	}
	return nil
}

// validateMost refuses limits that grow beyond what can be counted.
func (r *Rule) validateMost() (all faults) {
	const most = window.MaxCount
	factor := max(1+r.Throttle.Exceed, r.Throttle.UpTo)
	if n := times(r.Limit, factor); n > most {
		return faultf("%d hits, with all that throttle adds: want at most %d", n, most).in("limit")
	}
	if r.Unlimited {
		return nil
	}
	for i := range r.Overrides {
		terms := r.Terms(i)
		if n := max(times(terms.Limit, factor), terms.Burst); n > most {
			all.add(path{"overrides", i, "limit"}, "%d, with all that adds to it: want at most %d",
				n, most)
		} else if terms.Limit < 1 || r.hasBurst() && terms.Burst < 1 {
			all.add(path{"overrides", i, "limit"}, "%gx leaves less than one hit: "+
				"want a greater factor, or blocked", r.Overrides[i].Factor)
		}
	}
	return all
}
