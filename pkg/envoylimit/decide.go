package envoylimit

import (
	"context"
	"net/http"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/offpath-io/offpath/pkg/check"
)

// decide fills in all decisions, and charges all descriptors or none: see the comment of the package.
func (a *asking) decide(ctx context.Context) error {
	if len(a.asked) == 1 && !a.asked[0].look {
		return a.check(ctx, &a.asked[0], true)
	}
	for i := range a.asked {
		if err := a.peek(&a.asked[i]); err != nil {
			return err
		}
	}
	a.together = a.haveKeyInCommon()
	over, err := a.charge(ctx)
	if over || err != nil {
		a.giveBack()
	}
	return err
}

// charge asks those that will probably be denied first, so that their rules hear of it: denials are counted, and
// permits are asked for. Then, if none is denied, all others.
func (a *asking) charge(ctx context.Context) (over bool, err error) {
	for i := range a.asked { // what is only looked at is decided
		q := &a.asked[i]
		over = over || q.look && !q.decision.Allowed
	}
	for i := range a.asked {
		q := &a.asked[i]
		if q.look || q.decision.Allowed {
			continue
		}
		if err := a.check(ctx, q, !over); err != nil { // after a denial nothing is worth waiting for
			return over, err
		}
		q.look = true // it has been asked
		over = over || !q.decision.Allowed
	}
	for i := range a.asked {
		q := &a.asked[i]
		if over || q.look {
			continue
		}
		if err := a.check(ctx, q, true); err != nil {
			return over, err
		}
		over = !q.decision.Allowed
	}
	return over, nil
}

// check decides for a descriptor, and charges it if it may pass. It may wait for permits if it is told to.
func (a *asking) check(ctx context.Context, q *question, wait bool) error {
	s := a.service
	switch {
	case q.isForegone():
	case q.own != nil:
		return a.checkOwn(q, check.Charge)
	case s.options.Acquire > 0 && a.prepared.strict && wait:
		ctx, cancel := context.WithTimeout(ctx, s.wait(ctx))
		defer cancel()
		r, _ := s.checker.Wait(ctx, a.request(q)) // an error is that time was up: a denial
		q.decision, q.receipt = r.Decision, r.Receipt
	case a.together:
		r := s.checker.Do(a.request(q))
		q.decision, q.receipt = r.Decision, r.Receipt
	default:
		q.decision = s.checker.Check(a.attributes(q), q.cost)
	}
	return nil
}

func (a *asking) request(q *question) check.Request {
	return check.Request{Attributes: a.attributes(q), Cost: q.cost, Receipt: a.together}
}

// checkOwn decides for a descriptor with a limit of its own.
func (a *asking) checkOwn(q *question, mode check.Mode) error {
	r := a.service.checker.Do(check.Request{Inline: &q.own.limit, Key: q.own.key, Cost: q.cost, Mode: mode})
	q.decision = r.Decision
	return ofOwn(r.Err)
}

// wait is how long a request may wait for permits. Who asks has to hear the answer before he gives up: Envoy lets pass what
// nobody denies in time.
func (s *Service) wait(ctx context.Context) time.Duration {
	if until, ok := ctx.Deadline(); ok {
		return min(s.options.Acquire, time.Until(until)*3/4)
	}
	return s.options.Acquire
}

// peek is check without the charge.
func (a *asking) peek(q *question) error {
	switch {
	case q.isForegone():
	case q.own != nil:
		return a.checkOwn(q, check.Peek)
	default:
		r := check.Request{Attributes: a.attributes(q), Cost: q.cost, Mode: check.Peek}
		q.decision = a.service.checker.Do(r).Decision
	}
	return nil
}

// isForegone decides for a descriptor that no count matters to; false if one does.
func (q *question) isForegone() bool {
	switch {
	case q.spared:
		q.decision = check.Decision{Allowed: true}
	case q.own != nil && q.own.limit.Limit == 0:
		shape, now := q.own.limit.Window, time.Now().UnixNano()
		reset := time.Duration(shape.End(shape.Bucket(now)) - now)
		q.decision = check.Decision{Status: http.StatusTooManyRequests, RetryAfter: check.Never, Reset: reset}
	default:
		return false
	}
	return true
}

// ofOwn is the error of an own limit as gRPC has it. What a request can get wrong has been refused before: there are too
// many names.
func ofOwn(err error) error {
	if err == nil {
		return nil
	}
	return status.Error(codes.ResourceExhausted, err.Error())
}
