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
	CheckToken(cost int64) (check.Decision, string)
	AcquireToken(ctx context.Context, cost int64) (check.Decision, string, error)
	Wait(ctx context.Context, cost int64) (check.Decision, error)
	Peek(cost int64) check.Decision
	Record(cost int64)
}

// target finds what a question is about.
func (h *handler) target(q question) (target, error) {
	if q.hasAttributes {
		return byAttributes{h.checker, q.attributes}, nil
	}
	l, ok := h.checker.Limiter(q.rule)
	if !ok {
		return nil, errors.New("rule " + strconv.Quote(q.rule) + ": there is no such rule")
	}
	return byKey{l, q.key}, nil
}

type byAttributes struct {
	checker    *check.Checker
	attributes identity.Attributes
}

func (t byAttributes) Check(cost int64) check.Decision { return t.checker.Check(t.attributes, cost) }

func (t byAttributes) Acquire(ctx context.Context, cost int64) (check.Decision, error) {
	return t.checker.Acquire(ctx, t.attributes, cost)
}

func (t byAttributes) CheckToken(cost int64) (check.Decision, string) {
	return t.checker.CheckToken(t.attributes, cost)
}

func (t byAttributes) AcquireToken(ctx context.Context, cost int64) (check.Decision, string, error) {
	return t.checker.AcquireToken(ctx, t.attributes, cost)
}

func (t byAttributes) Wait(ctx context.Context, cost int64) (check.Decision, error) {
	return t.checker.Wait(ctx, t.attributes, cost)
}

func (t byAttributes) Peek(cost int64) check.Decision { return t.checker.Peek(t.attributes, cost) }

func (t byAttributes) Record(cost int64) { t.checker.Record(t.attributes, cost) }

type byKey struct {
	limiter *check.Limiter
	key     string
}

func (t byKey) Check(cost int64) check.Decision { return t.limiter.Check(t.key, cost) }

func (t byKey) Acquire(ctx context.Context, cost int64) (check.Decision, error) {
	return t.limiter.Acquire(ctx, t.key, cost)
}

func (t byKey) CheckToken(cost int64) (check.Decision, string) {
	return t.limiter.CheckToken(t.key, cost)
}

func (t byKey) AcquireToken(ctx context.Context, cost int64) (check.Decision, string, error) {
	return t.limiter.AcquireToken(ctx, t.key, cost)
}

func (t byKey) Wait(ctx context.Context, cost int64) (check.Decision, error) {
	return t.limiter.Wait(ctx, t.key, cost)
}

func (t byKey) Peek(cost int64) check.Decision { return t.limiter.Peek(t.key, cost) }

func (t byKey) Record(cost int64) { t.limiter.Record(t.key, cost) }
