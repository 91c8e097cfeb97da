package door

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/offpath-io/offpath/pkg/check"
)

// Explained is the body of an explanation.
type Explained struct {
	// Decision is what a check would have been answered.
	Decision Answer `json:"decision"`
	// Rules are all of the set, in its order.
	Rules []Rule `json:"rules"`
}

// Rule is what one rule makes of a request.
type Rule struct {
	Rule    string `json:"rule"`
	Applies bool   `json:"applies"`
	// Why it does not apply; nothing else is said then.
	Why  string `json:"why,omitempty"`
	Part *Part  `json:"part,omitempty"`
}

// Part is the part that a rule has in a decision.
type Part struct {
	// Barred is why it denies the request whatever its counts are.
	Barred string `json:"barred,omitempty"`
	// Counter is the name under which hits are counted, Key whose they are, and Limit what they are held against.
	Counter string `json:"counter"`
	Key     string `json:"key"`
	Limit   int64  `json:"limit"`
	Cost    int64  `json:"cost"`
	// BadCost: the rule's cost attribute is no cost.
	BadCost bool `json:"bad_cost,omitempty"`
	// Count is how many hits are known, and Others how many more others are expected to have admitted.
	Count  float64 `json:"count"`
	Others float64 `json:"others"`
	// Room is how many hits would pass now.
	Room int64 `json:"room"`
	// Denies: it would deny the request, which Shadow rules only show.
	Denies       bool   `json:"denies"`
	Shadow       bool   `json:"shadow,omitempty"`
	RetryAfterMS *int64 `json:"retry_after_ms"`
	// Decides: it is the rule of the decision.
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
				Barred: x.Barred, Counter: x.Counter, Key: x.Key, Limit: x.Limit, Cost: x.Cost, BadCost: x.BadCost,
				Count: x.Count, Others: x.Others, Room: x.Room, Denies: x.Denies, Shadow: x.Shadow, Decides: x.Decides,
			}
			if x.RetryAfter != check.Never {
				r.Part.RetryAfterMS = new(ceil(x.RetryAfter, time.Millisecond))
			}
		}
		e.Rules[i] = r
	}
	return e
}

// explain answers with what each rule makes of a question.
func (h *handler) explain(_ context.Context, w http.ResponseWriter, body []byte) {
	if tooLong(body, false) {
		refuseLong(w, MaxBody)
		return
	}
	q, err := decode(body)
	switch {
	case err != nil:
	case !q.hasAttributes:
		err = errors.New(`want "attributes": rules are found by them`)
	case q.mode != modeCheck:
		err = errors.New(`"mode": an explanation has none`)
	case q.settle:
		err = errUnsettled
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	r := check.Request{Attributes: q.attributes, Cost: q.cost, Mode: check.Explain}
	write(w, http.StatusOK, NewExplained(h.checker.Do(r)))
}
