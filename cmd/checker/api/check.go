package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/offpath-io/offpath/cmd/internal/reply"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/rules"
)

// Answers is the body of the answer to a batch.
type Answers struct {
	// Answers has one element per request, in their order.
	Answers []BatchAnswer `json:"answers"`
}

// BatchAnswer is the answer to one request of a batch. Except for Retry-After, it is what the
// request would have been answered alone.
type BatchAnswer struct {
	// Status is 200, 429 or 503.
	Status int `json:"status"`
	Answer
}

// serveCheck answers a request, or a batch of them.
func (h *handler) serveCheck(ctx context.Context, w http.ResponseWriter, body []byte) {
	one, batch, err := decode(body, "checks", "request", blankRequest)
	if refuse(w, body, batch != nil, err) {
		return
	}
	if batch != nil {
		h.checkBatch(ctx, w, batch)
		return
	}
	r, err := h.resolve(one)
	if err != nil {
		reply.Error(w, http.StatusBadRequest, err.Error())
		return
	}
	status, a := h.decide(ctx, r, one.mode)
	writeAnswer(w, status, a)
}

// checkBatch answers each request of a batch by itself, in order. An invalid one refuses them all,
// before any is charged. All of them together wait for permits no longer than one alone would.
func (h *handler) checkBatch(ctx context.Context, w http.ResponseWriter, batch []request) {
	resolved := make([]check.Request, len(batch))
	for i, r := range batch {
		var err error
		resolved[i], err = h.resolve(r)
		if err == nil && r.mode == modeWait {
			err = errors.New(`"mode": "wait" is for a request that comes alone`)
		}
		if err != nil {
			reply.Error(w, http.StatusBadRequest, fmt.Sprintf(`"checks"[%d]: %v`, i, err))
			return
		}
	}
	if h.needsPermits() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, h.wait)
		defer cancel()
	}
	answers := make([]BatchAnswer, len(batch))
	for i, r := range resolved {
		answers[i].Status, answers[i].Answer = h.decide(ctx, r, batch[i].mode)
	}
	reply.JSON(w, http.StatusOK, Answers{answers})
}

// resolve returns the checker's request for a request of the API.
func (h *handler) resolve(from request) (check.Request, error) {
	r := check.Request{
		Attributes: from.attributes, Key: from.key, Cost: from.cost,
		Mode: modes[from.mode], Receipt: from.settle,
	}
	if from.hasAttributes {
		return r, nil
	}
	l, ok := h.checker.Limiter(from.rule)
	if !ok {
		return r, fmt.Errorf("rule %q: there is no such rule", from.rule)
	}
	r.Limiter = l
	return r, nil
}

// decide executes a request. An error of Wait means that time is up or the client has gone; the
// decision is a denial then.
func (h *handler) decide(ctx context.Context, r check.Request, m mode) (status int, a Answer) {
	var result check.Result
	switch {
	case m == modeWait:
		ctx, cancel := context.WithTimeout(ctx, MostWait)
		defer cancel()
		result, _ = h.checker.Wait(ctx, r)
	case m == modeCheck && h.needsPermits():
		ctx, cancel := context.WithTimeout(ctx, h.wait)
		defer cancel()
		result, _ = h.checker.Wait(ctx, r)
	default:
		result = h.checker.Do(r)
	}
	if m == modeRecord {
		r.Mode, r.Cost = check.Peek, 1
		return http.StatusOK, NewAnswer(h.checker.Do(r).Decision)
	}
	a = NewAnswer(result.Decision)
	a.Receipt = result.Receipt
	if m == modeReserve && result.Allowed {
		a.DelayMS = new(ceil(result.Delay, time.Millisecond))
	}
	if result.Allowed {
		return http.StatusOK, a
	}
	return cmp.Or(result.Status, http.StatusTooManyRequests), a
}

// permits says whether a set of rules needs permits.
type permits struct {
	set    *rules.Set
	needed bool
}

// needsPermits reports whether requests may have to wait for permits. Others need no deadline,
// which would take a good part of the time of a request. While the rules change, a request may be
// answered without waiting.
func (h *handler) needsPermits() bool {
	if h.wait <= 0 {
		return false
	}
	set, p := h.checker.Rules(), h.permits.Load()
	if p == nil || p.set != set {
		isStrict := func(r *rules.Rule) bool { return r.Enforcement == rules.Strict }
		p = &permits{set, slices.ContainsFunc(set.Rules(), isStrict)}
		h.permits.Store(p)
	}
	return p.needed
}
