package check

import "errors"

// Do decides one request in one of several modes. It does no I/O and does not wait. It costs a
// little more than [Checker.Check] and [Limiter.Check].
func (c *Checker) Do(r Request) (res Result) {
	by, err := c.deciderOf(&r)
	if err != nil {
		return Result{Err: err}
	}
	cost, now := max(r.Cost, 1), by.now(c)
	switch {
	case r.Mode == Peek || r.Mode > Standing || r.Mode >= Explain && by.limiter != nil:
		res.Decision = c.peek(by, now+int64(r.Ahead), r.Attributes, r.Key, cost)
	case r.Mode == Explain:
		res.Decision, res.Explanations = c.explain(by, now+int64(r.Ahead), r.Attributes, cost)
	case r.Mode == Standing:
		res.Explanations = c.standing(by.program, now+int64(r.Ahead), r.Attributes, cost)
		res.Freshness = Freshness(c.host.Freshness())
	case r.Mode != Charge || r.Receipt:
		c.charge(&res, by, now, &r)
	case by.limiter != nil:
		by.limiter.checkBy(&res.Decision, by.limits, now, r.Key, cost)
	default:
		c.check(&res.Decision, by.program, now, r.Attributes, cost)
	}
	return res
}

func (c *Checker) deciderOf(r *Request) (by decider, err error) {
	switch {
	case r.Inline != nil:
		by.limiter, by.limits, err = c.inline.limiter(&c.host, r.Inline)
	case r.Limiter != nil && r.Limiter.group.Host != &c.host:
		err = errForeignLimiter
	case r.Limiter != nil:
		by.limiter, by.limits = r.Limiter, r.Limiter.limits.Load()
	case r.Key != "":
		err = errNoLimiter
	default:
		by.program = c.ruleset.Load()
		return by, nil
	}
	r.Attributes = nil
	return by, err
}

// charge charges a request in a mode that Check does not have, or with a receipt.
func (c *Checker) charge(res *Result, by decider, now int64, r *Request) {
	a := newEvaluation(&c.host)
	defer a.free()
	purpose := charging
	switch r.Mode {
	case Record:
		purpose = recording
	case Reserve:
		purpose = reserving
	}
	switch {
	case !a.fill(by, now, r.Attributes, r.Key, max(r.Cost, 1), purpose):
		a.denyBarred(&res.Decision, r.Attributes, now)
		return
	case purpose == recording:
		a.record(now)
		return
	case len(a.decisions) == 0:
		a.allowUnmatched(&res.Decision, c)
	default:
		if r.Receipt {
			a.mayBeSettled()
		}
		res.reservation = a.decide(&res.Decision, r.Attributes, now)
	}
	if res.reservation != nil {
		res.Delay = res.reservation.delay
	}
	if by.limiter != nil {
		res.ownShadow()
	}
	if r.Receipt && res.Allowed {
		res.Receipt = a.receipt(c, now)
	}
}

var (
	errNoLimiter      = errors.New("check: a request with a key needs a limiter or an inline limit")
	errForeignLimiter = errors.New("check: the limiter belongs to another checker")
)
