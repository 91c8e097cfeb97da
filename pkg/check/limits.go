package check

import (
	"time"

	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// limits are what a limiter decides by while one set of rules is in force. They never change: a new
// set brings new limits. A decision takes them once, in the beginning, and hands them on, so it
// never mixes two sets; and what one decision leaves in a counter for the next ones, an allowance
// or a block, carries the stamp of its limits, so that those who decide by other limits do not take
// it for theirs. That is what makes a change of rules hold at once, in every counter, without a
// lock in a check: the walk over the counters that follows (reload.go) only tidies up.
type limits struct {
	stamp   uint64 // where the word of an allowance has it; the same as before if the rule is
	says    int64  // the limit that decisions name: how many hits there is room for, as capacity
	name    string
	fill    time.Duration // how long a token or leaky bucket takes to drain when it is full, else 0
	clauses *clauses      // nil if the limit is all that the rule says
	rule    *rules.Rule
	plain   bool // a hit is decided by the limit alone, and about the key as it is

	// The first cache line ends here: a check that passes without the lock reads nothing below.

	revision uint64           // of the set
	limit    int64            // hits per window
	capacity int64            // how many hits there is room for at once, which a hit is decided by
	wire     int64            // the limit that others are told of, and that permits are granted within
	full     *limits          // of a class with a share of the limit: those of who has all of it; else nil
	drain    window.Drain     // of a token or leaky bucket
	raised   bool             // they are of an elastic rule while there is room elsewhere
	restless bool             // nothing is left behind under them, as their stamp is not theirs alone
	blocks   map[string]int64 // when blocks end, by key; nil if there are none, see blocks.go
}

// The parts of the word of an allowance, see counter. 24 bits are enough for hits: an allowance
// that is used up is renewed by the next check. Stamps repeat after 32,768 changes of a rule, which
// no check outlasts.
const (
	hitBits    = 24
	oneTaken   = uint64(1) << hitBits
	leftMask   = oneTaken - 1
	mostLeft   = int64(leftMask)
	oneAllowed = oneTaken - 1 // added to the word: one more taken, one fewer left
	oneStamp   = uint64(1) << (2 * hitBits)
	blocked    = uint64(1) << 63
	stampMask  = blocked - oneStamp
)

func newLimits(r *rules.Rule, revision uint64) *limits {
	t := &limits{limit: r.Limit, capacity: r.Capacity(), says: r.Capacity(), wire: r.WireLimit(-1), name: r.Name, rule: r, revision: revision}
	if r.Window.Drains() {
		t.drain = r.Drain()
		t.fill = t.drainsIn(r.Burst)
	}
	return t
}

// scale lets a part of the hits in at once that there was room for, or more than these; what drains
// does so as before.
func (t *limits) scale(by float64) {
	t.capacity = rules.Part(t.capacity, by)
	t.says = t.capacity
	if t.rule.Window.Drains() {
		t.drain.Burst = t.capacity
		t.fill = max(t.fill, t.drainsIn(t.capacity)) // a class's share may be full of others' hits
	} else {
		t.limit = t.capacity
	}
}

// drainsIn is how long so many hits take to drain, at most.
func (t *limits) drainsIn(hits int64) time.Duration {
	shape := t.rule.Window
	span := float64(hits) / float64(t.limit) * float64(shape.Length)
	return time.Duration(min(span, float64(window.MaxLength))) + shape.BucketSize()
}

// next are the limits by which a limiter decides after these, from a time of the fleet on.
func (t *limits) next(r *rules.Rule, revision uint64, at int64) *limits {
	n := newLimits(r, revision)
	if r.Window.Drains() {
		n.drain.Past = t.drain.After(r.Limit, at)
	}
	n.stamp = t.stamp
	if t.rule != r && !t.rule.Equal(r) {
		n.stamp = (t.stamp + oneStamp) & stampMask
	}
	return n
}

// ruleID is what makes a limiter another one. The store tells counters apart by name and shape, and
// permits of one name and shape are all of one checker's, so there must never be two limiters of
// one id.
type ruleID struct {
	name      string
	shape     window.Shape
	algorithm rules.Algorithm
	strict    bool
}

func ruleIDOf(r *rules.Rule, l Link) ruleID {
	return ruleID{name: r.Name, shape: r.Window, algorithm: r.Algorithm, strict: isStrict(r, l)}
}
