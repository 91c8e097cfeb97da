package check

import (
	"time"
	"unsafe"

	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
)

// evaluation is the working memory of one check by several rules.
type evaluation struct {
	program   *ruleset
	found     []*rules.Rule
	text      []byte
	from      int            // where the last key begins, which ends text
	decisions []ruleDecision // in the order in which their counters are locked
	purpose   purpose
	bar       ruleDecision // of the rule that bars the request, if one does
	view      *view        // memory to look at other counters with
	views     []*view      // the same for those of the decisions
	exact     bool         // it has to be known what is charged
	answer    Decision     // memory of ask
}

// ruleDecision is one rule that matched. Its key is text[from:to]; a nil counter stands for no
// room.
type ruleDecision struct {
	limiter  *Limiter
	limits   *limits // by which it is decided
	matched  *limits // those before it is known whether there is room elsewhere
	origin   *limits // the limiter's
	cost     int64
	place    int // among the rules
	from, to int
	cell     *counter
	room, at int64 // hits that fit by what is known, and the time that this was read at
	left     int64 // hits that may still pass
	passes   bool
	shared   bool // others decide for its keys too, by counts
	denies   bool // by whatever

	// Of rules with clauses, and such that bar the request.
	spare     int64 // hits that fit the limit itself, by what is known
	wholeRoom int64 // hits that fit the limit of which this request has a share
	exceeds   bool  // if it passes, the hit is beyond the limit
	short     bool  // of strict ones: the hit does not fit by counts, whatever permits there are
	barred    bool
	badCost   bool          // the request's own cost was none
	retry     time.Duration // if barred
	// If the hit is to wait for its turn, for how long.
	wait time.Duration
	// What the hit was charged with, and to which bucket; 0 if it was not.
	charged, bucket int64
}

// match fills in the limiters whose rules match, and their keys, for some purpose. It returns false
// if one of the rules bars the request, whatever its counts are; bar is that one then.
func (a *evaluation) match(p *ruleset, attrs identity.Attributes, now, cost int64, to purpose) bool {
	a.begin(p, to)
	a.found = p.set.Find(a.found[:0], attrs)
	keyed := -1 // the place of the rule whose key was made last
	for _, r := range a.found {
		place := r.Place()
		e := &p.entries[place]
		q := a.add()
		*q = ruleDecision{limiter: e.limiter, limits: e.limits, matched: e.limits, origin: e.limits, place: place, cost: cost}
		v := applies
		if e.limits.blocks != nil {
			v = q.blockMatching(a, e, attrs, now)
		}
		if v == applies && !e.bare {
			v = q.apply(e, attrs, now)
		}
		switch {
		case v != applies:
		case keyed >= 0 && p.entries[keyed].key == e.key:
			q.from, q.to = a.from, len(a.text)
		default:
			if v = q.makeKey(a, r, attrs); v == applies {
				keyed, a.from = place, q.from
			}
		}
		q.barred = v == bars
		switch {
		case v == appliesNot || v == bars && a.purpose == recording:
			a.drop()
		case v == bars && !r.Shadow:
			a.bar = *q
			return false
		default:
			a.sort()
		}
	}
	return true
}

// makeKey makes the key that a rule's hits are counted under, unless attributes of it are missing.
func (q *ruleDecision) makeKey(a *evaluation, r *rules.Rule, attrs identity.Attributes) applicability {
	q.from = len(a.text)
	text, ok := q.limiter.checker.appendKey(a.text, r, attrs)
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

func (a *evaluation) begin(p *ruleset, to purpose) {
	a.program, a.text, a.decisions, a.purpose = p, a.text[:0], a.decisions[:0], to
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
	for i := len(a.decisions) - 1; i > 0 && a.decisions[i-1].limiter.id > a.decisions[i].limiter.id; i-- {
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
		q.cell = q.limiter.find(now, a.key(i))
		if q.cell == nil {
			continue
		}
		q.cell.mu.Lock()
		if q.cell.is(dead) {
			q.cell.mu.Unlock()
			q.cell = nil
			a.unlock()
			return false
		}
	}
	return true
}

func (a *evaluation) unlock() {
	for i := range a.decisions {
		if c := a.decisions[i].cell; c != nil {
			c.mu.Unlock()
			a.decisions[i].cell = nil
		}
	}
}
