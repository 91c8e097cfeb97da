// Package evaluation decides requests: which rules apply, what each makes of the caller, and
// whether the request may pass.
//
// A [Decider] says what decides: all rules that match, or one limiter. [Check] and [CheckPlain] are
// the fast ways, [Charge] has all others that charge, and [Peek], [Explain] and [Standing] change
// nothing. [Waiting] lets callers wait for permits.
//
// The way of a request by its attributes: match.go finds the rules, apply.go what they make of the
// caller, evaluation.go locks the counters, decide.go asks all and charges all or none, answer.go
// writes the [Decision]. By a limiter and a key it begins in limiter.go. How many hits fit is
// decided in package counter. Everything here is a function of the time that it is given, but for
// Waiting.
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
	from      int            // where the last key begins, which ends text
	decisions []ruleDecision // in the order in which their counters are locked
	purpose   purpose
	bar       ruleDecision    // of the rule that bars the request, if one does
	view      *counter.View   // memory to look at other counters with
	views     []*counter.View // the same for those of the decisions
	exact     bool            // it has to be known what is charged
	answer    Decision        // memory of ask
}

// ruleDecision is one rule that matched. Its key is text[from:to]; a nil counter stands for no
// room.
type ruleDecision struct {
	counter.Hit // its counter is nil if it is not locked
	limiter     *ruleset.Limiter
	limits      *ruleset.Limits // by which it is decided
	matched     *ruleset.Limits // those before it is known whether there is room elsewhere
	origin      *ruleset.Limits // the limiter's
	place       int             // among the rules
	from, to    int
	denies      bool // by whatever

	// Of rules with clauses, and of those that bar the request.
	barred  bool
	badCost bool          // the request's own cost was none
	retry   time.Duration // if barred
	wait    time.Duration // how long the hit is to wait for its turn, if it is
}

// prepare fills in what the hit is decided by.
func (q *ruleDecision) prepare() {
	t := q.limits
	q.By, q.Plain, q.Full, q.Blocks, q.CountsDenied = &t.Limits, nil, nil, true, false
	q.Exceeds, q.Short = false, false // as of rules that were in force when the caller began to wait
	if c := t.Clauses; c != nil {
		// Where a hit is denied although there is room elsewhere, the next one may find none, and
		// has to wait for longer than the block would say.
		q.Blocks = t.Full == nil && !c.Shadow && q.matched.Clauses.Elastic == nil
		q.Plain, q.CountsDenied = &c.Plain.Limits, c.All
	}
	if t.Full != nil {
		q.Full = &t.Full.Limits
	}
}

func (a *evaluation) begin(p *ruleset.Compiled, to purpose) {
	a.Rules, a.text, a.decisions, a.purpose = p, a.text[:0], a.decisions[:0], to
}

// add adds a decision, to fill in whole: it holds what an earlier one did.
func (a *evaluation) add() *ruleDecision {
	if n := len(a.decisions); n < cap(a.decisions) {
		a.decisions = a.decisions[:n+1]
	} else {
		a.decisions = append(a.decisions, ruleDecision{})
	}
	return &a.decisions[len(a.decisions)-1]
}

// drop takes the last decision back.
func (a *evaluation) drop() { a.decisions = a.decisions[:len(a.decisions)-1] }

// sort puts the last decision where its limiter's turn is to be locked.
func (a *evaluation) sort() {
	for i := len(a.decisions) - 1; i > 0 && a.decisions[i-1].limiter.Order > a.decisions[i].limiter.Order; i-- {
		a.decisions[i-1], a.decisions[i] = a.decisions[i], a.decisions[i-1]
	}
}

// key returns a key as a string that is only valid until the next match. Counters that are created
// get a copy of their own.
func (a *evaluation) key(i int) string {
	return textAt(a.text, a.decisions[i].from, a.decisions[i].to)
}

func textAt(text []byte, from, to int) string {
	if from == to {
		return ""
	}
	return unsafe.String(&text[from], to-from)
}

// lock finds and locks all counters, in the order of the limiters' ids, which is the same for
// everybody, by whatever rules, and so cannot deadlock. It returns false, with nothing locked, if
// one of them was just leaving.
func (a *evaluation) lock(now int64) bool {
	for i := range a.decisions {
		q := &a.decisions[i]
		if q.barred {
			continue
		}
		found := q.limiter.Group.Find(now, a.key(i))
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

// newEvaluation returns working memory of the checker's own: it holds on to what it was used for,
// and must not keep another checker in memory.
func newEvaluation(h *counter.Host) *evaluation {
	if a, ok := h.Scratch.Get().(*evaluation); ok {
		return a
	}
	return &evaluation{host: h}
}

// free lets another check of the checker have the memory.
func (a *evaluation) free() { a.host.Scratch.Put(a) }

// purpose is what rules are asked for.
type purpose uint8

const (
	Charging  purpose = iota // to decide, and charge
	peeking                  // to decide
	Recording                // to charge, whatever there is room for
	Reserving                // to decide, and charge what passes later, too
)

// applicability is whether a rule applies to a request, whatever its counts are.
type applicability uint8

const (
	applies applicability = iota
	appliesNot
	bars // it denies the request, whatever its counts are
)

// makeKey makes the key that a rule's hits are counted under, unless attributes of it are missing.
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
