package check

import (
	"time"

	"github.com/offpath-io/offpath/pkg/identity"
)

// Reserve is Check for one request by all rules that match its attributes, which may have its turn later: where a receipt or leaky
// bucket does not let it pass now, and the rule lets callers wait (on_limit: queue), it is charged all the same if
// [Limiter.Reserve] would charge it. All rules must let it pass, now or later, and it is charged to all or to none. The reservation's Delay is
// that of the rule that makes it wait longest; to the others it is charged as if it passed when they let it. Cancel gives all
// of it back. It does not block.
func (c *Checker) Reserve(attrs identity.Attributes, cost int64) (*Reservation, Decision) {
	p := c.program.Load()
	r, d, _ := c.reserve(p, c.now(p), attrs, max(cost, 1), false)
	return r, d
}

// ReserveAt is Reserve at a given time of this checker's own clock, in Unix nanoseconds.
func (c *Checker) ReserveAt(now int64, attrs identity.Attributes, cost int64) (*Reservation, Decision) {
	r, d, _ := c.reserve(c.program.Load(), c.clock.Fleet(now), attrs, max(cost, 1), false)
	return r, d
}

// ReserveReceipt is Reserve for those who settle its cost by a receipt, as of [Checker.CheckReceipt], when it is served; or at 0
// if it never is, also at another checker, and also when Cancel cannot any more. Use one of these, not both.
func (c *Checker) ReserveReceipt(attrs identity.Attributes, cost int64) (r *Reservation, d Decision, receipt string) {
	p := c.program.Load()
	return c.reserve(p, c.now(p), attrs, max(cost, 1), true)
}

func (c *Checker) reserve(p *program, now int64, attrs identity.Attributes, cost int64, wantsReceipt bool) (r *Reservation, d Decision, receipt string) {
	a := c.scratch.Get().(*asking)
	defer c.scratch.Put(a)
	switch {
	case !a.match(p, attrs, now, cost, reserving):
		c.check(&d, p, now, attrs, cost)
		return &Reservation{}, d, ""
	case len(a.asked) == 0:
		r, d.Allowed, d.Freshness = &Reservation{}, true, Freshness(c.freshness.Load())
	default:
		if wantsReceipt {
			a.mayBeSettled()
		}
		r, d = a.reserve(c, attrs, now)
	}
	if wantsReceipt && d.Allowed {
		receipt = a.receipt(c, now)
	}
	return r, d, receipt
}

// ReserveReceipt is [Checker.ReserveReceipt] for a hit against key under this limiter's rule, as [Limiter.Reserve] decides.
func (l *Limiter) ReserveReceipt(key string, cost int64) (r *Reservation, d Decision, receipt string) {
	t := l.terms.Load()
	if !l.shape.Drains() || t.clauses != nil && t.clauses.shadow {
		d, receipt = l.CheckReceipt(key, cost)
		return &Reservation{}, d, receipt
	}
	now := l.now()
	a := l.checker.scratch.Get().(*asking)
	defer l.checker.scratch.Put(a)
	a.askAlone(l, t, now, key, max(cost, 1), reserving)
	a.mayBeSettled()
	r, d = a.reserve(l.checker, nil, now)
	if d.Allowed {
		receipt = a.receipt(l.checker, now)
	}
	return r, d, receipt
}

// reserve decides for what is asked, and charges all or none.
func (a *asking) reserve(c *Checker, attrs identity.Attributes, now int64) (*Reservation, Decision) {
	a.lookForRoom(attrs, now)
	for !a.lock(now) {
	}
	defer a.unlock()
	var d Decision
	a.ask(&d, now)
	a.conclude(d.Allowed, false, now)
	a.reckonDenied(&d, now)
	if !d.Allowed {
		return &Reservation{}, d
	}
	return a.reservation(c, now), d
}

// reservation is what has just been charged. Every cell is locked.
func (a *asking) reservation(c *Checker, now int64) *Reservation {
	r := &Reservation{checker: c}
	for i := range a.asked {
		q := &a.asked[i]
		r.Delay = max(r.Delay, q.wait)
		if q.cell == nil || q.charged == 0 {
			continue
		}
		p := place{cell: q.cell, cost: q.charged, bucket: q.bucket}
		if d := q.cell.drained(); d != nil {
			p.turn, p.gap, p.after = d.turn, q.cell.gap(q.terms, q.charged), d.dates.Added()-q.charged
		}
		r.places = append(r.places, p)
	}
	r.due = now + int64(r.Delay)
	return r
}

// mayLine says whether callers of a rule may have their turn later: by key always, by attributes if the rule says so.
func (a *asking) mayLine(q *question) bool {
	return q.cell != nil && !q.barred && !q.isShadow() && q.limiter.shape.Drains() && (a.program == nil || q.terms.rule.OnLimit.Queue)
}

// line turns a denial into a later turn, if there is one. The cell is locked, settled and rotated.
func (q *question) line(d *Decision, now int64) {
	if d.Allowed {
		return
	}
	wait, ok := q.cell.shareIn(q.terms, q.cost, q.at)
	wait = max(d.RetryAfter, wait+time.Duration(q.at-now))
	if !ok || !q.cell.mayQueue(q.terms, q.at, q.cost, wait) {
		return
	}
	q.wait, q.exceeds = wait, false
	*d = Decision{}
	q.limiter.allow(d, q.terms, 0, 0)
}

// chargeWaiting charges a hit that has its turn later. The cell is locked, settled and rotated.
func (q *question) chargeWaiting(now int64) {
	c := q.cell
	c.charge(q.cost)
	q.charged, q.bucket = q.cost, c.newest
	c.took(q.terms, q.at, q.cost, q.wait-time.Duration(q.at-now))
	if a := c.ahead(); a != nil {
		a.note(q.at, q.cost, 0)
	}
	if q.shared {
		c.limiter.checker.want(nextTick)
	}
}
