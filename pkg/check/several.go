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

// check writes its decision to d, which is zero.
func (c *Checker) check(d *Decision, p *program, now int64, attrs identity.Attributes, cost int64) {
	a := c.scratch.Get().(*asking)
	defer c.scratch.Put(a)
	if !a.match(p, attrs, now, cost, charging) {
		a.denyBarred(d, attrs, now)
		return
	}
	switch {
	case len(a.asked) == 0:
		a.allowUnmatched(d, c)
	case len(a.asked) > 1:
		a.decide(d, attrs, now)
	case a.asked[0].terms.clauses == nil:
		q := &a.asked[0]
		q.noteCost()
		q.limiter.checkAt(d, q.terms, now, a.key(0), q.cost)
	default:
		a.decideOne(d, attrs, now)
	}
}

// decide decides by all rules that are asked, and charges all or none. If the purpose is reserving
// and the hit was charged, it returns the reservation.
func (a *asking) decide(d *Decision, attrs identity.Attributes, now int64) (r *reservation) {
	a.lookForRoom(attrs, now)
	for !a.lock(now) {
	}
	a.ask(d, now)
	a.conclude(d.Allowed, false, now)
	a.reckonDenied(d, now)
	if a.purpose == reserving && d.Allowed {
		r = a.reservation(now)
	}
	a.unlock()
	return r
}

// asking is the working memory of one check by several rules.
type asking struct {
	program *program
	found   []*rules.Rule
	text    []byte
	from    int        // where the last key begins, which ends text
	asked   []question // in the order in which their cells are locked
	purpose purpose
	bar     question // of the rule that bars the request, if one does
	view    *view    // memory to look at other cells with
	views   []*view  // the same for those of the questions
	exact   bool     // it has to be known what is charged
	answer  Decision // memory of ask
}

// question is one rule that matched. Its key is text[from:to]; a nil cell stands for no room.
type question struct {
	limiter  *Limiter
	terms    *terms // by which it is decided
	matched  *terms // those before it is known whether there is room elsewhere
	origin   *terms // the limiter's
	cost     int64
	place    int // among the rules
	from, to int
	cell     *cell
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

// match fills in the limiters whose rules match, and their keys, for some purpose. It returns false if one
// of the rules bars the request, whatever its counts are; bar is that one then.
func (a *asking) match(p *program, attrs identity.Attributes, now, cost int64, to purpose) bool {
	a.begin(p, to)
	a.found = p.set.Find(a.found[:0], attrs)
	keyed := -1 // the place of the rule whose key was made last
	for _, r := range a.found {
		place := r.Place()
		e := &p.entries[place]
		q := a.add()
		*q = question{limiter: e.limiter, terms: e.terms, matched: e.terms, origin: e.terms, place: place, cost: cost}
		v := applies
		if e.terms.blocks != nil {
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
func (q *question) makeKey(a *asking, r *rules.Rule, attrs identity.Attributes) applicability {
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

func (a *asking) begin(p *program, to purpose) {
	a.program, a.text, a.asked, a.purpose = p, a.text[:0], a.asked[:0], to
}

// add adds a question, to fill in whole: it holds what an earlier one did.
func (a *asking) add() *question {
	if n := len(a.asked); n < cap(a.asked) {
		a.asked = a.asked[:n+1]
	} else {
		a.asked = append(a.asked, question{})
	}
	return &a.asked[len(a.asked)-1]
}

// drop takes the last question back.
func (a *asking) drop() { a.asked = a.asked[:len(a.asked)-1] }

// sort puts the last question where its limiter's turn is to be locked.
func (a *asking) sort() {
	for i := len(a.asked) - 1; i > 0 && a.asked[i-1].limiter.id > a.asked[i].limiter.id; i-- {
		a.asked[i-1], a.asked[i] = a.asked[i], a.asked[i-1]
	}
}

// key returns a key as a string that is only valid until the next match. Cells that are created get
// a copy of their own.
func (a *asking) key(i int) string {
	return textAt(a.text, a.asked[i].from, a.asked[i].to)
}

func textAt(text []byte, from, to int) string {
	if from == to {
		return ""
	}
	return unsafe.String(&text[from], to-from)
}

// lock finds and locks all cells, in the order of the limiters' ids, which is the same for everybody, by whatever
// rules, and so cannot deadlock. It returns false, with nothing locked, if one of them was just leaving.
func (a *asking) lock(now int64) bool {
	for i := range a.asked {
		q := &a.asked[i]
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

func (a *asking) unlock() {
	for i := range a.asked {
		if c := a.asked[i].cell; c != nil {
			c.mu.Unlock()
			a.asked[i].cell = nil
		}
	}
}

// ask asks all, and writes the decision of the one that restricts the caller most to d, which is zero. Every cell is
// locked.
func (a *asking) ask(d *Decision, now int64) {
	// The worst one so far is in one place and the next goes into the other: a decision that is copied just when it
	// has been made waits for the stores of its parts.
	worst, next := d, &a.answer
	// The places of its rule, of those that can deny, and of the rest; of equal ones the first
	// decides.
	by, observed := -1, -1
	exceeded, shadow := false, -1
	for i := range a.asked {
		q := &a.asked[i]
		*next = Decision{}
		q.ask(next, now, a.key(i))
		if a.purpose == reserving && a.mayLine(q) {
			q.line(next, now)
		}
		q.denies = !next.Allowed
		place := &by
		if q.isShadow() {
			if q.denies && (shadow < 0 || q.place < a.asked[shadow].place) {
				shadow = i
			}
			if place = &observed; by >= 0 {
				continue
			}
		} else {
			exceeded = exceeded || q.exceeds
		}
		if *place < 0 || isWorse(next, worst) || q.place < *place && !isWorse(worst, next) {
			worst, next, *place = next, worst, q.place
		}
	}
	if by < 0 { // none that could deny
		worst.allow()
		worst.Rule, worst.Observed = "", worst.Rule
	}
	if worst != d {
		*d = *worst
	}
	d.Exceeded = exceeded && d.Allowed
	if shadow >= 0 {
		d.Shadow = a.asked[shadow].terms.name
	}
}

// conclude charges all or none. If the caller waits, the hit is not denied yet. Every cell is locked.
func (a *asking) conclude(agreed, waits bool, now int64) {
	for i := range a.asked {
		if q := &a.asked[i]; q.cell == nil && (!agreed || q.denies) { // else its cell knows the key
			q.limiter.noteDenied(a.key(i), 1)
		}
		a.asked[i].conclude(agreed, waits, now)
	}
}

// ask makes one rule's decision without charging anything.
func (q *question) ask(d *Decision, now int64, key string) {
	switch {
	case q.barred:
		q.decideBarred(d, now)
	case q.cell == nil:
		q.limiter.peekOverflow(d, q.terms, now, key, q.cost)
	default:
		q.decide(d, now)
	}
}

// decide makes the decision of a rule whose cell is locked.
func (q *question) decide(d *Decision, now int64) {
	l, c := q.limiter, q.cell
	if q.consider(now) {
		left := q.left
		if c.is(viewed) { // nothing will be charged
			left += q.cost
		}
		l.allow(d, q.terms, time.Duration(c.end()-now), left)
		return
	}
	if q.short { // more permits would not help
		c.refuseByCounts(d, q.terms, now, q.at, q.cost, q.left)
	} else {
		c.refuse(d, q.terms, now, q.at, q.cost, q.left)
	}
	if d.RetryAfter == 0 { // it would fit, by what is known
		d.RetryAfter = c.retryAfter(q.terms.whole(), q.at, q.cost)
	}
	if c.overflow && q.terms.rule.OnOutage == rules.Closed && d.RetryAfter != Never {
		d.RetryAfter = max(d.RetryAfter, time.Duration(l.sliceEnd(c.newest)-now))
	}
}

// consider finds out whether a hit may pass.
func (q *question) consider(now int64) bool {
	l, c, cost := q.limiter, q.cell, q.cost
	q.room, q.at = c.room(q.terms, now)
	q.shared = l.isShared()
	if q.terms.clauses != nil {
		q.measure()
	}
	if l.strict == nil {
		switch c.freshness(q.terms) {
		case LocalShare:
			q.room = c.localRoom(q.terms, q.at, q.room)
		case Outage:
			q.exceeds = false
			return q.inOutage(cost)
		}
	}
	switch {
	case !q.shared || !q.foresees():
		q.passes, q.left = cost <= q.room, q.room
		switch {
		case q.passes && l.shape.Kind == window.Leaky: // one at a time
			q.left = 0
		case q.passes:
			q.left -= cost
		}
	case q.terms.full != nil:
		q.passes, q.left = c.foreseeShare(q.terms, q.at, q.room, cost)
	default:
		q.passes, q.left = c.foresee(q.terms, q.at, q.room, cost)
	}
	return q.passes
}

// foresees says whether a forecast decides: there is one, and the hit fits by what is known.
func (q *question) foresees() bool {
	room := q.room
	if q.terms.full != nil {
		room = q.wholeRoom
	}
	return q.cell.lookAhead(q.terms.whole(), q.at, room) != nil && q.cost <= q.room
}

// conclude charges one rule if all agreed, and leaves its cell ready for the next check.
func (q *question) conclude(agreed, waits bool, now int64) {
	l, c, cost := q.limiter, q.cell, q.cost
	if !waits {
		q.noteCost()
	}
	agreed = agreed && !q.denies // a rule that never denies may not have agreed
	switch {
	case agreed && c == nil:
		l.counters[0].admit(1, cost)
		l.overflow.Add(cost)
		l.stray()
	case agreed && q.wait > 0:
		q.chargeWaiting(now)
	case agreed:
		c.charge(cost)
		q.charged, q.bucket = cost, c.newest
		c.took(q.terms, q.at, cost, 0)
		q.admitted(cost)
	case c == nil:
		l.counters[0].denied.Add(1)
	default:
		q.denied(waits || q.wait > 0, cost, now)
	}
}

// admitted leaves the cell of a hit that was charged ready for the next check.
func (q *question) admitted(cost int64) {
	l, c := q.limiter, q.cell
	switch a := c.ahead(); {
	case a != nil:
		a.note(q.at, cost, 0)
		q.ease()
	case q.left > q.room: // let pass in an outage, although it is too much
	case !q.shared:
		q.arm(q.left, q.left)
	default:
		if q.left <= q.terms.capacity/2 { // others should hear of it soon
			l.checker.want(nextTick)
		}
		q.arm(min(q.left, c.unforeseen(q.terms, q.left)), q.left)
	}
}

// denied leaves the cell of a hit that was not charged ready for the next check. If its caller waits, it is not
// denied yet.
func (q *question) denied(waits bool, cost, now int64) {
	l, c := q.limiter, q.cell
	if !q.passes && !waits {
		l.counters[c.stripe].denied.Add(1)
		l.noteDenied(c.key(), 1)
		c.touch(now)
		if q.chargesDenied(cost) {
			return
		}
	}
	switch a := c.ahead(); {
	case a != nil && q.terms.full != nil:
		// Pass has not been asked; and who has only a share of the limit does not ask for what the others divide.
	case a != nil && q.passes: // by another rule
		a.Return(a.part, cost)
		q.ease()
	case a != nil:
		// Nobody lets pass what does not fit by what is known; it would look as if there were others' hits to expect.
		if cost <= max(q.room, 1) {
			a.note(q.at, 0, cost)
			c.doubt(q.terms, q.at, cost, 1)
		}
		if q.mayBlock() {
			c.refuseMore(q.terms, q.at)
		}
		c.awaitCensus(q.at)
	case q.room > 0 && q.shared:
		q.arm(min(q.room, c.unforeseen(q.terms, q.room)), q.room)
	case q.room > 0:
		q.arm(q.room, q.room)
	case q.mayBlock():
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
