// Package api is the checker's HTTP API.
//
// POST /v1/check takes a JSON object, either of
//
//	{"attributes": {"user": "kristie", "api": "createURL"}, "cost": 1}
//	{"rule": "per-user", "key": "kristie", "cost": 1}
//
// where cost is a whole number from 1 to 10^15; the default is 1. The status is 200 if the request
// may pass, and otherwise 429, or 503 if its rule says so. The body is an [Answer]. The field mode
// changes what is done:
//
//	"check"     decides, and charges a request that may pass (default)
//	"wait"      also waits where the rule lets callers wait, for at most MostWait;
//	            see [check.Checker.Wait]
//	"reserve"   where the rule lets callers wait, charges a later turn, and says in delay_ms
//	            how long the caller has to wait for it; see [check.Reserve]
//	"peek"      decides, and charges nothing
//	"record"    charges without a decision, and answers with 200 and what a peek of cost 1
//	            says afterwards
//
// POST /v1/explain takes attributes and cost, and answers with 200 and an [Explained], whatever the
// decision would be. It charges nothing.
//
// With "settle": true the answer has a receipt. With it, the request's true cost can be settled
// once it is known, by
//
//	{"receipt": "AQ…", "cost": 317}
//
// to POST /v1/settle of any checker of the fleet, once. A cost of 0 gives a reservation back. The
// status is 204 if the settlement is accepted; 409 if the receipt was settled here before (one that
// was settled elsewhere is accepted and changes nothing); 410 if it is more than 20 hours old; 503
// if too many settlements wait to be reported; and 400 with the reason for everything else.
//
// A request that is not understood is refused, with {"error": "reason"}: a limit that silently does
// not apply is worse than an error.
//
// Up to [MaxBatch] requests may come in one body, as {"checks": [{…}, {…}]}. Each is decided as if
// it had come alone, and the answer is 200 with [Answers], in their order. If one of them is not
// understood, all are refused, and none is charged. In the same way /v1/settle takes
// {"settlements": [{…}, {…}]}, and answers with [Settled].
//
// The daemon serves POST /json and GET /healthcheck beside it, as envoyproxy/ratelimit does.
//
// GET /v1/openapi.yaml describes the API in OpenAPI's format.
//
// A request that needs a permit, under a rule of strict enforcement, waits for it as long as [New]
// was told.
package api

import (
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/offpath-io/offpath/cmd/internal/reply"
	"github.com/offpath-io/offpath/pkg/check"
)

// Paths of the API.
const (
	Path         = "/v1/check"
	ExplainPath  = "/v1/explain"
	SettlePath   = "/v1/settle"
	DescribePath = "/v1/openapi.yaml"
)

const (
	// MaxBody bounds a request's body in bytes, and MaxBatchBody that of a batch.
	MaxBody      = 64 << 10
	MaxBatchBody = 1 << 20
	// MaxBatch bounds the requests, or settlements, of a batch.
	MaxBatch = 1000
	// MostWait bounds how long a request with "mode": "wait" waits, whatever its rule says. It is
	// below the server's write time-out.
	MostWait = 25 * time.Second
)

// New returns the API of a checker. Requests under strict enforcement wait for permits no longer
// than wait; with 0 they do not wait.
func New(checker *check.Checker, wait time.Duration) http.Handler {
	return &handler{checker: checker, wait: wait}
}

// NoRules returns the API for the time before there are rules, and so a checker. It refuses
// requests with 503: nothing can be decided, and a limit must not silently not apply.
func NoRules() http.Handler { return new(handler) }

type handler struct {
	checker *check.Checker // nil while there is none
	wait    time.Duration
	permits atomic.Pointer[permits]
}

// route is what is served at one path, by one method.
type route struct {
	method string
	serve  func(*handler, http.ResponseWriter, *http.Request)
}

// routes are all routes, by path.
var routes = map[string]route{
	Path:         {http.MethodPost, withBody((*handler).serveCheck)},
	ExplainPath:  {http.MethodPost, withBody((*handler).serveExplain)},
	SettlePath:   {http.MethodPost, withBody((*handler).serveSettle)},
	DescribePath: {http.MethodGet, (*handler).serveDescription},
}

// ServeHTTP answers one request.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	to, ok := routes[r.URL.Path]
	switch {
	case !ok:
		reply.Error(w, http.StatusNotFound, "no such path: want POST "+
			Path+", "+ExplainPath+" or "+SettlePath+", or GET "+DescribePath)
	case r.Method != to.method && (r.Method != http.MethodHead || to.method != http.MethodGet):
		w.Header().Set("Allow", to.method)
		reply.Error(w, http.StatusMethodNotAllowed,
			"method "+strconv.Quote(r.Method)+": want "+to.method)
	default:
		to.serve(h, w, r)
	}
}
