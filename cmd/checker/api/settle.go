package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/offpath-io/offpath/cmd/internal/reply"
	"github.com/offpath-io/offpath/pkg/check"
)

// Settled is the body of the answer to a batch of settlements.
type Settled struct {
	// Answers has one element per settlement, in their order.
	Answers []SettledAnswer `json:"answers"`
}

// SettledAnswer is the answer to one settlement of a batch: the one it would have had alone.
type SettledAnswer struct {
	// Status is 204, 400, 409, 410 or 503.
	Status int `json:"status"`
	// Error is the reason, "" if the settlement is accepted.
	Error string `json:"error,omitempty"`
}

// serveSettle settles a cost, or a batch of them, each by itself.
func (h *handler) serveSettle(_ context.Context, w http.ResponseWriter, body []byte) {
	one, batch, err := decode(body, "settlements", "settlement", settlement{})
	if refuse(w, body, batch != nil, err) {
		return
	}
	if batch != nil {
		answers := make([]SettledAnswer, len(batch))
		for i, s := range batch {
			answers[i] = h.settle(s)
		}
		reply.JSON(w, http.StatusOK, Settled{answers})
		return
	}
	switch a := h.settle(one); a.Status {
	case http.StatusNoContent:
		w.WriteHeader(a.Status)
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "1")
		fallthrough
	default:
		reply.Error(w, a.Status, a.Error)
	}
}

func (h *handler) settle(s settlement) SettledAnswer {
	err := h.checker.Settle(s.receipt, s.cost)
	switch {
	case err == nil:
		return SettledAnswer{Status: http.StatusNoContent}
	case errors.Is(err, check.ErrSettled):
		return SettledAnswer{http.StatusConflict, err.Error()}
	case errors.Is(err, check.ErrReceiptAge):
		return SettledAnswer{http.StatusGone, err.Error()}
	case errors.Is(err, check.ErrSettling):
		return SettledAnswer{http.StatusServiceUnavailable, err.Error()}
	}
	return SettledAnswer{http.StatusBadRequest, err.Error()}
}

// settlement is a body, or an element of a batch.
type settlement struct {
	receipt string
	cost    int64

	hasReceipt, hasCost bool
}

func (s *settlement) readField(r *reader, name string) (err error) {
	switch name {
	case "receipt":
		s.hasReceipt = true
		s.receipt, err = r.string(`"receipt"`)
	case "cost":
		s.hasCost = true
		s.cost, err = r.cost(0)
	default:
		err = unknown(name)
	}
	return err
}

func (s *settlement) validate() error {
	if !s.hasReceipt || !s.hasCost {
		return errors.New(`"receipt" and "cost": want both`)
	}
	return nil
}
