package door

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/offpath-io/offpath/pkg/check"
)

// Answers is the body of the answer to a batch.
type Answers struct {
	// Answers are as many as there are questions, in their order.
	Answers []BatchAnswer `json:"answers"`
}

// BatchAnswer is what one question of a batch would have been answered if it had been asked alone, Retry-After excepted.
type BatchAnswer struct {
	// Status is 200, 429 or 503.
	Status int `json:"status"`
	Answer
}

// decodeCheck reads a body that is one question, or a batch of them, which is nil if it is none. It may say that a body is
// to be a batch beside an error.
func decodeCheck(body []byte) (q question, batch []question, err error) {
	err = readBody("body", body, func(r *reader) error {
		alone := false
		q = question{cost: 1, mode: modeCheck}
		err := r.object("body", func(name string) error {
			if name != "checks" {
				alone = true
				return r.field(&q, name)
			}
			batch = []question{}
			return r.list(`"checks"`, MaxBatch, func(int) error {
				one, err := r.question("question")
				batch = append(batch, one)
				return err
			})
		})
		switch {
		case err != nil:
			return err
		case batch == nil:
			return q.check()
		case alone:
			return errors.New(`"checks" and something else: want it alone`)
		}
		return nil
	})
	return q, batch, err
}

// askAll answers each question of a batch by itself, in order. One that is wrong refuses them all, before any is charged.
//
// For permits they wait together no longer than one of them would alone.
func (h *handler) askAll(ctx context.Context, w http.ResponseWriter, batch []question) {
	requests := make([]check.Request, len(batch))
	for i, q := range batch {
		r, err := h.request(q)
		if err == nil && q.mode == modeWait {
			err = errors.New(`"mode": "wait" is for a question that comes alone`)
		}
		if err != nil {
			refuse(w, http.StatusBadRequest, fmt.Sprintf(`"checks"[%d]: %v`, i, err))
			return
		}
		requests[i] = r
	}
	if h.mayWait() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, h.wait)
		defer cancel()
	}
	answers := make([]BatchAnswer, len(batch))
	for i, r := range requests {
		answers[i].Status, answers[i].Answer = h.decide(ctx, r, batch[i].mode)
	}
	write(w, http.StatusOK, Answers{answers})
}
