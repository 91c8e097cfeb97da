// Package ruleset holds rules, compiled: ready to decide by.
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
// set brings new limits. A decision takes them once, in the beginning, and hands them on, so it
// never mixes two sets; and what one decision leaves in a counter for the next ones, an allowance
// or a block, carries the stamp of its limits, so that those who decide by other limits do not take
// it for theirs. That is what makes a change of rules hold at once, in every counter, without a
// lock in a check: the walk over the counters that follows only tidies up.
type Limits struct {
	Shown   int64 // the limit that decisions name: how many hits there is room for, as capacity
	Name    string
	fill    time.Duration // how long a token or leaky bucket takes to drain when it is full, else 0
	Clauses *clauses      // nil if the limit is all that the rule says
	Rule    *rules.Rule
	plain   bool // a hit is decided by the limit alone, and about the key as it is
	counter.Limits

	Full   *Limits          // of a class with a share of the limit: those of who has all of it; else nil
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

// scale lets a part of the hits in at once that there was room for, or more than these; what drains
// does so as before.
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

// drainsIn is how long so many hits take to drain, at most.
func (t *Limits) drainsIn(hits int64) time.Duration {
	shape := t.Rule.Window
	span := float64(hits) / float64(t.Limit) * float64(shape.Length)
	return time.Duration(min(span, float64(window.MaxLength))) + shape.BucketSize()
}

// next are the limits by which a limiter decides after these, from a time of the fleet on.
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

// isStrict says whether a rule's limiter is to spend permits. A local limiter knows everything
// anyway.
func isStrict(r *rules.Rule, h *counter.Host) bool {
	return r.Enforcement == rules.Strict && !h.Config.Local
}

// clauses are what a rule says beyond its limit and that a decision has to mind: what may pass
// beyond the limit, who has only a share of it, whether denials hold, and whether they count.
// Limiters whose rules have none never look at any of it.
//
// What depends on the request makes other limits of the rule's, which are all made beforehand: the
// limit is higher while elastic has room, and lower for a class with a share. They carry the same
// stamp, so the same allowances; which are only ever left for the hits that fit the limit itself,
// and by those whom all of it is for.
type clauses struct {
	Plain   *Limits            // the limit itself
	Shadow  bool               // never denies
	All     bool               // denied hits count, too
	Elastic *elastic           // nil unless it is
	classes map[string]*Limits // by class, of those with a share below 1
	other   *Limits            // of all other classes; nil if they have all of the limit
}

// elastic is where to look for room, and what holds if there is some.
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
	Bare      bool        // the rule has nothing that depends on the request but its key
	KeyNumber int         // rules of the same number have the same key of a request
	Overrides []*Entry    // by override, those with a limit of their own; else nil
}

// Limiter has the counters of one rule, and the limits that they are held to at present.
type Limiter struct {
	// What a check without the lock reads stands together, and apart from what is written
	// meanwhile.
	Current atomic.Pointer[Limits] // what it decides by at present
	after   time.Duration          // how long after its end a bucket still counts
	Hashes  bool                   // keys are hashed
	Group   counter.Group

	Owner    any          // what its user knows it as
	Order    uint64       // grows from limiter to limiter: the order in which counters are locked
	Overflow atomic.Int64 // hits admitted without a counter
	BadCosts atomic.Int64 // hits whose own cost was none
}

// Class are the limits for a request's class.
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

// Whole are the limits of those who have all of the limit.
func (t *Limits) Whole() *Limits {
	if t.Full != nil {
		return t.Full
	}
	return t
}

// isInline says whether a counter is of limits that requests bring along.
func isInline(counter string) bool { return strings.HasPrefix(counter, inlinePrefix) }

// inlinePrefix begins the names of inline limits' counters.
const inlinePrefix = "own "

// IsPlain says whether a hit is decided by nothing but a limit, and about the key as it is.
func (t *Limits) IsPlain(key string) bool {
	return t.plain && len(key) <= identity.MaxKey
}
