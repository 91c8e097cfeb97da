package examples

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/gorilla/mux"
	"github.com/labstack/echo/v4"

	"github.com/offpath-io/offpath/internal/testing/rulestest"
	"github.com/offpath-io/offpath/pkg/httplimit"
	"github.com/offpath-io/offpath/pkg/identity"
)

// Failed logins are charged in each family where the status can be seen: of gin and echo, whose
// handlers leave it to the engine, around the engine.
func TestChargeOn(t *testing.T) {
	const failures = "rules: [{name: failures, match: {outcome: failed, path: /login}, key: [user], limit: 2/day}]"
	type middleware = func(http.Handler) http.Handler
	refuse := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }
	for _, f := range []struct {
		name    string
		service func(failures middleware) http.Handler
	}{
		{"net/http", func(failures middleware) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("/login", failures(http.HandlerFunc(refuse)))
			return mux
		}},
		{"chi", func(failures middleware) http.Handler {
			router := chi.NewRouter()
			router.With(failures).Get("/login", refuse)
			return router
		}},
		{"gorilla", func(failures middleware) http.Handler {
			router := mux.NewRouter()
			router.Use(mux.MiddlewareFunc(failures))
			router.HandleFunc("/login", refuse)
			return router
		}},
		{"gin", func(failures middleware) http.Handler {
			engine := gin.New()
			engine.GET("/login", func(c *gin.Context) { c.AbortWithStatus(http.StatusUnauthorized) })
			return failures(engine)
		}},
		{"echo", func(failures middleware) http.Handler {
			server := echo.New()
			server.GET("/login", func(echo.Context) error { return echo.ErrUnauthorized })
			return failures(server)
		}},
	} {
		limit, err := httplimit.New(rulestest.Checker(t, failures), httplimit.Options{User: user})
		must(t, err)
		charge, err := limit.ChargeOn(identity.Attribute{Name: "outcome", Value: "failed"}, http.StatusUnauthorized)
		must(t, err)
		server := httptest.NewServer(f.service(charge))
		defer server.Close()
		for i, want := range []int{401, 401, 429} {
			if res, _, err := get(t, server.URL+"/login", "kristie"); err != nil || res.StatusCode != want {
				t.Errorf("%s: request %d: %v, %v, want %d", f.name, i, res, err, want)
			}
		}
	}
}
