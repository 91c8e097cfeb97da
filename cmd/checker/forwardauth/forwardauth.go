// Package forwardauth is the door for proxies that ask before they pass a request on: nginx by auth_request, Traefik by
// ForwardAuth, Caddy by forward_auth, HAProxy by a few lines of Lua.
//
// GET or POST /v1/auth asks about another request, the original one, which the proxy tells of in headers:
//
//	X-Forwarded-For       the client, and proxies before this one (or Forwarded, as the door is set)
//	X-Forwarded-Method    or X-Original-Method
//	X-Forwarded-Uri       or X-Original-URI, or X-Original-URL with scheme and host
//	X-Forwarded-Host
//
// and with the client's own headers, cookies among them. (X-Forwarded-Proto is a header as any other.) The answer is 200 with an empty body if the request may pass, and
// what [httplimit] says of a denial if not: 429, or 503 if its rule says so, with Retry-After and a problem as the body. Both
// have the headers that tell of the limit. With ?denied=403 a denial has that status instead, for nginx, which makes 500 of
// all others; X-Denied-Status tells the true one. Where a rule lets callers wait, the answer comes after half a second at most, or
// after ?wait=10s; a proxy must be more patient than that.
//
// Only trusted proxies are answered: others could ask about anybody, and a proxy that is not trusted would have all its
// clients share one limit. They get 400, like what cannot be understood, with {"error": "reason"}.
package forwardauth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"
)

const (
	// Path of the door.
	Path = "/v1/auth"
	// DeniedStatus is the header in which an answer with ?denied= tells the status of the denial.
	DeniedStatus = "X-Denied-Status"
	// Wait is how long a question waits at most where its rule lets callers wait: less than proxies have patience, since some
	// let pass what they get no answer to.
	Wait = 500 * time.Millisecond
	// MostWait bounds ?wait=: a server cuts off who takes longer.
	MostWait = 25 * time.Second
)

// Options say what the door stands on.
type Options struct {
	// Limit decides: it calls the handler it is given if the original request may pass, and else answers itself.
	Limit func(http.Handler) http.Handler
	// Trusts says whether the other end of a connection, by its remote address, is a trusted proxy.
	Trusts func(remote string) bool
	Log    *slog.Logger
}

// New returns the door.
func New(o Options) http.Handler {
	pass := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	return &handler{limited: o.Limit(pass), trusts: o.Trusts, log: o.Log}
}

type handler struct {
	limited   http.Handler
	trusts    func(remote string) bool
	log       *slog.Logger
	complains sync.Once
}

// ServeHTTP answers one question.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodPost {
		w.Header().Set("Allow", "GET, POST")
		refuse(w, http.StatusMethodNotAllowed, fmt.Errorf("method %.40q: want GET or POST; X-Forwarded-Method is the original one", r.Method))
		return
	}
	if !h.trusts(r.RemoteAddr) {
		// Clients may get to see the answer, and need not know who is behind the proxy.
		refuse(w, http.StatusBadRequest, errors.New("the asking proxy is not trusted: see --trusted-proxies"))
		h.complains.Do(func() {
			h.log.Warn("forward-auth asked by a proxy that is not trusted: see --trusted-proxies (said once)", "proxy", r.RemoteAddr)
		})
		return
	}
	s, err := parseSettings(r.URL.RawQuery)
	if err != nil {
		refuse(w, http.StatusBadRequest, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.wait)
	defer cancel()
	asked, err := original(ctx, r)
	if err != nil {
		refuse(w, http.StatusBadRequest, err)
		return
	}
	if s.denied != 0 {
		w = &renamed{ResponseWriter: w, denied: s.denied}
	}
	h.limited.ServeHTTP(w, asked)
}

// settings are what a question's query says.
type settings struct {
	denied int // the status of a denial; 0 for its own
	wait   time.Duration
}

// parseSettings reads a query. Others than denied and wait are not looked at: Caddy's forward_auth sends the query of the original
// request along.
func parseSettings(query string) (settings, error) {
	s := settings{wait: Wait}
	if query == "" {
		return s, nil
	}
	values, _ := url.ParseQuery(query) // what it could not read is not looked at either
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
			return s, fmt.Errorf("query: wait=%.40q: want one duration up to %v, such as 10s", texts[0], MostWait)
		}
	}
	return s, nil
}

// renamed gives denials another status.
type renamed struct {
	http.ResponseWriter
	denied int
}

// WriteHeader writes the other status for a denial.
func (w *renamed) WriteHeader(status int) {
	if status >= 400 {
		w.Header().Set(DeniedStatus, strconv.Itoa(status))
		status = w.denied
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (w *renamed) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func refuse(w http.ResponseWriter, status int, reason error) {
	body, err := json.Marshal(map[string]string{"error": reason.Error()})
	if err != nil { // unreachable: a string
		body = []byte("{}")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // an error means that the client has gone
}
