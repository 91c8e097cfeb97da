package checker

import (
	"crypto/tls"
	"log/slog"
	"net/http"
	"sync/atomic"

	"github.com/offpath-io/offpath/cmd/checker/api"
	"github.com/offpath-io/offpath/cmd/checker/forwardauth"
	"github.com/offpath-io/offpath/cmd/internal/reply"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/envoylimit"
	"github.com/offpath-io/offpath/pkg/envoyquota"
)

// adapters serve requests by the checker, once there is one: before the first rules nothing can be
// decided.
type adapters struct {
	serving atomic.Pointer[serving] // nil while there is no checker
	made    chan struct{}           // closed when there is one
	leaving atomic.Bool             // Envoys' streams of quotas have been ended
}

// serving is a checker with the handlers and services that decide by it.
type serving struct {
	checker *check.Checker
	handlers
	envoy  *envoylimit.Service
	quotas *envoyquota.Server
}

// handlers serve HTTP.
type handlers struct {
	api     http.Handler
	proxied http.Handler // the reverse proxy; nil without --upstream
}

// begin makes the handlers and services of the checker. It is called until it has succeeded once.
func (a *adapters) begin(
	c config, checker *check.Checker, service func() *tls.Config, log *slog.Logger,
) error {
	h, err := newHandlers(c, checker, service, log)
	if err != nil {
		return err
	}
	a.serving.Store(&serving{
		checker: checker, handlers: h, quotas: envoyquota.New(checker, envoyquota.Options{}),
		envoy: envoylimit.New(checker, envoylimit.Options{
			Headers: c.envoyHeaders, Acquire: c.acquire, Shadow: c.shadow,
		}),
	})
	close(a.made)
	return nil
}

// ServeHTTP is the HTTP API, and forward-auth.
func (a *adapters) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s := a.serving.Load(); s != nil {
		s.api.ServeHTTP(w, r)
		return
	}
	if r.URL.Path == forwardauth.Path {
		notYet(w)
		return
	}
	api.NoRules().ServeHTTP(w, r)
}

// proxy is the reverse proxy.
func (a *adapters) proxy(w http.ResponseWriter, r *http.Request) {
	if s := a.serving.Load(); s != nil {
		s.proxied.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Connection", "close") // a body that is still to come has no time limit
	notYet(w)
}

func notYet(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	reply.Error(w, http.StatusServiceUnavailable, "there are no rules yet")
}

// envoyStats are the hits of Envoy's rate limit service, none while there is no checker.
func (a *adapters) envoyStats() []envoylimit.Hits {
	if s := a.serving.Load(); s != nil {
		return s.envoy.Stats()
	}
	return nil
}

// limit returns the limit of the rule with this counter name, 0 if there is none.
func (a *adapters) limit(counter string) int64 {
	if s := a.serving.Load(); s != nil {
		if limiter, ok := s.checker.Limiter(counter); ok {
			return limiter.Rule().Limit
		}
	}
	return 0
}
