package check

import (
	"time"

	"github.com/offpath-io/offpath/pkg/window"
)

// Reservation is a place in the queues of one key, or of those of a request under several rules: its hits have been charged, and may
// pass after Delay. The zero value is none. Its methods are safe for concurrent use if it is not copied in between.
type Reservation struct {
	// Delay is how long from the call of Reserve until it is the caller's turn: 0 if it is now.
	Delay time.Duration

	checker *Checker
	places  []place // in the order in which cells are locked; none if there is nothing to give back
	due     int64   // fleet time
	given   bool    // back; the first place's lock guards it
}

// place is what was charged to one key.
type place struct {
	cell         *cell
	cost, bucket int64
	turn         int64 // of the cell, after it
	after        int64 // own hits of the bucket of a token bucket's cell, before it
	gap          int64 // by which the cell's turn came later for it
}

// Reserve is Check for those who would rather wait for their turn than be denied. Under a token or leaky bucket, a hit
// that does not fit now is charged all the same, if it will fit: into a leaky bucket's queue as long as that has room,
// and from a token bucket as long as no more tokens are owed than it can hold; and never for longer than the rule's
// OnLimit.MaxWait, if that is given. The decision says Allowed then, and the reservation when: the caller
// has to wait for so long, or cancel. Under other algorithms, whose counts may free what they like, it is Check. It
// does not block.
func (l *Limiter) Reserve(key string, cost int64) (*Reservation, Decision) {
	return l.reserveAt(l.now(), key, cost)
}

// ReserveAt is Reserve at a given time of this checker's own clock, in Unix nanoseconds.
func (l *Limiter) ReserveAt(now int64, key string, cost int64) (*Reservation, Decision) {
	return l.reserveAt(l.checker.clock.Fleet(now), key, cost)
}

func (l *Limiter) reserveAt(now int64, key string, cost int64) (*Reservation, Decision) {
	var d Decision
	t := l.terms.Load()
	if !l.shape.Drains() || t.clauses != nil && t.clauses.shadow {
		l.checkBy(&d, t, now, key, cost)
		return &Reservation{}, d
	}
	a := l.checker.scratch.Get().(*asking)
	defer l.checker.scratch.Put(a)
	a.askAlone(l, t, now, key, max(cost, 1), reserving)
	return a.reserve(l.checker, nil, now)
}

// mayQueue says whether a hit that does not fit now may wait for its turn, which is after so long. The lock is held, the
// cell settled and rotated.
func (c *cell) mayQueue(t *terms, at, cost int64, wait time.Duration) bool {
	most := t.rule.OnLimit.MaxWait
	d := c.drained()
	switch {
	case wait == Never, most > 0 && wait > most, c.freshness(t) == Outage:
		return false
	case t.drain.Shape.Kind == window.Leaky:
		own := (d.turn - at) / max(c.gap(t, 1), 1) // hits of the queue that are known to the nanosecond
		return min(t.drain.Remaining(d.level, c.net(), at), t.capacity-max(own, 0)) >= cost
	}
	return c.count(t, at)+float64(cost) <= 2*float64(t.capacity)
}

// Cancel gives all hits of a reservation back before its turn, and reports whether it has. It cannot any more when the turn has
// come, or when hits of one of its rules have been reported: those are counted, and all stay. It is of use once.
func (r *Reservation) Cancel() bool {
	if len(r.places) == 0 {
		return false
	}
	return r.cancelAt(r.checker.exactTime())
}

// CancelAt is Cancel at a given time of the checker's own clock, in Unix nanoseconds.
func (r *Reservation) CancelAt(now int64) bool {
	if len(r.places) == 0 {
		return false
	}
	return r.cancelAt(r.checker.clock.Fleet(now))
}

func (r *Reservation) cancelAt(now int64) bool {
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

// isOpen says whether the hits of a place can be given back. The cell is locked; it is settled and rotated then.
func (p *place) isOpen(now int64) bool {
	c := p.cell
	if c.is(dead) {
		return false
	}
	c.settle(now)
	c.rotate(now)
	i := c.newest - p.bucket
	if i < 0 || i >= int64(c.limiter.live) {
		return false
	}
	// Hits of one bucket are all the same: as long as one of them is pending, it may go in this one's place. Without
	// a link, nobody is told of any.
	return c.limiter.checker.o.Link == nil || c.pending()[i] >= p.cost
}

// giveBack takes the hits of an open place off their bucket. The cell is locked.
func (p *place) giveBack() {
	c := p.cell
	l, i := c.limiter, c.newest-p.bucket
	pending := c.pending()
	pending[i] -= min(p.cost, pending[i])
	c.totals()[i] -= p.cost
	c.undate(l.terms.Load(), i, p.cost, p.after)
	if permits := c.permits(); permits != nil {
		permits.Spend(p.bucket, -p.cost)
	}
	if d := c.drained(); d != nil && d.turn == p.turn { // nobody has come after it
		d.turn -= p.gap
	}
	l.cancelled.Add(p.cost)
}
