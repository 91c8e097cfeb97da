// Package door lets programs ask a checker over HTTP.
//
// POST /v1/check takes a JSON object, either of
//
//	{"attributes": {"user": "kristie", "api": "createURL"}, "cost": 1}
//	{"rule": "per-user", "key": "kristie", "cost": 1}
//
// where cost, a whole number from 1 to 10^15, is 1 if left out. The answer's status is 200 if the
// request may pass and 429 if not, or 503 if its rule says so, with the decision as [Answer].
// With "mode": "wait" it waits where the rule lets callers wait, see [check.Checker.Wait], at most [MostWait].
// With "mode": "peek" it says the same but charges nothing. With "mode": "record" it charges whatever there is
// room for, always answers with 200, and says what a peek of cost 1 would say then. POST /v1/explain takes attributes and
// cost, and answers with 200 and an [Explained], whatever would be decided; it charges nothing. With "settle": true the
// answer has a token, by which the request's true cost can be settled when it is known, with
//
//	{"token": "AQ…", "cost": 317}
//
// to POST /v1/settle of any checker of the fleet, once: 204 if it is taken in, 409 if the token was settled here before
// (one that was settled elsewhere is taken in and changes nothing), 410 if it is more than 20 hours old, 503 if too
// many wait to be reported, and 400 with the reason for everything else. Everything that is not understood
// is refused, with {"error": "reason"}: a limit that silently does not apply is worse than an error.
//
// A request that needs a permit, under a rule of strict enforcement, waits for it as long as [New] was told.
package door

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/offpath-io/offpath/pkg/check"
)

const (
	// Path of a check.
	Path = "/v1/check"
	// ExplainPath is that of an explanation.
	ExplainPath = "/v1/explain"
	// MaxBody is the most bytes of a request's body.
	MaxBody = 64 << 10
)

// New returns the door to a checker. A request under strict enforcement waits for a permit for so long at most;
// 0 makes it never wait. For other rules there is nothing to wait for.
func New(checker *check.Checker, wait time.Duration) http.Handler { return &handler{checker, wait} }

type handler struct {
	checker *check.Checker
	wait    time.Duration
}

// ServeHTTP answers one request.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == SettlePath:
		h.settle(w, r)
		return
	case r.URL.Path != Path && r.URL.Path != ExplainPath:
		refuse(w, http.StatusNotFound, "no such path: want POST "+Path+", "+ExplainPath+" or "+SettlePath)
		return
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		refuse(w, http.StatusMethodNotAllowed, "method "+strconv.Quote(r.Method)+": want POST")
		return
	}
	body, ok := read(w, r)
	if !ok {
		return
	}
	h.ask(r.Context(), w, body, r.URL.Path == ExplainPath)
}

func (h *handler) ask(ctx context.Context, w http.ResponseWriter, body []byte, explain bool) {
	q, err := decode(body)
	switch {
	case err != nil:
	case q.settle && (explain || q.mode != modeCheck):
		err = errors.New(`"settle": only what is checked and charged has a token`)
	case explain:
		err = h.explain(w, q)
	default:
		err = h.decide(ctx, w, q)
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
	}
}

// decide does what a question's mode says.
func (h *handler) decide(ctx context.Context, w http.ResponseWriter, q question) error {
	t, err := h.target(q)
	if err != nil {
		return err
	}
	switch q.mode {
	case modePeek:
		answer(w, t.Peek(q.cost), "")
	case modeRecord:
		t.Record(q.cost)
		write(w, http.StatusOK, NewAnswer(t.Peek(1)))
	case modeWait:
		ctx, cancel := context.WithTimeout(ctx, MostWait)
		defer cancel()
		d, _ := t.Wait(ctx, q.cost) // an error is that time was up or the client has gone: a denial
		answer(w, d, "")
	default:
		d, token := h.check(ctx, t, q)
		answer(w, d, token)
	}
	return nil
}

// check asks at once, or waits for permits if the door was told to. An error would be that time was up, and then the
// decision says so. The token is "" unless the question wants one.
func (h *handler) check(ctx context.Context, t target, q question) (d check.Decision, token string) {
	switch {
	case h.wait <= 0 && q.settle:
		return t.CheckToken(q.cost)
	case h.wait <= 0:
		return t.Check(q.cost), ""
	}
	ctx, cancel := context.WithTimeout(ctx, h.wait)
	defer cancel()
	if q.settle {
		d, token, _ = t.AcquireToken(ctx, q.cost)
	} else {
		d, _ = t.Acquire(ctx, q.cost)
	}
	return d, token
}

// MostWait is how long a request with "mode": "wait" waits at most, whatever its rule says: a server cuts off who takes longer.
const MostWait = 25 * time.Second

// Answer is the body of a 200 or a 429.
type Answer struct {
	Allowed bool `json:"allowed"`
	// Rule is the one that decided: the one that denied, or else the one with the least left. It is
	// null, like everything that is said of it, if no rule matches.
	Rule      *string `json:"rule"`
	Limit     *int64  `json:"limit"`
	Remaining *int64  `json:"remaining"`
	// RetryAfterMS is rounded up; 0 if the request may pass, null if it never will at this cost.
	RetryAfterMS *int64 `json:"retry_after_ms"`
	ResetMS      *int64 `json:"reset_ms"`
	// Freshness is fresh, stale, local, local_share or outage.
	Freshness string `json:"freshness"`
	// Exceeded: the hit passed beyond a limit that is soft or elastic.
	Exceeded bool `json:"exceeded,omitempty"`
	// Queue: the caller may wait instead, for MaxWaitMS at most, and ask again.
	Queue     bool   `json:"queue,omitempty"`
	MaxWaitMS *int64 `json:"max_wait_ms,omitempty"`
	// Shadow is the first shadow rule that would have denied the request.
	Shadow string `json:"shadow,omitempty"`
	// Token is for one POST to SettlePath, if the question asked for it and the request may pass.
	Token string `json:"token,omitempty"`
}

// NewAnswer puts a decision into the words of the door.
func NewAnswer(d check.Decision) Answer {
	a := Answer{Allowed: d.Allowed, Freshness: d.Freshness.String(), Exceeded: d.Exceeded, Queue: d.Queue, Shadow: d.Shadow}
	if d.Queue {
		a.MaxWaitMS = new(ceil(d.MaxWait, time.Millisecond))
	}
	if d.RetryAfter != check.Never {
		a.RetryAfterMS = new(ceil(d.RetryAfter, time.Millisecond))
	}
	if d.Rule != "" {
		a.Rule, a.Limit, a.Remaining = &d.Rule, &d.Limit, &d.Remaining
		a.ResetMS = new(ceil(d.Reset, time.Millisecond))
	}
	return a
}

// ceil returns how many units d takes, a part of one counting as a whole one; 0 for a negative d.
func ceil(d, unit time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/unit) + 1
}

func answer(w http.ResponseWriter, d check.Decision, token string) {
	status := http.StatusOK
	if !d.Allowed {
		if status = d.Status; status == 0 {
			status = http.StatusTooManyRequests
		}
		if d.RetryAfter != check.Never {
			seconds := max(ceil(d.RetryAfter, time.Second), 1)
			w.Header().Set("Retry-After", strconv.FormatInt(seconds, 10))
		}
	}
	a := NewAnswer(d)
	a.Token = token
	write(w, status, a)
}

func refuse(w http.ResponseWriter, status int, reason string) {
	write(w, status, map[string]string{"error": reason})
}

func write(w http.ResponseWriter, status int, value any) {
	body, err := json.Marshal(value)
	if err != nil { // unreachable: neither body holds what JSON cannot
		http.Error(w, `{"error":"internal"}`, http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // an error means that the client has gone
}
