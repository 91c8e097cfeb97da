// Package check decides at once whether a request may pass, from counts in its own memory, and
// reports what it admitted afterwards.
//
// A [Checker] holds a set of rules. [Checker.Check] finds the rules that match a request's
// attributes and asks all of them; a [Limiter] decides by one of them about a key. [Checker.Do]
// does the same in other modes: to look, to charge without deciding, to reserve a turn, to explain.
// None of these does I/O, blocks, or fails: they work before the first connection and while all
// servers are down. [Checker.Wait] is for callers that can wait. A Checker without a [Link] is a
// plain local limiter.
//
// In the background, [Checker.Run] reports hits: an admitted hit is *pending* until a flush moves
// it into a report, *in flight* until the report is answered, and from then on part of the key's
// *base*, the total that the fleet knows. A key's count is always base + in flight + pending, and
// each of these steps happens under the key's lock, so that no decision sees a hit twice or not at
// all.
//
// Services call this package. Of the packages below, each imports only those after it:
// internal/evaluation decides requests, internal/reporter sends reports and processes answers,
// internal/ruleset compiles rules, internal/counter has the counts of one key and decides by them,
// internal/fleetstate has the state of the fleet. Below Check, Do, Wait and Settle, almost
// everything is a function of the time that it is given.
//
//   - check.go: the Checker and the Limiter; decision.go: the answer; options.go, new.go: how to
//     make a Checker; run.go: its goroutines
//   - request.go, inlinelimit.go, do.go: all modes; wait.go, line.go: callers that wait; settle.go:
//     costs that are known afterwards
//   - reload.go puts a set of rules in force, and blocks (blocks.go); retired.go keeps the limiters
//     of rules that are no longer in force
//   - stats.go, rulestats.go, rulecounts.go, trace.go: counts and events for users of a Checker
package check

import (
	"iter"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/check/internal/evaluation"
	"github.com/offpath-io/offpath/pkg/check/internal/reporter"
	"github.com/offpath-io/offpath/pkg/check/internal/ruleset"
	"github.com/offpath-io/offpath/pkg/check/internal/settlement"
	"github.com/offpath-io/offpath/pkg/check/internal/turns"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
)

// Checker decides for one set of rules at a time. Its methods are safe for concurrent use.
type Checker struct {
	o        Options
	ruleset  atomic.Pointer[ruleset.Compiled] // in force
	settling settlement.Queue
	receipts atomic.Uint64 // the number of the last one

	reload   sync.Mutex // held while the rules change
	made     uint64     // how many limiters there have been
	blocks   ruleset.Blocks
	inline   ruleset.InlineLimits
	retirees retirees

	host     counter.Host
	waits    atomic.Uint64      // calls of Wait
	waiting  evaluation.Waiting // callers of Wait
	lines    turns.Lines[evaluation.LineID]
	reporter reporter.Reporter
	ended    chan struct{} // closed when Run has
	swaps    swaps         // changes of rules, for callers that wait
	end      sync.Once
}

// Limiter decides by one rule. Its methods are safe for concurrent use and do not wait. For other
// modes, pass it to [Checker.Do] or [Checker.Wait].
type Limiter struct{ core ruleset.Limiter }

// limiterOf returns the Limiter that users of the checker have.
func limiterOf(l *ruleset.Limiter) *Limiter { return l.Owner.(*Limiter) }

// Check decides for one hit of this cost against key, and charges it if it may pass. A cost below 1
// counts as 1. It allocates nothing for a key that has been seen lately. Under strict enforcement
// it denies what there is no permit for yet, such as a key's first hit: [Checker.Wait] waits for
// one.
func (l *Limiter) Check(key string, cost int64) (d Decision) {
	evaluation.CheckKeyNow((*evaluation.Decision)(&d), &l.core, key, cost)
	return d // in the caller's memory: this function is small enough to be inlined
}

// Rule returns the rule that this limiter decides by. It must not be changed.
func (l *Limiter) Rule() *rules.Rule { return l.core.Current.Load().Rule }

// Check decides for one request by all rules that match its attributes: it may pass only if every
// one of them lets it, and it is charged to all or to none. A cost below 1 counts as 1. If no rule
// matches, Options.DenyUnmatched decides, and the decision names no rule. It allocates nothing for
// keys that have been seen lately.
func (c *Checker) Check(attrs identity.Attributes, cost int64) (d Decision) {
	evaluation.CheckNow((*evaluation.Decision)(&d), &c.host, c.ruleset.Load(), attrs, cost)
	return d
}

// retirees are the limiters whose rules are no longer in force. The reporter's lock guards them.
type retirees struct {
	retired  []*ruleset.Limiter        // in the order in which to look at them; some are in force again
	listed   map[*ruleset.Limiter]bool // they are in retired
	at       map[counter.ID]*ruleset.Limiter
	released map[counter.ID]released
	past     map[string]RuleStats // by rule, the counts of released limiters, while the rule is in force
	removed  RuleStats            // the same of all other rules

	installs uint64 // how many rulesets there have been
	swept    uint64 // the last one after which the weak pointers were swept
}

// released is the rest of a limiter that has been released.
type released struct {
	limiter   weak.Pointer[ruleset.Limiter]
	forgotten int64 // see the group's Strict
}

// swaps tells callers that wait of changes of the rules.
type swaps struct {
	mu sync.Mutex
	ch chan struct{} // nil if no caller waits for the next change
}

// next returns a channel that is closed at the next change.
func (s *swaps) next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	return s.ch
}

func (s *swaps) tell() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch != nil {
		close(s.ch)
		s.ch = nil
	}
}

// limiters returns all limiters that may hold anything: those in force, in the order of their
// rules, retired ones, and those of inline limits.
func (c *Checker) limiters() iter.Seq[*ruleset.Limiter] {
	return func(yield func(*ruleset.Limiter) bool) {
		for _, e := range c.ruleset.Load().Entries {
			if !yield(e.Limiter) {
				return
			}
		}
		for _, l := range c.retirees.retired {
			if l.Group.Retired.Load() && !yield(l) {
				return
			}
		}
		c.inline.Each(yield)
	}
}
