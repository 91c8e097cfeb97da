// Package evaluation decides requests: which rules apply, with which limits and keys, and whether
// the request may pass.
//
// A [Decider] says what decides: all rules that match, or one limiter. [Check], [CheckKey] and
// [CheckPlain] are the fast functions; [Charge] has the other modes that charge; [Peek], [Explain]
// and [Standing] change nothing. [Waiting] lets callers wait for permits.
//
// A request with attributes begins in several.go: match.go finds the rules, apply.go finds the
// limits for the caller. Several rules usually pass it there by their allowances; otherwise
// evaluation.go locks the counters, and decide.go asks all rules and charges all or none. A request
// with a limiter and a key begins in limiter.go. A request for one limiter without clauses also
// continues there, and usually ends in answer.go without the counter's lock. answer.go writes the
// fields of every [Decision]. Package counter decides how many hits fit. Only [Waiting],
// [Reservation.Cancel] and [Decider.Now] read the clock, and a counter that is given a time of long
// ago: everything else is a function of the time that it is given.
package evaluation

import (
	"time"
	"unsafe"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/check/internal/ruleset"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
)

// evaluation is the working memory of one check by several rules.
type evaluation struct {
	host      *counter.Host // whose pool it goes back to
	Rules     *ruleset.Compiled
	found     []*rules.Rule
	text      []byte
	from      int            // where the last key in text begins
	decisions []ruleDecision // in the order in which their counters are locked
	purpose   purpose
	bar       ruleDecision    // of the rule that bars the request, if one does
	view      *counter.View   // memory for a look at other counters
	views     []*counter.View // the same for the decisions' counters
	exact     bool            // the charged hits must be known, so checkUnlocked cannot decide
	exempt    bool            // a rule matches that does not limit the caller
	answer    Decision        // memory of askAll
}

// ruleDecision is the decision by one rule that matched. Its key is text[from:to].
type ruleDecision struct {
	// Hit has no Counter before lock, if the rule bars the request, and if the table is full.
	counter.Hit
	limiter  *ruleset.Limiter
	limits   *ruleset.Limits // those that decide
	matched  *ruleset.Limits // those for the request's class, before lookForRoom
	origin   *ruleset.Limits // the limiter's
	place    int             // among the rules
	from, to int
	denies   bool // whatever the reason

	// For rules with clauses, and for those that bar the request.
	barred  bool
	badCost bool          // the cost attribute is no cost
	retry   time.Duration // if barred
	wait    time.Duration // how long the hit has to wait for its turn; 0 if it need not
}

// prepare fills in the hit's limits and options.
func (q *ruleDecision) prepare() {
	t := q.limits
	q.By, q.Plain, q.Full, q.Blocks, q.CountsDenied = &t.Limits, nil, nil, true, false
	q.Exceeds, q.Short = false, false // they may be left from rules that were in force when the caller began to wait
	if c := t.Clauses; c != nil {
		// If an elastic rule denies a hit although there is room elsewhere, the next hit may find
		// no room there, and has to wait for longer than the block would say.
		q.Blocks = t.Full == nil && !c.Shadow && q.matched.Clauses.Elastic == nil
		q.Plain, q.CountsDenied = &c.Plain.Limits, c.All
	}
	if t.Full != nil {
		q.Full = &t.Full.Limits
	}
}

func (a *evaluation) begin(p *ruleset.Compiled, to purpose) {
	a.Rules, a.text, a.decisions, a.purpose, a.exempt = p, a.text[:0], a.decisions[:0], to, false
}

// add adds a decision. The caller must set all of it: it still has the values of an earlier one.
func (a *evaluation) add() *ruleDecision {
	if n := len(a.decisions); n < cap(a.decisions) {
		a.decisions = a.decisions[:n+1]
	} else {
		a.decisions = append(a.decisions, ruleDecision{})
	}
	return &a.decisions[len(a.decisions)-1]
}

// drop removes the last decision.
func (a *evaluation) drop() { a.decisions = a.decisions[:len(a.decisions)-1] }

// sort inserts the last decision by Limiter.Order.
func (a *evaluation) sort() {
	for i := len(a.decisions) - 1; i > 0 && a.decisions[i-1].limiter.Order > a.decisions[i].limiter.Order; i-- {
		a.decisions[i-1], a.decisions[i] = a.decisions[i], a.decisions[i-1]
	}
}

// key returns a key as a string that is only valid until the next match. New counters copy it.
func (a *evaluation) key(i int) string {
	return textAt(a.text, a.decisions[i].from, a.decisions[i].to)
}

func textAt(text []byte, from, to int) string {
	if from == to {
		return ""
	}
	return unsafe.String(&text[from], to-from)
}

// lock finds and locks all counters, in the order of Limiter.Order. All checks lock in this order,
// so they cannot deadlock. It returns false, with nothing locked, if one of the counters has just
// left the table.
func (a *evaluation) lock(now int64) bool {
	for i := range a.decisions {
		q := &a.decisions[i]
		if q.barred {
			continue
		}
		found := q.limiter.Group.FindOrMake(now, a.key(i))
		if found == nil {
			continue
		}
		if q.Counter = found.Lock(); q.Counter.Is(counter.Dead) {
			a.unlock()
			return false
		}
	}
	return true
}

func (a *evaluation) unlock() {
	for i := range a.decisions {
		if q := &a.decisions[i]; q.HasCounter() {
			q.Counter.Unlock()
			q.Counter = counter.Locked{}
		}
	}
}

// newEvaluation returns working memory from the checker's own pool: it still refers to what it was
// used for, and must not keep another checker in memory.
func newEvaluation(h *counter.Host) *evaluation {
	if a, ok := h.Scratch.Get().(*evaluation); ok {
		return a
	}
	return &evaluation{host: h}
}

// free returns the memory to the checker's pool.
func (a *evaluation) free() { a.host.Scratch.Put(a) }

// purpose says what a decision is for.
type purpose uint8

const (
	Charging  purpose = iota // to decide, and charge
	peeking                  // to decide
	Recording                // to charge, whether or not there is room
	Reserving                // to decide, and also charge hits that pass later
)

// applicability says whether a rule applies to a request, independently of its counts.
type applicability uint8

const (
	applies applicability = iota
	appliesNot
	bars // it denies the request, independently of its counts
)

// makeKey makes the key under which a rule's hits are counted, unless attributes for it are
// missing.
func (q *ruleDecision) makeKey(a *evaluation, r *rules.Rule, attrs identity.Attributes) applicability {
	q.from = len(a.text)
	text, ok := q.limiter.Group.Host.AppendKey(a.text, r, attrs)
	switch {
	case ok:
		q.to, a.text = len(text), text
		return applies
	case r.OnMissing == rules.Deny:
		q.retry, q.to = Never, q.from
		return bars
	}
	return appliesNot
}
