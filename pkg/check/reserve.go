package check

import (
	"time"

	"github.com/offpath-io/offpath/pkg/window"
)

// Reservation is a place in the queue of a key: its hits have been charged, and may pass after Delay. The zero value is
// none. Its methods are safe for concurrent use if it is not copied in between.
type Reservation struct {
	// Delay is how long from the call of Reserve until it is the caller's turn: 0 if it is now.
	Delay time.Duration

	limiter *Limiter
	cell    *cell // nil if there is nothing to give back
	cost    int64
	bucket  int64 // that the hits were charged to
	due     int64 // fleet time
	turn    int64 // of the cell, after it
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
	return l.reserveAt(l.checker.clock.fleet(now), key, cost)
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
	a.askAlone(l, t, key, max(cost, 1), charging)
	a.lookForRoom(nil, now)
	q := a.asked[0]
	for {
		c := l.find(now, a.key(0))
		if c == nil {
			l.checkOverflow(&d, q.terms, now, a.key(0), q.cost)
			return &Reservation{}, d
		}
		c.mu.Lock()
		if c.is(dead) {
			c.mu.Unlock()
			continue
		}
		q.cell = c
		r := q.reserve(&d, now)
		c.mu.Unlock()
		return r, d
	}
}

// reserve decides for a hit that may wait. The cell is locked.
func (q *question) reserve(d *Decision, now int64) *Reservation {
	c, t, cost := q.cell, q.terms, q.cost
	q.decide(d, now)
	wait := d.RetryAfter
	switch {
	case d.Allowed:
		wait = 0
		q.conclude(true, false, now)
	case c.mayQueue(t, q.at, cost, wait):
		c.charge(cost)
		c.took(t, q.at, cost, wait-time.Duration(q.at-now))
		if a := c.ahead(); a != nil {
			a.note(q.at, cost, 0)
		}
		if q.shared {
			c.limiter.checker.want(nextTick)
		}
		c.limiter.allow(d, t, 0, 0)
		d.RetryAfter = 0
	default:
		q.conclude(false, false, now)
		return &Reservation{}
	}
	return &Reservation{
		Delay: wait, limiter: c.limiter, cell: c, cost: cost, bucket: c.newest, due: now + int64(wait), turn: c.drained().turn,
	}
}

// mayQueue says whether a hit that does not fit now may wait for its turn, which is after so long. The lock is held, the
// cell settled and rotated.
func (c *cell) mayQueue(t *terms, at, cost int64, wait time.Duration) bool {
	most := t.rule.OnLimit.MaxWait
	d := c.drained()
	switch {
	case wait == Never, most > 0 && wait > most, Freshness(c.limiter.checker.freshness.Load()) == Outage:
		return false
	case t.drain.Shape.Kind == window.Leaky:
		own := (d.turn - at) / max(c.limiter.spacing(t, 1), 1) // hits of the queue that are known to the nanosecond
		return min(t.drain.Remaining(d.level, c.totals(), at), t.capacity-max(own, 0)) >= cost
	}
	return t.drain.Count(d.level, c.totals(), at)+float64(cost) <= 2*float64(t.capacity)
}

// Cancel gives the hits of a reservation back before its turn, and reports whether it has. It cannot any more when the turn has
// come, or when they have been reported: that is counted, and stays. It is of use once.
func (r *Reservation) Cancel() bool {
	if r.cell == nil {
		return false
	}
	return r.cancelAt(r.limiter.now())
}

// CancelAt is Cancel at a given time of the checker's own clock, in Unix nanoseconds.
func (r *Reservation) CancelAt(now int64) bool {
	if r.cell == nil {
		return false
	}
	return r.cancelAt(r.limiter.checker.clock.fleet(now))
}

func (r *Reservation) cancelAt(now int64) bool {
	c := r.cell
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.cost == 0 || now >= r.due || c.is(dead) {
		return false
	}
	c.settle(now)
	c.rotate(now)
	i := c.newest - r.bucket
	if i < 0 || i >= int64(r.limiter.live) {
		return false
	}
	// Hits of one bucket are all the same: as long as one of them is pending, it may go in this one's place. Without
	// a link, nobody is told of any.
	pending := c.pending()
	if r.limiter.checker.o.Link != nil && pending[i] < r.cost {
		return false
	}
	pending[i] -= min(r.cost, pending[i])
	c.totals()[i] -= r.cost
	if d := c.drained(); d.turn == r.turn { // nobody has come after it
		d.turn -= r.limiter.spacing(r.limiter.terms.Load(), r.cost)
	}
	r.limiter.cancelled.Add(r.cost)
	r.cost = 0
	return true
}
