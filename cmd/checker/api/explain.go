package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/offpath-io/offpath/cmd/internal/reply"
	"github.com/offpath-io/offpath/pkg/check"
)

// Explained is the body of an explanation.
type Explained struct {
	// Decision is what a check would have answered.
	Decision Answer `json:"decision"`
	// Rules are all rules of the set, in its order.
	Rules []Rule `json:"rules"`
}

// Rule is the effect of one rule on a request.
type Rule struct {
	Rule    string `json:"rule"`
	Applies bool   `json:"applies"`
	// Why it does not apply. There is no Part then.
	Why  string `json:"why,omitempty"`
	Part *Part  `json:"part,omitempty"`
}

// Part is the part of a rule that applies in the decision.
type Part struct {
	// Barred is the reason for which it denies the request regardless of its counts.
	Barred string `json:"barred,omitempty"`
	// Counter is the name under which hits are counted, Key the counted key, and Limit its limit.
	Counter string `json:"counter"`
	Key     string `json:"key"`
	Limit   int64  `json:"limit"`
	Cost    int64  `json:"cost"`
	// BadCost: the value of the rule's cost attribute is invalid.
	BadCost bool `json:"bad_cost,omitempty"`
	// Count is how many hits are known, and Others the forecast of unreported hits of other
	// checkers.
	Count  float64 `json:"count"`
	Others float64 `json:"others"`
	// Room is how many hits would pass now.
	Room int64 `json:"room"`
	// Denies: it would deny the request. A Shadow rule only says so.
	Denies       bool   `json:"denies"`
	Shadow       bool   `json:"shadow,omitempty"`
	RetryAfterMS *int64 `json:"retry_after_ms"`
	// Decides: the decision is this rule's.
	Decides bool `json:"decides"`
}

// NewExplained makes an answer of the result of [check.Explain].
func NewExplained(result check.Result) Explained {
	all := result.Explanations
	e := Explained{Decision: NewAnswer(result.Decision), Rules: make([]Rule, len(all))}
	for i, x := range all {
		r := Rule{Rule: x.Rule, Applies: x.Why == "", Why: x.Why}
		if r.Applies {
			r.Part = &Part{
				Barred: x.Barred, Counter: x.Counter, Key: x.Key,
				Limit: x.Limit, Cost: x.Cost, BadCost: x.BadCost,
				Count: x.Count, Others: x.Others, Room: x.Room,
				Denies: x.Denies, Shadow: x.Shadow, Decides: x.Decides,
			}
			if x.RetryAfter != check.Never {
				r.Part.RetryAfterMS = new(ceil(x.RetryAfter, time.Millisecond))
			}
		}
		e.Rules[i] = r
	}
	return e
}

// serveExplain answers with the effect of each rule on a request.
func (h *handler) serveExplain(_ context.Context, w http.ResponseWriter, body []byte) {
	q, err := decodeOne(body)
	switch {
	case err != nil:
	case !q.hasAttributes:
		err = errors.New(`want "attributes": rules are found by them`)
	case q.mode != modeCheck:
		err = errors.New(`"mode": an explanation has none`)
	case q.settle:
		err = errNoReceipt
	}
	if refuse(w, body, false, err) {
		return
	}
	r := check.Request{Attributes: q.attributes, Cost: q.cost, Mode: check.Explain}
	reply.JSON(w, http.StatusOK, NewExplained(h.checker.Do(r)))
}
