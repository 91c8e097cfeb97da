package check

import (
	"time"

	"github.com/offpath-io/offpath/pkg/window"
)

// reservation is a place in the queues of one key, or in those of a request under several rules:
// its hits have been charged, and may pass after a delay.
type reservation struct {
	checker *Checker
	delay   time.Duration
	places  []place // in the order in which counters are locked; none if there is nothing to give back
	due     int64   // fleet time
	given   bool    // back; the first place's lock guards it
}

// place is what was charged to one key.
type place struct {
	cell         *counter
	cost, bucket int64
	turn         int64 // of the counter, after it
	after        int64 // own hits of the bucket of a token bucket's counter, before it
	gap          int64 // by which the counter's turn came later for it
}

// Cancel gives all hits of a reservation back before its turn, and reports whether it has. It
// cannot when the turn has come, or when hits of one of its rules have been reported: those are
// counted, and all stay, but a receipt can be settled at 0 even then. Do not do both. It works
// once, and for Do in mode Reserve alone. It is safe for concurrent use.
func (r Result) Cancel() bool {
	return r.reservation != nil && r.reservation.cancel()
}

func (r *reservation) cancel() bool {
	if len(r.places) == 0 {
		return false
	}
	now := r.checker.exactTime()
	for i := range r.places {
		m := &r.places[i].cell.mu
		m.Lock()
		defer m.Unlock()
	}
	if r.given || now >= r.due {
		return false
	}
	for i := range r.places {
		if !r.places[i].isOpen(now) {
			return false
		}
	}
	for i := range r.places {
		r.places[i].giveBack()
	}
	r.given = true
	return true
}

// mayQueue says whether a hit that does not fit now may wait for its turn, which is after so long.
// The lock is held, the counter current.
func (c *counter) mayQueue(t *limits, at, cost int64, wait time.Duration) bool {
	most := t.rule.OnLimit.MaxWait
	d := c.levelState()
	switch {
	case wait == Never, most > 0 && wait > most, c.freshness(t) == Outage:
		return false
	case t.drain.Shape.Kind == window.Leaky:
		own := (d.turn - at) / max(c.gap(t, 1), 1) // hits of the queue that are known to the nanosecond
		return min(t.drain.Remaining(d.level, c.net(), at), t.capacity-max(own, 0)) >= cost
	}
	return c.count(t, at)+float64(cost) <= 2*float64(t.capacity)
}

// isOpen says whether the hits of a place can be given back. The counter is locked; it is current
// then.
func (p *place) isOpen(now int64) bool {
	c := p.cell
	if c.is(dead) {
		return false
	}
	c.withdraw(now)
	c.rotate(now)
	i := c.newest - p.bucket
	if i < 0 || i >= int64(c.limiter.live) {
		return false
	}
	// Hits of one bucket are all the same: as long as one of them is pending, it may go in this
	// one's place. Without a link, nobody is told of any.
	return c.limiter.checker.o.Link == nil || c.pending()[i] >= p.cost
}

// giveBack takes the hits of an open place off their bucket. The counter is locked.
func (p *place) giveBack() {
	c := p.cell
	l, i := c.limiter, c.newest-p.bucket
	pending := c.pending()
	pending[i] -= min(p.cost, pending[i])
	c.totals()[i] -= p.cost
	c.undate(l.limits.Load(), i, p.cost, p.after)
	if permits := c.permits(); permits != nil {
		permits.Spend(p.bucket, -p.cost)
	}
	if d := c.levelState(); d != nil && d.turn == p.turn { // nobody has come after it
		d.turn -= p.gap
	}
	l.cancelled.Add(p.cost)
}

// reservation is what has just been charged. Every counter is locked.
func (a *evaluation) reservation(now int64) *reservation {
	r := &reservation{checker: a.decisions[0].limiter.checker}
	for i := range a.decisions {
		q := &a.decisions[i]
		r.delay = max(r.delay, q.wait)
		if q.cell == nil || q.charged == 0 {
			continue
		}
		p := place{cell: q.cell, cost: q.charged, bucket: q.bucket}
		if d := q.cell.levelState(); d != nil {
			p.turn, p.gap, p.after = d.turn, q.cell.gap(q.limits, q.charged), d.dates.Added()-q.charged
		}
		r.places = append(r.places, p)
	}
	r.due = now + int64(r.delay)
	return r
}

// mayLine says whether callers of a rule may have their turn later: by key always, by attributes if
// the rule says so.
func (a *evaluation) mayLine(q *ruleDecision) bool {
	return q.cell != nil && !q.barred && !q.isShadow() && q.limiter.shape.Drains() &&
		(a.program == nil || q.limits.rule.OnLimit.Queue)
}

// line turns a denial into a later turn, if there is one. The counter is locked, current
// .
func (q *ruleDecision) line(d *Decision, now int64) {
	if d.Allowed {
		return
	}
	wait, ok := q.cell.shareIn(q.limits, q.cost, q.at)
	wait = max(d.RetryAfter, wait+time.Duration(q.at-now))
	if !ok || !q.cell.mayQueue(q.limits, q.at, q.cost, wait) {
		return
	}
	q.wait, q.exceeds = wait, false
	*d = Decision{}
	q.limiter.allow(d, q.limits, 0, 0)
}

// chargeWaiting charges a hit that has its turn later. The counter is locked, current
// .
func (q *ruleDecision) chargeWaiting(now int64) {
	c := q.cell
	c.charge(q.cost)
	q.charged, q.bucket = q.cost, c.newest
	c.took(q.limits, q.at, q.cost, q.wait-time.Duration(q.at-now))
	if a := c.keyForecast(); a != nil {
		a.note(q.at, q.cost, 0)
	}
	if q.shared {
		c.limiter.checker.want(nextFast)
	}
}
