package door

import (
	"context"
	"errors"
	"strconv"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/identity"
)

// target is what a question is about, attributes or a rule and a key, with everything that can be done to it.
type target interface {
	Check(cost int64) check.Decision
	Acquire(ctx context.Context, cost int64) (check.Decision, error)
	CheckReceipt(cost int64) (check.Decision, string)
	AcquireReceipt(ctx context.Context, cost int64) (check.Decision, string, error)
	Wait(ctx context.Context, cost int64) (check.Decision, error)
	Reserve(cost int64) (*check.Reservation, check.Decision)
	ReserveReceipt(cost int64) (*check.Reservation, check.Decision, string)
	Peek(cost int64) check.Decision
	Record(cost int64)
}

// target finds what a question is about.
func (h *handler) target(q question) (target, error) {
	if q.hasAttributes {
		return about[identity.Attributes]{h.checker, q.attributes}, nil
	}
	l, ok := h.checker.Limiter(q.rule)
	if !ok {
		return nil, errors.New("rule " + strconv.Quote(q.rule) + ": there is no such rule")
	}
	return about[string]{l, q.key}, nil
}

// asked decides about whos: a checker about attributes, a limiter about keys.
type asked[W any] interface {
	Check(who W, cost int64) check.Decision
	Acquire(ctx context.Context, who W, cost int64) (check.Decision, error)
	CheckReceipt(who W, cost int64) (check.Decision, string)
	AcquireReceipt(ctx context.Context, who W, cost int64) (check.Decision, string, error)
	Wait(ctx context.Context, who W, cost int64) (check.Decision, error)
	Reserve(who W, cost int64) (*check.Reservation, check.Decision)
	ReserveReceipt(who W, cost int64) (*check.Reservation, check.Decision, string)
	Peek(who W, cost int64) check.Decision
	Record(who W, cost int64)
}

// about is the target that one of these is asked about.
type about[W any] struct {
	asked asked[W]
	who   W
}

func (t about[W]) Check(cost int64) check.Decision {
	return t.asked.Check(t.who, cost)
}

func (t about[W]) Acquire(ctx context.Context, cost int64) (check.Decision, error) {
	return t.asked.Acquire(ctx, t.who, cost)
}

func (t about[W]) CheckReceipt(cost int64) (check.Decision, string) {
	return t.asked.CheckReceipt(t.who, cost)
}

func (t about[W]) AcquireReceipt(ctx context.Context, cost int64) (check.Decision, string, error) {
	return t.asked.AcquireReceipt(ctx, t.who, cost)
}

func (t about[W]) Wait(ctx context.Context, cost int64) (check.Decision, error) {
	return t.asked.Wait(ctx, t.who, cost)
}

func (t about[W]) Reserve(cost int64) (*check.Reservation, check.Decision) {
	return t.asked.Reserve(t.who, cost)
}

func (t about[W]) ReserveReceipt(cost int64) (*check.Reservation, check.Decision, string) {
	return t.asked.ReserveReceipt(t.who, cost)
}

func (t about[W]) Peek(cost int64) check.Decision {
	return t.asked.Peek(t.who, cost)
}

func (t about[W]) Record(cost int64) {
	t.asked.Record(t.who, cost)
}
