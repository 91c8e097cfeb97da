package envoylimit

import (
	"context"
	"net/http"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/offpath-io/offpath/pkg/check"
)

// decide makes all decisions, and charges all descriptors or none: see the package comment.
func (c *call) decide(ctx context.Context) error {
	if len(c.descriptors) == 1 && !c.descriptors[0].peek {
		return c.check(ctx, &c.descriptors[0], true)
	}
	for i := range c.descriptors {
		if err := c.peek(&c.descriptors[i]); err != nil {
			return err
		}
	}
	c.settleUnmatched()
	c.shared = c.shareKey()
	over, err := c.charge(ctx)
	if over || err != nil {
		c.refund()
	}
	return err
}

// settleUnmatched decides the descriptors that no rule matches. A request consists of all of its
// descriptors: if a rule matches one of them, the others pass. If none does, the first of those
// that are charged decides and counts for all.
func (c *call) settleUnmatched() {
	matched := slices.ContainsFunc(c.descriptors, func(q descriptor) bool { return !q.decision.Unmatched })
	first := true
	for i := range c.descriptors {
		q := &c.descriptors[i]
		switch {
		case !q.decision.Unmatched:
		case matched:
			q.decision, q.peek = check.Decision{Allowed: true}, true
		case q.peek:
		default:
			q.peek, first = !first, false
		}
	}
}

// charge first checks the descriptors that will probably be denied, so that denials are counted and
// permits requested. Then, if none is denied, it checks all others.
func (c *call) charge(ctx context.Context) (over bool, err error) {
	for i := range c.descriptors { // these are decided
		q := &c.descriptors[i]
		over = over || q.peek && c.denies(q)
	}
	for i := range c.descriptors {
		q := &c.descriptors[i]
		if q.peek || q.decision.Allowed {
			continue
		}
		if err := c.check(ctx, q, !over); err != nil { // after a denial, waiting is useless
			return over, err
		}
		q.peek = true // it is decided
		over = over || c.denies(q)
	}
	over = over || c.quotasUsedUp()
	for i := range c.descriptors {
		q := &c.descriptors[i]
		if over || q.peek {
			continue
		}
		if err := c.check(ctx, q, true); err != nil {
			return over, err
		}
		over = c.denies(q) || c.quotasUsedUp()
	}
	return over, nil
}

// denies reports whether a descriptor denies the request by itself.
func (c *call) denies(q *descriptor) bool {
	return !q.decision.Allowed && !q.quota && !c.service.options.Shadow
}

// quotasUsedUp reports whether there are descriptors with quota_mode, and all of them are over
// their limits: then these deny the request.
func (c *call) quotasUsedUp() bool {
	some := false
	for i := range c.descriptors {
		if q := &c.descriptors[i]; q.quota && q.decision.Allowed {
			return false
		} else if q.quota {
			some = true
		}
	}
	return some && !c.service.options.Shadow
}

// check decides about a descriptor, and charges it if it may pass. With wait it may wait for
// permits.
func (c *call) check(ctx context.Context, q *descriptor, wait bool) error {
	s := c.service
	switch {
	case q.decideEarly():
	case q.inline != nil:
		return c.checkInline(q, check.Charge)
	case s.options.Acquire > 0 && c.plan.strict && wait:
		ctx, cancel := context.WithTimeout(ctx, s.wait(ctx))
		defer cancel()
		r, _ := s.checker.Wait(ctx, c.request(q)) // an error means a time-out, and a denial
		q.decision, q.receipt = r.Decision, r.Receipt
	case c.shared:
		r := s.checker.Do(c.request(q))
		q.decision, q.receipt = r.Decision, r.Receipt
	default:
		q.decision = s.checker.Check(c.attributes(q), q.cost)
	}
	return nil
}

func (c *call) request(q *descriptor) check.Request {
	return check.Request{Attributes: c.attributes(q), Cost: q.cost, Receipt: c.shared}
}

// checkInline decides about a descriptor with an inline limit. Its error means that there are too
// many names of inline limits: other errors have been refused before.
func (c *call) checkInline(q *descriptor, mode check.Mode) error {
	r := c.service.checker.Do(check.Request{
		Inline: &q.inline.limit, Key: q.inline.key, Cost: q.cost, Mode: mode,
	})
	if r.Err != nil {
		return status.Error(codes.ResourceExhausted, r.Err.Error())
	}
	q.decision = r.Decision
	return nil
}

// wait returns how long a request may wait for permits. The answer must arrive before the client's
// time-out: Envoy lets a request pass that is not denied in time.
func (s *Service) wait(ctx context.Context) time.Duration {
	if until, ok := ctx.Deadline(); ok {
		return min(s.options.Acquire, time.Until(until)*3/4)
	}
	return s.options.Acquire
}

// peek decides about a descriptor, and charges nothing.
func (c *call) peek(q *descriptor) error {
	switch {
	case q.decideEarly():
	case q.inline != nil:
		return c.checkInline(q, check.Peek)
	default:
		r := check.Request{Attributes: c.attributes(q), Cost: q.cost, Mode: check.Peek}
		q.decision = c.service.checker.Do(r).Decision
	}
	return nil
}

// decideEarly decides about a descriptor whose decision depends on no count, and reports whether it
// did.
func (q *descriptor) decideEarly() bool {
	switch {
	case q.exempt:
		q.decision = check.Decision{Allowed: true}
	case q.inline != nil && q.inline.limit.Limit == 0:
		shape, now := q.inline.limit.Window, time.Now().UnixNano()
		reset := time.Duration(shape.End(shape.Bucket(now)) - now)
		q.decision = check.Decision{
			Status: http.StatusTooManyRequests, RetryAfter: check.Never, Reset: reset,
		}
	default:
		return false
	}
	return true
}
