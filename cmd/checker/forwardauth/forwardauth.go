// Package forwardauth is the adapter for proxies that ask whether they may pass a request on: nginx
// by auth_request, Traefik by ForwardAuth, Caddy by forward_auth, HAProxy by a few lines of Lua.
//
// GET or POST /v1/auth asks about another request, the original one. The proxy describes it in
// headers,
//
//	X-Forwarded-For       the client, and proxies before this one (or Forwarded, by configuration)
//	X-Forwarded-Method    or X-Original-Method
//	X-Forwarded-Uri       or X-Original-URI, or X-Original-URL with scheme and host
//	X-Forwarded-Host
//
// and passes on the client's own headers, cookies included. (X-Forwarded-Proto is a header like any
// other.) The answer is 200 with an empty body if the request may pass. For a denial it is that of
// [httplimit]: 429, or 503 if its rule says so, with Retry-After and a problem as the body. Both
// have the headers about the limit. With ?denied=403 a denial has that status instead, for nginx,
// which turns all others into 500; X-Denied-Status has the original one. Where a rule lets callers
// wait, the answer comes after at most half a second, or after ?wait=10s; the proxy must wait
// longer than that.
//
// Only trusted proxies are answered: others could ask about any client, and all clients of a proxy
// that is not trusted would share one limit. Requests of other proxies and invalid ones get 400,
// with {"error": "reason"}.
package forwardauth

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/offpath-io/offpath/cmd/internal/reply"
)

const (
	// Path of the adapter.
	Path = "/v1/auth"
	// DeniedStatus is the header with the original status of a denial, in answers with ?denied=.
	DeniedStatus = "X-Denied-Status"
	// Wait is how long a request waits at most where its rule lets callers wait: less than the
	// time-outs of proxies, some of which pass a request on if they get no answer.
	Wait = 500 * time.Millisecond
	// MostWait bounds ?wait=. It is below the server's write time-out.
	MostWait = 25 * time.Second
)

// Options of the adapter. All are needed.
type Options struct {
	// Limit decides: it calls the given handler if the original request may pass, and otherwise
	// answers itself.
	Limit func(http.Handler) http.Handler
	// Trusts reports whether a remote address is a trusted proxy's.
	Trusts func(remote string) bool
	Log    *slog.Logger
}

// New returns the adapter.
func New(o Options) http.Handler {
	pass := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
	})
	return &handler{limited: o.Limit(pass), trusts: o.Trusts, log: o.Log}
}

type handler struct {
	limited   http.Handler
	trusts    func(remote string) bool
	log       *slog.Logger
	untrusted sync.Once // an untrusted proxy has been logged
}

// ServeHTTP answers one request.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodPost {
		w.Header().Set("Allow", "GET, POST")
		reply.Error(w, http.StatusMethodNotAllowed, fmt.Sprintf(
			"method %.40q: want GET or POST; X-Forwarded-Method is the original one", r.Method))
		return
	}
	if !h.trusts(r.RemoteAddr) {
		// The client may see the answer, so it does not tell the proxy's address.
		reply.Error(w, http.StatusBadRequest,
			"the asking proxy is not trusted: see --trusted-proxies")
		h.untrusted.Do(func() {
			h.log.Warn("forward-auth request of an untrusted proxy (logged once): "+
				"see --trusted-proxies", "proxy", r.RemoteAddr)
		})
		return
	}
	s, err := parseSettings(r.URL.RawQuery)
	if err != nil {
		reply.Error(w, http.StatusBadRequest, err.Error())
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.wait)
	defer cancel()
	original, err := originalRequest(ctx, r)
	if err != nil {
		reply.Error(w, http.StatusBadRequest, err.Error())
		return
	}
	if s.denied != 0 {
		w = &statusWriter{ResponseWriter: w, denied: s.denied}
	}
	h.limited.ServeHTTP(w, original)
}

// settings are the parameters of a request's query.
type settings struct {
	denied int // the status of a denial; 0 for its own
	wait   time.Duration
}

// parseSettings reads denied and wait, and ignores other parameters: Caddy's forward_auth appends
// the query of the original request.
func parseSettings(query string) (settings, error) {
	s := settings{wait: Wait}
	if query == "" {
		return s, nil
	}
	values, _ := url.ParseQuery(query) // parameters that it cannot read are ignored, too
	var err error
	if texts := values["denied"]; len(texts) > 0 {
		s.denied, err = strconv.Atoi(texts[0])
		if err != nil || len(texts) > 1 || s.denied < 400 || s.denied > 599 {
			return s, fmt.Errorf("query: denied=%.40q: want one status from 400 to 599", texts[0])
		}
	}
	if texts := values["wait"]; len(texts) > 0 {
		s.wait, err = time.ParseDuration(texts[0])
		if err != nil || len(texts) > 1 || s.wait < 0 || s.wait > MostWait {
			return s, fmt.Errorf("query: wait=%.40q: want one duration up to %v, such as 10s",
				texts[0], MostWait)
		}
	}
	return s, nil
}

// statusWriter replaces the status of denials.
type statusWriter struct {
	http.ResponseWriter
	denied int
}

// WriteHeader writes the other status for a denial.
func (w *statusWriter) WriteHeader(status int) {
	if status >= 400 {
		w.Header().Set(DeniedStatus, strconv.Itoa(status))
		status = w.denied
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
