package check

import (
	"errors"

	"github.com/offpath-io/offpath/pkg/check/internal/evaluation"
	"github.com/offpath-io/offpath/pkg/check/internal/ruleset"
)

// Do decides one request in one of several modes. It does no I/O and does not wait. It costs a
// little more than [Checker.Check] and [Limiter.Check].
func (c *Checker) Do(r Request) (res Result) {
	by, err := c.deciderOf(&r)
	if err != nil {
		return Result{Err: err}
	}
	cost, now := max(r.Cost, 1), by.Now(&c.host)
	switch {
	case r.Mode == Peek || r.Mode > Standing || r.Mode >= Explain && by.Limiter != nil:
		res.Decision = Decision(evaluation.Peek(&c.host, by, now+int64(r.Ahead), r.Attributes, r.Key, cost))
	case r.Mode == Explain:
		d, all := evaluation.Explain(&c.host, by.Rules, now+int64(r.Ahead), r.Attributes, cost)
		res.Decision, res.Explanations = Decision(d), explanations(all)
	case r.Mode == Standing:
		d, all := evaluation.Standing(&c.host, by.Rules, now+int64(r.Ahead), r.Attributes, cost)
		res.Decision, res.Explanations = Decision(d), explanations(all)
	case r.Mode != Charge || r.Receipt:
		c.charge(&res, by, now, &r)
	case by.Limiter != nil:
		evaluation.CheckKey((*evaluation.Decision)(&res.Decision), by.Limiter, by.Limits, now, r.Key, cost)
	default:
		evaluation.Check((*evaluation.Decision)(&res.Decision), &c.host, by.Rules, now, r.Attributes, cost)
	}
	return res
}

func explanations(of []evaluation.Explanation) []Explanation {
	all := make([]Explanation, len(of))
	for i := range of {
		all[i] = Explanation(of[i])
	}
	return all
}

func (c *Checker) deciderOf(r *Request) (by evaluation.Decider, err error) {
	switch {
	case r.Inline != nil:
		by.Limiter, by.Limits, err = c.inline.Limiter(&c.host, (*ruleset.InlineLimit)(r.Inline))
	case r.Limiter != nil && r.Limiter.core.Group.Host != &c.host:
		err = errForeignLimiter
	case r.Limiter != nil:
		by.Limiter = &r.Limiter.core
		by.Limits = by.Limiter.Current.Load()
	case r.Key != "":
		err = errNoLimiter
	default:
		by.Rules = c.ruleset.Load()
		return by, nil
	}
	r.Attributes = nil
	return by, err
}

// charge charges a request in a mode that Check does not have, or with a receipt.
func (c *Checker) charge(res *Result, by evaluation.Decider, now int64, r *Request) {
	to := evaluation.Charging
	switch r.Mode {
	case Record:
		to = evaluation.Recording
	case Reserve:
		to = evaluation.Reserving
	}
	charged := evaluation.Charge(&c.host, by, now, r.Attributes, r.Key, max(r.Cost, 1), to, r.Receipt)
	res.Decision, res.reservation = Decision(charged.Decision), charged.Reservation
	if res.reservation != nil {
		res.Delay = res.reservation.Delay
	}
	if r.Receipt && res.Allowed {
		res.Receipt = c.receipt(charged.Charges, now)
	}
}

var (
	errNoLimiter      = errors.New("check: a request with a key needs a limiter or an inline limit")
	errForeignLimiter = errors.New("check: the limiter belongs to another checker")
)
