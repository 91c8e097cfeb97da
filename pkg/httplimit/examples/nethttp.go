package examples

import (
	"net/http"

	"github.com/offpath-io/offpath/pkg/httplimit"
	"github.com/offpath-io/offpath/pkg/identity/httpidentity"
)

// NetHTTP limits all that a mux serves. MuxRoute asks the mux for the route before it has chosen.
func NetHTTP(checker httplimit.Checker) (http.Handler, error) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /hello/{name}", hello)

	limit, err := httplimit.New(checker, httplimit.Options{
		User:     user,
		Identity: httpidentity.Options{Sources: map[string]httpidentity.Source{"route": httpidentity.MuxRoute(mux)}},
	})
	if err != nil {
		return nil, err
	}
	return limit.Handler(mux), nil
}

// user stands for what your service knows when it has checked who sent a request.
func user(r *http.Request) string { return r.Header.Get("X-User") }

func hello(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain")
	_, _ = w.Write([]byte("hello"))
}
