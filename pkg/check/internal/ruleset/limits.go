// Package ruleset holds compiled rules, ready for decisions.
//
// [Compile] makes a [Compiled] of a set of rules: an [Entry] for each rule, and for each override
// with a limit of its own. An entry has a [Limiter], which owns the counters of the rule and
// outlives changes of the set, and the [Limits] that it decides by while this set is in force.
// [Blocks] keep single keys out; [InlineLimits] are limits that requests bring along, which belong
// to no set.
//
// A set in force never changes, so checks read all of it without a lock.
package ruleset

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// Limits are what a limiter decides by while one set of rules is in force. They never change: a new
// set brings new limits. A decision reads them once, at its beginning, and passes them on, so it
// never mixes two sets. An allowance or a block that it leaves in a counter has the stamp of its
// limits, so that decisions by other limits do not use it. So a change of rules takes effect at
// once, in every counter, without a lock in a check: the walk over the counters that follows only
// cleans up.
type Limits struct {
	Shown   int64 // Decision.Limit: how many hits there is room for at once, as Capacity
	Name    string
	fill    time.Duration // how long a token or leaky bucket takes to drain when it is full, else 0
	Clauses *clauses      // nil if the limit is all that the rule says
	Rule    *rules.Rule
	plain   bool // a hit is decided by the limit alone, with the key as it is
	// The first cache line ends after Stamp, the first field of counter.Limits: a check that passes
	// without the lock reads nothing after it.
	counter.Limits

	Full   *Limits          // of a class with a share of the limit: the limits of classes with all of it; else nil
	Blocks map[string]int64 // when blocks end, by key; nil if there are none
}

func newLimits(r *rules.Rule, revision uint64) *Limits {
	t := &Limits{
		Shown: r.Capacity(), Name: r.Name, Rule: r, Limits: counter.Limits{Limit: r.Limit, Capacity: r.Capacity(), Wire: r.WireLimit(-1), OnOutage: r.OnOutage, Revision: revision,
			Burst: r.Burst, Loose: r.Loose() || isInline(r.Name)},
	}
	if r.Window.Drains() {
		t.Drain = r.Drain()
		t.fill = t.drainsIn(r.Burst)
	}
	return t
}

// scale multiplies the capacity. The rate at which a token or leaky bucket drains stays the same.
func (t *Limits) scale(by float64) {
	t.Capacity = rules.Part(t.Capacity, by)
	t.Shown = t.Capacity
	if t.Rule.Window.Drains() {
		t.Drain.Burst = t.Capacity
		t.fill = max(t.fill, t.drainsIn(t.Capacity)) // a class's share may be full of others' hits
	} else {
		t.Limit = t.Capacity
	}
}

// drainsIn returns how long this many hits take to drain, at most.
func (t *Limits) drainsIn(hits int64) time.Duration {
	shape := t.Rule.Window
	span := float64(hits) / float64(t.Limit) * float64(shape.Length)
	return time.Duration(min(span, float64(window.MaxLength))) + shape.BucketSize()
}

// next returns the limits that replace these, from a time of the fleet on.
func (t *Limits) next(r *rules.Rule, revision uint64, at int64) *Limits {
	n := newLimits(r, revision)
	if r.Window.Drains() {
		n.Drain.Past = t.Drain.After(r.Limit, at)
	}
	n.Stamp = t.Stamp
	if t.Rule != r && !t.Rule.Equal(r) {
		n.Stamp = (t.Stamp + counter.OneStamp) & counter.StampMask
	}
	return n
}

func ruleIDOf(r *rules.Rule, h *counter.Host) counter.ID {
	return counter.ID{Name: r.Name, Shape: r.Window, Strict: isStrict(r, h)}
}

// isStrict returns whether a rule's limiter spends permits. Without a link it needs none: its
// counts have all hits.
func isStrict(r *rules.Rule, h *counter.Host) bool {
	return r.Enforcement == rules.Strict && !h.Config.Local
}

// clauses are the parts of a rule, beyond its limit, that change decisions: hits that may pass
// beyond the limit, classes that have only a share of it, whether denials are only shown, and
// whether denied hits count. Limiters of rules without clauses skip all of this.
//
// Clauses that depend on the request have Limits of their own, which are made in advance: higher
// ones while an elastic rule has room elsewhere, and lower ones for a class with a share. All have
// the rule's stamp, and so share its allowances. An allowance only has hits that fit the limit
// itself, and only a class with all of the limit leaves one.
type clauses struct {
	Plain   *Limits            // the limit itself
	Shadow  bool               // never denies
	All     bool               // denied hits count, too
	Elastic *elastic           // nil unless it is
	classes map[string]*Limits // by class, of those with a share below 1
	other   *Limits            // of all other classes; nil if they have all of the limit
}

// elastic says where to look for room, and which limits hold if there is some.
type elastic struct {
	Roomy *Limits
	Below float64
	While *Entry
}

// Entry is one rule of a ruleset.
type Entry struct {
	Limiter   *Limiter
	Limits    *Limits
	Rule      *rules.Rule // the limits'
	Bare      bool        // nothing in the rule depends on the request, except its key
	KeyNumber int         // rules with the same number make the same key of a request
	Overrides []*Entry    // by override, those with a limit of their own; else nil
}

// Limiter has the counters of one rule, and the limits that it decides by at present.
type Limiter struct {
	// The fields that a check without the lock reads are together, and apart from fields that are
	// written meanwhile.
	Current atomic.Pointer[Limits] // what it decides by at present
	after   time.Duration          // how long after its end a bucket still counts
	Hashes  bool                   // keys are hashed
	Group   counter.Group

	Owner    any          // the check.Limiter that contains it; nil for inline limits
	Order    uint64       // grows from limiter to limiter: the order in which counters are locked
	Overflow atomic.Int64 // hits admitted without a counter
	BadCosts atomic.Int64 // hits whose cost attribute was no cost
}

// Class returns the limits for a request's class.
func (t *Limits) Class(attrs identity.Attributes) *Limits {
	if t.Clauses == nil || t.Clauses.classes == nil {
		return t
	}
	if class, ok := attrs.Get(t.Rule.Priority.By); ok {
		if of, ok := t.Clauses.classes[class]; ok {
			return of
		}
	}
	return t.Clauses.other
}

// Whole returns the limits of a class that has all of the limit.
func (t *Limits) Whole() *Limits {
	if t.Full != nil {
		return t.Full
	}
	return t
}

// isInline returns whether a counter's name is that of an inline limit.
func isInline(counter string) bool { return strings.HasPrefix(counter, inlinePrefix) }

// inlinePrefix begins the names of inline limits' counters.
const inlinePrefix = "own "

// IsPlain returns whether a hit is decided by the limit alone, with the key as it is.
func (t *Limits) IsPlain(key string) bool {
	return t.plain && len(key) <= identity.MaxKey
}
