package check

import (
	"time"
	"unsafe"

	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// Check decides for one request by all rules that match its attributes: it may pass only if every
// one of them lets it, and it is charged to all or to none. A cost below 1 counts as 1. If no rule
// matches, it may pass, and the decision names no rule. It allocates nothing for keys that have
// been seen lately.
func (c *Checker) Check(attrs identity.Attributes, cost int64) (d Decision) {
	p := c.program.Load()
	c.check(&d, p, c.now(p), attrs, max(cost, 1))
	return d
}

// CheckAt is Check at a given time of this checker's own clock, in Unix nanoseconds.
func (c *Checker) CheckAt(now int64, attrs identity.Attributes, cost int64) (d Decision) {
	c.check(&d, c.program.Load(), c.clock.fleet(now), attrs, max(cost, 1))
	return d
}

// check writes its decision to d, which is zero.
func (c *Checker) check(d *Decision, p *program, now int64, attrs identity.Attributes, cost int64) {
	a := c.scratch.Get().(*asking)
	defer c.scratch.Put(a)
	if e := a.match(p, attrs); e != nil {
		l := e.limiter
		l.counters[0].denied.Add(1)
		l.fill(d, e.terms, 0)
		d.RetryAfter, d.Reset = Never, l.reset(e.terms, now)
		return
	}
	switch len(a.asked) {
	case 0:
		d.Allowed, d.Freshness = true, Freshness(c.freshness.Load())
	case 1:
		q := &a.asked[0]
		q.limiter.checkAt(d, q.terms, now, a.key(0), cost)
	default:
		for !a.lock(now) {
		}
		*d = a.ask(now, cost)
		a.conclude(d.Allowed, false, cost, now)
		a.unlock()
	}
}

// asking is the working memory of one check by several rules.
type asking struct {
	program *program
	found   []*rules.Rule
	text    []byte
	asked   []question // in the order in which their cells are locked
	exact   bool       // it has to be known what is charged
}

// question is one rule that matched. Its key is text[from:to]; a nil cell stands for no room.
type question struct {
	limiter  *Limiter
	terms    *terms
	place    int // among the rules
	from, to int
	cell     *cell
	room, at int64 // hits that fit by what is known, and the time that this was read at
	left     int64 // hits that may still pass
	passes   bool
	shared   bool // others decide for its keys too, by counts
	// What the hit was charged with, and to which bucket; 0 if it was not.
	charged, bucket int64
}

// match fills in the limiters whose rules match, and their keys. It returns the entry of a rule
// that denies requests without its key's attributes, if this is one.
func (a *asking) match(p *program, attrs identity.Attributes) (denies *entry) {
	clear(a.asked)
	a.program, a.text, a.asked = p, a.text[:0], a.asked[:0]
	a.found = p.set.Find(a.found[:0], attrs)
	for _, r := range a.found {
		place := r.Place()
		e := &p.entries[place]
		from := len(a.text)
		text, ok := r.AppendKey(a.text, attrs)
		if !ok {
			if r.OnMissing == rules.Deny {
				return e
			}
			continue
		}
		a.text = text
		a.add(question{limiter: e.limiter, terms: e.terms, place: place, from: from, to: len(text)})
	}
	return nil
}

// add adds a question where its limiter's turn is to be locked.
func (a *asking) add(q question) {
	a.asked = append(a.asked, q)
	for i := len(a.asked) - 1; i > 0 && a.asked[i-1].limiter.id > q.limiter.id; i-- {
		a.asked[i-1], a.asked[i] = a.asked[i], a.asked[i-1]
	}
}

// key returns a key as a string that is only valid until the next match. Cells that are created get
// a copy of their own.
func (a *asking) key(i int) string {
	q := &a.asked[i]
	if q.from == q.to {
		return ""
	}
	return unsafe.String(&a.text[q.from], q.to-q.from)
}

// lock finds and locks all cells, in the order of the limiters' ids, which is the same for everybody, by whatever
// rules, and so cannot deadlock. It returns false, with nothing locked, if one of them was just leaving.
func (a *asking) lock(now int64) bool {
	for i := range a.asked {
		q := &a.asked[i]
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

func (a *asking) unlock() {
	for i := range a.asked {
		if c := a.asked[i].cell; c != nil {
			c.mu.Unlock()
			a.asked[i].cell = nil
		}
	}
}

// ask asks all, and returns the decision of the one that restricts the caller most. Every cell is locked.
func (a *asking) ask(now, cost int64) Decision {
	var worst Decision
	by := -1 // the place of its rule; of equal ones the first decides
	for i := range a.asked {
		var d Decision
		a.asked[i].ask(&d, now, cost, a.key(i))
		place := a.asked[i].place
		if by < 0 || isWorse(&d, &worst) || place < by && !isWorse(&worst, &d) {
			worst, by = d, place
		}
	}
	return worst
}

// conclude charges all or none. If the caller waits, the hit is not denied yet. Every cell is locked.
func (a *asking) conclude(agreed, waits bool, cost, now int64) {
	for i := range a.asked {
		a.asked[i].conclude(agreed, waits, cost, now)
	}
}

// ask makes one rule's decision without charging anything.
func (q *question) ask(d *Decision, now, cost int64, key string) {
	l := q.limiter
	if q.cell == nil {
		l.peekOverflow(d, q.terms, now, key, cost)
		return
	}
	q.decide(d, now, cost)
}

// decide makes the decision of a rule whose cell is locked.
func (q *question) decide(d *Decision, now, cost int64) {
	l, c := q.limiter, q.cell
	if q.consider(now, cost) {
		l.allow(d, q.terms, time.Duration(c.end()-now), q.left)
		return
	}
	c.refuse(d, q.terms, now, q.at, cost, q.left)
	if d.RetryAfter == 0 { // it would fit, by what is known
		d.RetryAfter = c.retryAfter(q.terms, q.at, cost)
	}
}

// consider finds out whether a hit may pass.
func (q *question) consider(now, cost int64) bool {
	l, c := q.limiter, q.cell
	q.room, q.at = c.room(q.terms, now)
	q.shared = l.isShared()
	if l.strict == nil {
		switch Freshness(l.checker.freshness.Load()) {
		case LocalShare:
			q.room = c.localRoom(q.terms, q.at, q.room)
		case Outage:
			return q.inOutage(cost)
		}
	}
	if q.shared && c.lookAhead(q.terms, q.at, q.room) != nil && cost <= q.room {
		q.passes, q.left = c.foresee(q.terms, q.at, q.room, cost)
		return q.passes
	}
	q.passes, q.left = cost <= q.room, q.room
	switch {
	case q.passes && l.shape.Kind == window.Leaky: // one at a time
		q.left = 0
	case q.passes:
		q.left -= cost
	}
	return q.passes
}

// conclude charges one rule if all agreed, and leaves its cell ready for the next check.
func (q *question) conclude(agreed, waits bool, cost, now int64) {
	l, c := q.limiter, q.cell
	switch {
	case agreed && c == nil:
		l.counters[0].admit(1, cost)
		l.overflow.Add(cost)
		l.stray()
	case agreed:
		c.charge(cost)
		q.charged, q.bucket = cost, c.newest
		c.took(q.terms, q.at, cost, 0)
		q.admitted(cost)
	case c == nil:
		l.counters[0].denied.Add(1)
	default:
		q.denied(waits, cost, now)
	}
}

// admitted leaves the cell of a hit that was charged ready for the next check.
func (q *question) admitted(cost int64) {
	l, c := q.limiter, q.cell
	switch a := c.ahead(); {
	case a != nil:
		a.note(q.at, cost, 0)
		c.ease(q.terms, q.at, q.left)
	case q.left > q.room: // let pass in an outage, although it is too much
	case !q.shared:
		c.arm(q.terms, q.left, q.left)
	default:
		if q.left <= q.terms.capacity/2 { // others should hear of it soon
			l.checker.want(nextTick)
		}
		c.arm(q.terms, min(q.left, c.unforeseen(q.terms, q.left)), q.left)
	}
}

// denied leaves the cell of a hit that was not charged ready for the next check. If its caller waits, it is not
// denied yet.
func (q *question) denied(waits bool, cost, now int64) {
	l, c := q.limiter, q.cell
	if !q.passes && !waits {
		l.counters[c.stripe].denied.Add(1)
		c.touch(now)
	}
	switch a := c.ahead(); {
	case a != nil && q.passes: // by another rule
		a.Return(a.part, cost)
		c.ease(q.terms, q.at, q.left)
	case a != nil:
		// Nobody lets pass what does not fit by what is known; it would look as if there were others' hits to expect.
		if cost <= max(q.room, 1) {
			a.note(q.at, 0, cost)
		}
		c.refuseMore(q.terms, q.at)
	case q.room > 0 && q.shared:
		c.arm(q.terms, min(q.room, c.unforeseen(q.terms, q.room)), q.room)
	case q.room > 0:
		c.arm(q.terms, q.room, q.room)
	default:
		c.block(q.terms, q.at)
	}
}

// isWorse says whether d restricts the caller more than e: a denial more than none, a longer wait
// more than a shorter, less left more than more.
func isWorse(d, e *Decision) bool {
	if d.Allowed != e.Allowed {
		return !d.Allowed
	}
	if d.RetryAfter != e.RetryAfter {
		return d.RetryAfter > e.RetryAfter
	}
	return d.Remaining < e.Remaining
}
