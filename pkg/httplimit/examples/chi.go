package examples

import (
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/offpath-io/offpath/pkg/httplimit"
	"github.com/offpath-io/offpath/pkg/identity/httpidentity"
)

// Chi limits all that a router serves. Middlewares of Use run before chi has chosen a route, so it
// is asked; those of With and Group run after, and then need no source.
func Chi(checker httplimit.Checker) (http.Handler, error) {
	router := chi.NewRouter()
	route := func(r *http.Request) (string, bool) {
		pattern := router.Find(chi.NewRouteContext(), r.Method, r.URL.Path)
		return pattern, pattern != ""
	}

	limit, err := httplimit.New(checker, httplimit.Options{
		User:     user,
		Identity: httpidentity.Options{Sources: map[string]httpidentity.Source{"route": route}},
	})
	if err != nil {
		return nil, err
	}
	router.Use(limit.Handler)
	router.Get("/hello/{name}", hello)
	return router, nil
}
