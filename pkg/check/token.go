package check

import (
	"context"

	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/identity"
)

// CheckToken is Check for a hit whose true cost is known only later, when it has been served. If the hit may pass, token
// names what it was charged with, for one call of Settle, here or at any other checker of the fleet; else it is "". The
// token is of letters, digits, - and _, about 100 for each rule; it is no secret, and not signed. Whoever drops
// it leaves the hit at its estimate.
//
// If some of the rules that match take their cost from an attribute, Settle is about these, and leaves the
// others as they are, such as a limit of requests beside one of what they cost. Otherwise it is about all of them.
//
// It takes the locks of the keys, and allocates: it costs about a microsecond.
func (c *Checker) CheckToken(attrs identity.Attributes, cost int64) (d Decision, token string) {
	p := c.program.Load()
	return c.checkToken(p, c.now(p), attrs, max(cost, 1))
}

// CheckTokenAt is CheckToken at a given time of this checker's own clock, in Unix nanoseconds.
func (c *Checker) CheckTokenAt(now int64, attrs identity.Attributes, cost int64) (d Decision, token string) {
	return c.checkToken(c.program.Load(), c.clock.fleet(now), attrs, max(cost, 1))
}

func (c *Checker) checkToken(p *program, now int64, attrs identity.Attributes, cost int64) (d Decision, token string) {
	a := c.scratch.Get().(*asking)
	defer c.scratch.Put(a)
	if !a.match(p, attrs, now, cost, charging) {
		c.check(&d, p, now, attrs, cost)
		return d, ""
	}
	if len(a.asked) == 0 {
		d.Allowed, d.Freshness = true, Freshness(c.freshness.Load())
		return d, a.token(c, now)
	}
	return a.checkToken(c, attrs, now)
}

// CheckToken is [Checker.CheckToken] for a hit against key under this limiter's rule.
func (l *Limiter) CheckToken(key string, cost int64) (d Decision, token string) {
	return l.checkToken(l.now(), key, cost)
}

// CheckTokenAt is CheckToken at a given time of this checker's own clock, in Unix nanoseconds.
func (l *Limiter) CheckTokenAt(now int64, key string, cost int64) (d Decision, token string) {
	return l.checkToken(l.checker.clock.fleet(now), key, cost)
}

func (l *Limiter) checkToken(now int64, key string, cost int64) (d Decision, token string) {
	a := l.checker.scratch.Get().(*asking)
	defer l.checker.scratch.Put(a)
	a.askAlone(l, l.terms.Load(), now, key, max(cost, 1), charging)
	d, token = a.checkToken(l.checker, nil, now)
	d.ownShadow()
	return d, token
}

// AcquireToken is Acquire for a hit whose true cost is known only later, see CheckToken.
func (c *Checker) AcquireToken(ctx context.Context, attrs identity.Attributes, cost int64) (d Decision, token string, err error) {
	p := c.program.Load()
	if !p.strict {
		d, token = c.CheckToken(attrs, cost)
		return d, token, nil
	}
	a := c.scratch.Get().(*asking)
	defer c.scratch.Put(a)
	if !a.match(p, attrs, c.now(p), max(cost, 1), charging) || len(a.asked) == 0 {
		d, token = c.CheckToken(attrs, cost)
		return d, token, nil
	}
	return a.acquireToken(ctx, c, attrs, max(cost, 1))
}

// AcquireToken is [Checker.AcquireToken] for a hit against key under this limiter's rule.
func (l *Limiter) AcquireToken(ctx context.Context, key string, cost int64) (d Decision, token string, err error) {
	if l.strict == nil {
		d, token = l.CheckToken(key, cost)
		return d, token, nil
	}
	a := l.checker.scratch.Get().(*asking)
	defer l.checker.scratch.Put(a)
	a.askAlone(l, l.terms.Load(), l.now(), key, max(cost, 1), charging)
	d, token, err = a.acquireToken(ctx, l.checker, nil, max(cost, 1))
	d.ownShadow()
	return d, token, err
}

func (a *asking) acquireToken(ctx context.Context, c *Checker, attrs identity.Attributes, cost int64) (d Decision, token string, err error) {
	a.exact = true
	d, err = a.acquire(ctx, c, attrs, cost)
	a.exact = false
	if d.Allowed {
		token = a.token(c, c.clock.fleet(ownTime()))
	}
	return d, token, err
}

// checkToken decides for what is asked, and makes the token of what was charged.
func (a *asking) checkToken(c *Checker, attrs identity.Attributes, now int64) (d Decision, token string) {
	a.decide(&d, attrs, now)
	if !d.Allowed {
		return d, ""
	}
	return d, a.token(c, now)
}

// token is that of a hit that was charged at the fleet's time now.
func (a *asking) token(c *Checker, now int64) string {
	m := &events.Token{Epoch: c.o.Epoch, Made: now}
	own := false // some rule takes its cost from an attribute
	for i := range a.asked {
		q := &a.asked[i]
		if q.charged > 0 && q.terms.rule.Cost != "" {
			own = true
		}
	}
	for i := range a.asked {
		q := &a.asked[i]
		if q.charged == 0 || own && q.terms.rule.Cost == "" || len(m.Charges) == events.MaxCharges {
			continue
		}
		l := q.limiter
		l.refunds.Store(true)
		rule := l.wire(now)
		rule.Newest = q.bucket
		m.Charges = append(m.Charges, &events.Charge{
			Rule: rule, Key: []byte(a.key(i)), Cost: events.Count(q.charged), Permits: l.strict != nil,
		})
	}
	numbers := uint64(max(len(m.Charges), 1))
	m.Number = c.settling.numbers.Add(numbers) - numbers + 1
	text, err := events.EncodeToken(m)
	if err != nil {
		panic("check: " + err.Error()) // unreachable: the message has no field that can fail
	}
	return text
}
