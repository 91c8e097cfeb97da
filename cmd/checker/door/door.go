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
// With "mode": "reserve" it answers at once, and says in delay_ms how long the caller has to wait for
// its turn, which has been charged, see [check.Reserve]; a caller that may not want its turn when it
// comes adds "settle": true, and gives it back by settling it at a cost of 0, at any checker. With "mode": "peek" it says the same but charges nothing. With "mode": "record" it charges whatever there is
// room for, always answers with 200, and says what a peek of cost 1 would say then. POST /v1/explain takes attributes and
// cost, and answers with 200 and an [Explained], whatever would be decided; it charges nothing. With "settle": true the
// answer has a receipt, by which the request's true cost can be settled when it is known, with
//
//	{"receipt": "AQ…", "cost": 317}
//
// to POST /v1/settle of any checker of the fleet, once: 204 if it is taken in, 409 if the receipt was settled here before
// (one that was settled elsewhere is taken in and changes nothing), 410 if it is more than 20 hours old, 503 if too
// many wait to be reported, and 400 with the reason for everything else. Everything that is not understood
// is refused, with {"error": "reason"}: a limit that silently does not apply is worse than an error.
//
// Many questions may come at once, up to [MaxBatch] of them, as {"checks": [{…}, {…}]}. Each is decided by itself, as if it had
// come alone, and the answer is 200 with [Answers], in their order. If one of them is not understood, all are refused, and none
// is charged. In the same way /v1/settle takes {"settlements": [{…}, {…}]}, and answers with [Settled].
//
// GET /v1/openapi.yaml tells all this as OpenAPI has it.
//
// A request that needs a permit, under a rule of strict enforcement, waits for it as long as [New] was told.
package door

import (
	"context"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/offpath-io/offpath/pkg/check"
)

const (
	// Path of a check.
	Path = "/v1/check"
	// ExplainPath is that of an explanation.
	ExplainPath = "/v1/explain"
	// DescribePath is where all of this is described, as OpenAPI has it.
	DescribePath = "/v1/openapi.yaml"
	// MaxBody is the most bytes of a request's body, and MaxBatchBody that of one with several questions in it.
	MaxBody      = 64 << 10
	MaxBatchBody = 1 << 20
	// MaxBatch is the most questions of a batch.
	MaxBatch = 1000
)

// New returns the door to a checker. A request under strict enforcement waits for a permit for so long at most;
// 0 makes it never wait. For other rules there is nothing to wait for.
func New(checker *check.Checker, wait time.Duration) http.Handler {
	return &handler{checker: checker, wait: wait}
}

// NoRules returns the door while there are no rules, and so no checker: nothing can be decided then, and to let everything pass
// would be a limit that silently does not apply.
func NoRules() http.Handler { return new(handler) }

type handler struct {
	checker *check.Checker // nil while there is none
	wait    time.Duration
	waits   atomic.Pointer[waits]
}

// route is what the door does at one path, by one method.
type route struct {
	method string
	serve  func(*handler, http.ResponseWriter, *http.Request)
}

// routes are all there are, by path.
var routes = map[string]route{
	Path:         {http.MethodPost, withBody((*handler).ask)},
	ExplainPath:  {http.MethodPost, withBody((*handler).explain)},
	SettlePath:   {http.MethodPost, withBody((*handler).settle)},
	DescribePath: {http.MethodGet, (*handler).describe},
}

// ServeHTTP answers one request.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	to, ok := routes[r.URL.Path]
	switch {
	case !ok:
		refuse(w, http.StatusNotFound, "no such path: want POST "+Path+", "+ExplainPath+" or "+SettlePath+", or GET "+DescribePath)
	case r.Method != to.method && (r.Method != http.MethodHead || to.method != http.MethodGet):
		w.Header().Set("Allow", to.method)
		refuse(w, http.StatusMethodNotAllowed, "method "+strconv.Quote(r.Method)+": want "+to.method)
	default:
		to.serve(h, w, r)
	}
}

// ask answers a question, or a batch of them.
func (h *handler) ask(ctx context.Context, w http.ResponseWriter, body []byte) {
	q, batch, err := decodeCheck(body)
	switch {
	case tooLong(body, batch != nil):
		refuseLong(w, MaxBody)
	case err != nil:
		refuse(w, http.StatusBadRequest, err.Error())
	case batch != nil:
		h.askAll(ctx, w, batch)
	default:
		h.askOne(ctx, w, q)
	}
}

func (h *handler) askOne(ctx context.Context, w http.ResponseWriter, q question) {
	r, err := h.request(q)
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	status, a := h.decide(ctx, r, q.mode)
	answer(w, status, a)
}

// decide does what a question's mode says, and makes an answer of the result. An error of Wait would
// be that time was up or the client has gone: the decision is a denial then.
func (h *handler) decide(ctx context.Context, r check.Request, m mode) (status int, a Answer) {
	var result check.Result
	switch m {
	case modeWait:
		ctx, cancel := context.WithTimeout(ctx, MostWait)
		defer cancel()
		result, _ = h.checker.Wait(ctx, r)
	case modeCheck:
		result = h.check(ctx, r)
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
	return statusOf(result.Decision), a
}

func statusOf(d check.Decision) int {
	switch {
	case d.Allowed:
		return http.StatusOK
	case d.Status == 0:
		return http.StatusTooManyRequests
	}
	return d.Status
}

// check asks at once, or waits for permits if the door was told to.
func (h *handler) check(ctx context.Context, r check.Request) check.Result {
	if !h.mayWait() {
		return h.checker.Do(r)
	}
	ctx, cancel := context.WithTimeout(ctx, h.wait)
	defer cancel()
	result, _ := h.checker.Wait(ctx, r)
	return result
}

// MostWait is how long a request with "mode": "wait" waits at most, whatever its rule says: a server cuts off who takes longer.
const MostWait = 25 * time.Second
