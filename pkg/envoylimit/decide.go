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
	a.together = a.service.settler != nil && a.haveKeyInCommon()
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
		d, err := s.own.CheckOwn(q.own.limit, q.own.key, q.cost)
		q.decision = d
		return ofOwn(err)
	case s.acquirer != nil && a.prepared.strict && wait:
		ctx, cancel := context.WithTimeout(ctx, s.wait(ctx))
		defer cancel()
		if a.together {
			q.decision, q.receipt, _ = s.settler.AcquireReceipt(ctx, a.attributes(q), q.cost)
			return nil
		}
		q.decision, _ = s.acquirer.Acquire(ctx, a.attributes(q), q.cost) // an error is that time was up: a denial
	case a.together:
		q.decision, q.receipt = s.settler.CheckReceipt(a.attributes(q), q.cost)
	default:
		q.decision = s.checker.Check(a.attributes(q), q.cost)
	}
	return nil
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
	s := a.service
	switch {
	case q.isForegone():
	case q.own != nil:
		d, err := s.own.PeekOwn(q.own.limit, q.own.key, q.cost)
		q.decision = d
		return ofOwn(err)
	default:
		q.decision = s.checker.Peek(a.attributes(q), q.cost)
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
