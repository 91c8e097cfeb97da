package check

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/identity"
)

// keepGoodKeys lets ReceiptKeys return the last good keys, which are the checker's own where none
// are given.
func (o *Options) keepGoodKeys() error {
	given := o.ReceiptKeys
	if given == nil {
		own := events.NewReceiptKeys()
		o.ReceiptKeys = func() events.ReceiptKeys { return own }
		return nil
	}
	first := given()
	if err := first.Check(); err != nil {
		return fmt.Errorf("check: ReceiptKeys: %w", err)
	}
	var last atomic.Pointer[events.ReceiptKeys]
	last.Store(&first)
	o.ReceiptKeys = func() events.ReceiptKeys {
		keys := given()
		if keys.Check() != nil {
			return *last.Load()
		}
		last.Store(&keys)
		return keys
	}
	return nil
}

// CheckReceipt is Check for a hit whose true cost is known only later, when it has been served. If the hit may pass, receipt
// names what it was charged with, for one call of Settle, here or at any other checker of the fleet; else it is "". The
// receipt is of letters, digits, - and _, about 100 for each rule and 60 more; it is no secret, and nobody can make or change one without
// the fleet's key (Options.ReceiptKeys). Whoever drops it leaves the hit at its estimate.
//
// If some of the rules that match take their cost from an attribute, Settle is about these, and leaves the
// others as they are, such as a limit of requests beside one of what they cost. Otherwise it is about all of them.
//
// It takes the locks of the keys, and allocates: it costs about a microsecond.
func (c *Checker) CheckReceipt(attrs identity.Attributes, cost int64) (d Decision, receipt string) {
	p := c.program.Load()
	return c.checkReceipt(p, c.now(p), attrs, max(cost, 1))
}

// CheckReceiptAt is CheckReceipt at a given time of this checker's own clock, in Unix nanoseconds.
func (c *Checker) CheckReceiptAt(now int64, attrs identity.Attributes, cost int64) (d Decision, receipt string) {
	return c.checkReceipt(c.program.Load(), c.clock.Fleet(now), attrs, max(cost, 1))
}

func (c *Checker) checkReceipt(p *program, now int64, attrs identity.Attributes, cost int64) (d Decision, receipt string) {
	a := c.scratch.Get().(*asking)
	defer c.scratch.Put(a)
	if !a.match(p, attrs, now, cost, charging) {
		c.check(&d, p, now, attrs, cost)
		return d, ""
	}
	if len(a.asked) == 0 {
		d.Allowed, d.Freshness = true, Freshness(c.freshness.Load())
		return d, a.receipt(c, now)
	}
	return a.checkReceipt(c, attrs, now)
}

// CheckReceipt is [Checker.CheckReceipt] for a hit against key under this limiter's rule.
func (l *Limiter) CheckReceipt(key string, cost int64) (d Decision, receipt string) {
	return l.checkReceipt(l.now(), key, cost)
}

// CheckReceiptAt is CheckReceipt at a given time of this checker's own clock, in Unix nanoseconds.
func (l *Limiter) CheckReceiptAt(now int64, key string, cost int64) (d Decision, receipt string) {
	return l.checkReceipt(l.checker.clock.Fleet(now), key, cost)
}

func (l *Limiter) checkReceipt(now int64, key string, cost int64) (d Decision, receipt string) {
	a := l.checker.scratch.Get().(*asking)
	defer l.checker.scratch.Put(a)
	a.askAlone(l, l.terms.Load(), now, key, max(cost, 1), charging)
	d, receipt = a.checkReceipt(l.checker, nil, now)
	d.ownShadow()
	return d, receipt
}

// AcquireReceipt is Acquire for a hit whose true cost is known only later, see CheckReceipt.
func (c *Checker) AcquireReceipt(ctx context.Context, attrs identity.Attributes, cost int64) (d Decision, receipt string, err error) {
	p := c.program.Load()
	if !p.strict {
		d, receipt = c.CheckReceipt(attrs, cost)
		return d, receipt, nil
	}
	a := c.scratch.Get().(*asking)
	defer c.scratch.Put(a)
	if !a.match(p, attrs, c.now(p), max(cost, 1), charging) || len(a.asked) == 0 {
		d, receipt = c.CheckReceipt(attrs, cost)
		return d, receipt, nil
	}
	return a.acquireReceipt(ctx, c, attrs, max(cost, 1))
}

// AcquireReceipt is [Checker.AcquireReceipt] for a hit against key under this limiter's rule.
func (l *Limiter) AcquireReceipt(ctx context.Context, key string, cost int64) (d Decision, receipt string, err error) {
	if l.strict == nil {
		d, receipt = l.CheckReceipt(key, cost)
		return d, receipt, nil
	}
	a := l.checker.scratch.Get().(*asking)
	defer l.checker.scratch.Put(a)
	a.askAlone(l, l.terms.Load(), l.now(), key, max(cost, 1), charging)
	d, receipt, err = a.acquireReceipt(ctx, l.checker, nil, max(cost, 1))
	d.ownShadow()
	return d, receipt, err
}

func (a *asking) acquireReceipt(ctx context.Context, c *Checker, attrs identity.Attributes, cost int64) (d Decision, receipt string, err error) {
	a.exact = true
	a.mayBeSettled()
	d, err = a.acquire(ctx, c, attrs, cost)
	a.exact = false
	if d.Allowed {
		receipt = a.receipt(c, c.exactTime())
	}
	return d, receipt, err
}

// checkReceipt decides for what is asked, and makes the receipt of what was charged.
func (a *asking) checkReceipt(c *Checker, attrs identity.Attributes, now int64) (d Decision, receipt string) {
	a.mayBeSettled()
	a.decide(&d, attrs, now)
	if !d.Allowed {
		return d, ""
	}
	return d, a.receipt(c, now)
}

// mayBeSettled notes, before they are charged, that hits of what is asked may be settled: so no report of them leaves that out.
func (a *asking) mayBeSettled() {
	for i := range a.asked {
		if l := a.asked[i].limiter; !l.settles.Load() {
			l.settles.Store(true)
		}
	}
}

// receipt is that of a hit that was charged at the fleet's time now.
func (a *asking) receipt(c *Checker, now int64) string {
	m := &events.Receipt{Epoch: c.o.Epoch, Made: now}
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
	m.Number = c.receipts.Add(numbers) - numbers + 1
	text, err := c.o.ReceiptKeys().Encode(m)
	if err != nil {
		panic("check: " + err.Error()) // unreachable: the message has no field that can fail
	}
	return text
}
