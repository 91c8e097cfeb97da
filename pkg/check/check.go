// Package check decides at once whether a request may pass, from counts in its own memory, and
// reports what it admitted afterwards.
//
// A [Checker] holds a set of rules. [Checker.Check] finds the rules that match a request's
// attributes and asks all of them; a [Limiter] decides by one of them about a key. [Checker.Do]
// does the same in other modes: to look, to charge without deciding, to reserve a turn, to explain.
// None of these does any I/O, waits for anybody, or fails: they work before the first connection
// and while everything behind is dead. [Checker.Wait] is for callers that can wait. A Checker
// without a [Link] is a plain local limiter.
//
// Behind the decisions, [Checker.Run] moves hits along: an admitted hit is *pending* until a flush
// freezes it into a report, *in flight* until the report is answered, and from then on part of the
// key's *base*, the total that the fleet knows of. A key's count is always base + in flight +
// pending, and each of these steps happens under the key's lock, so that no decision sees a hit
// twice or not at all.
//
// The pieces, in the order in which a hit meets them: evaluation.go (find the rules and keys),
// limiter.go and several.go (decide by one rule and by several), request.go (all modes), counter.go
// (one key's counts; table.go has the map of them, keytext.go the text of keys), live.go (where
// counters live, and what happens when there is no room), flush.go and report.go (pending to
// report), receive.go (answers and alarms), welcome.go (the time, and the number of shards),
// eviction.go (idle counters leave), run.go (the goroutines around it). Everything but run.go,
// acquire.go and wait.go is a function of the time it is given.
//
// What others have admitted unheard is forecast once a key is near its limit (forecast.go, and
// internal/forecast, which also estimates which denials were false). Others decide when a key is
// reported: rounds.go near its limit, quiet.go far from it. degradation.go has what is decided by
// while nobody answers.
//
// Token and leaky buckets have a level beside their counts (level.go), and callers who would rather
// wait for their turn than be denied (reserve.go, wait.go, line.go).
//
// A hit's true cost can be settled afterwards: receipt.go (what was charged), settle.go (the true
// cost), internal/settlement (until the store has it), refund.go (what was given back).
//
// What a rule says beyond its limit are its clauses: clauses.go (what they make of it), apply.go
// (what they make of a request), elastic.go (whether there is room elsewhere), view.go and peek.go
// (to decide without charging, and to charge without deciding), explain.go (why).
//
// Under strict enforcement a limiter spends *permits* instead, which the store has granted:
// internal/permit (what a key has), strict.go (what a check does with it), lease.go and grants.go
// (how permits are asked for, and come), internal/fleetclock (until when they last), acquire.go
// (how callers wait for them).
//
// Rules may change at any time: limits.go (what a decision goes by), ruleset.go (a set, ready to
// decide by), reload.go (how one takes the place of another), retired.go (what becomes of limiters
// whose rules have gone). inline.go has the limits that requests bring along. Whatever the rules
// say, single keys may be kept out for a time: blocks.go.
//
// Others can follow what happens: stats.go (counters), ondenied.go (each denial), trace.go (the way
// of a report).
package check

import (
	"iter"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/check/internal/reporter"
	"github.com/offpath-io/offpath/pkg/check/internal/settlement"
)

// Checker decides for one set of rules at a time. Its methods are safe for concurrent use.
type Checker struct {
	o        Options
	ruleset  atomic.Pointer[ruleset] // what it decides by at present
	settling settlement.Queue
	receipts atomic.Uint64 // the number of the last one

	reload   sync.Mutex // held while the rules change
	made     uint64     // how many limiters there have been
	blocks   blocks
	inline   inlineLimits
	retirees retirees

	host     counter.Host
	waits    atomic.Uint64 // calls of Wait
	waiting  atomic.Int64  // callers of Wait that wait
	reporter reporter.Reporter
	ended    chan struct{} // closed when Run has
	swaps    swaps         // of rules, for who waits
	end      sync.Once
}

// retirees are the limiters whose rules are no longer in force. the reporter's lock guards them.
type retirees struct {
	retired []*Limiter // the one to look at next first
	at      map[counter.ID]*Limiter
	gone    map[counter.ID]gone
	past    map[string]RuleStats // by rule, what those that are gone have counted, while the rule is in force
	removed RuleStats            // the same of all other rules

	installs uint64 // how many rulesets there have been
	swept    uint64 // the last one after which the weak pointers were looked through
}

// gone is what is kept of a limiter that has been let go.
type gone struct {
	limiter   weak.Pointer[Limiter]
	forgotten int64 // see strict
}

// swaps tell who waits that the rules have changed.
type swaps struct {
	mu sync.Mutex
	ch chan struct{} // nil if nobody has asked
}

// next is closed at the next change.
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

// limiters are all that may hold anything: those in force, in the order of their rules, those that
// have retired, and those of limits that requests have brought along.
func (c *Checker) limiters() iter.Seq[*Limiter] {
	return func(yield func(*Limiter) bool) {
		for _, e := range c.ruleset.Load().entries {
			if !yield(e.limiter) {
				return
			}
		}
		for _, l := range c.retirees.retired {
			if !yield(l) {
				return
			}
		}
		c.inline.each(yield)
	}
}
