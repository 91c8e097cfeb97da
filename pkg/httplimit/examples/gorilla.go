package examples

import (
	"net/http"

	"github.com/gorilla/mux"

	"github.com/offpath-io/offpath/pkg/httplimit"
	"github.com/offpath-io/offpath/pkg/identity/httpidentity"
)

// Gorilla limits what a router has a route for: middlewares of Use run when it has been chosen.
func Gorilla(checker httplimit.Checker) (http.Handler, error) {
	route := func(r *http.Request) (string, bool) {
		pattern, err := mux.CurrentRoute(r).GetPathTemplate()
		return pattern, err == nil
	}

	limit, err := httplimit.New(checker, httplimit.Options{
		User:     user,
		Identity: httpidentity.Options{Sources: map[string]httpidentity.Source{"route": route}},
	})
	if err != nil {
		return nil, err
	}
	router := mux.NewRouter()
	router.Use(limit.Handler)
	router.HandleFunc("/hello/{name}", hello).Methods(http.MethodGet)
	return router, nil
}
