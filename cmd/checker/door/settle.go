package door

import (
	"context"
	"errors"
	"net/http"

	"github.com/offpath-io/offpath/pkg/check"
)

// SettlePath is where the true cost of a hit is settled.
const SettlePath = "/v1/settle"

// Settled is the body of the answer to a batch of settlements.
type Settled struct {
	// Answers are as many as there are settlements, in their order.
	Answers []SettledAnswer `json:"answers"`
}

// SettledAnswer is what one settlement of a batch would have been answered alone.
type SettledAnswer struct {
	// Status is 204, 400, 409, 410 or 503.
	Status int `json:"status"`
	// Error is the reason, "" if the settlement is taken in.
	Error string `json:"error,omitempty"`
}

// settle takes a true cost in, or a batch of them, each by itself.
func (h *handler) settle(_ context.Context, w http.ResponseWriter, body []byte) {
	b, batch, err := decodeSettle(body)
	switch {
	case tooLong(body, batch != nil):
		refuseLong(w, MaxBody)
	case err != nil:
		refuse(w, http.StatusBadRequest, err.Error())
	case batch != nil:
		answers := make([]SettledAnswer, len(batch))
		for i, b := range batch {
			answers[i] = h.pay(b)
		}
		write(w, http.StatusOK, Settled{answers})
	default:
		a := h.pay(b)
		if a.Error == "" {
			w.WriteHeader(a.Status)
			return
		}
		if a.Status == http.StatusServiceUnavailable {
			w.Header().Set("Retry-After", "1")
		}
		refuse(w, a.Status, a.Error)
	}
}

// pay settles one bill.
func (h *handler) pay(b bill) SettledAnswer {
	err := h.checker.Settle(b.receipt, b.cost)
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

// bill is what a body settles, or one of a batch.
type bill struct {
	receipt string
	cost    int64

	hasReceipt, hasCost bool
}

// decodeSettle reads a body that is one bill, or a batch of them, which is nil if it is none.
func decodeSettle(body []byte) (b bill, batch []bill, err error) {
	err = readBody("body", body, func(r *reader) error {
		alone := false
		err := r.object("body", func(name string) error {
			if name != "settlements" {
				alone = true
				return r.bill(&b, name)
			}
			batch = []bill{}
			return r.list(`"settlements"`, MaxBatch, func(int) error {
				var one bill
				err := r.object("settlement", func(name string) error { return r.bill(&one, name) })
				batch = append(batch, one)
				return orCheck(err, one)
			})
		})
		switch {
		case err != nil:
			return err
		case batch == nil:
			return b.check()
		case alone:
			return errors.New(`"settlements" and something else: want it alone`)
		}
		return nil
	})
	return b, batch, err
}

// billFields read the values of a bill's fields, by their names.
var billFields = map[string]func(*reader, *bill) error{
	"receipt": func(r *reader, b *bill) (err error) {
		b.hasReceipt = true
		b.receipt, err = r.string(`"receipt"`)
		return err
	},
	"cost": func(r *reader, b *bill) (err error) {
		b.hasCost = true
		b.cost, err = r.cost(0)
		return err
	},
}

// bill reads the value of a field.
func (r *reader) bill(b *bill, name string) error {
	if read, ok := billFields[name]; ok {
		return read(r, b)
	}
	return unknown(name)
}

func (b bill) check() error {
	if !b.hasReceipt || !b.hasCost {
		return errors.New(`"receipt" and "cost": want both`)
	}
	return nil
}

func orCheck(err error, b bill) error {
	if err != nil {
		return err
	}
	return b.check()
}
