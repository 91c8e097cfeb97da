package httplimit_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/httplimit"
)

// A client that hangs up does not wait any more: net/http ends its request's context, and that ends the wait.
func TestHangingUpEndsTheWait(t *testing.T) {
	c := checker(t, "rules: [{name: r, key: [user], algorithm: leaky_bucket, limit: 1/hour, burst: 2, on_limit: queue, max_wait: 1h}]")
	came, gaveUp := make(chan bool, 2), make(chan error)
	limit := newLimit(t, c, httplimit.Options{
		User:   func(r *http.Request) string { came <- true; return byHeader(r) },
		Denied: func(_ http.ResponseWriter, r *http.Request, _ check.Decision) { gaveUp <- r.Context().Err() },
	})
	server := httptest.NewServer(limit.Handler(hello))
	defer server.Close()
	ctx, hangUp := context.WithCancel(t.Context())
	ask := func() error {
		r, err := http.NewRequestWithContext(ctx, "GET", server.URL, nil)
		if err != nil {
			return err
		}
		r.Header.Set("X-User", "kristie")
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		return res.Body.Close()
	}
	if err := ask(); err != nil { // its turn is at once
		t.Fatal(err)
	}
	<-came
	answered := make(chan error)
	go func() { answered <- ask() }()
	<-came
	hangUp()
	if err := <-answered; !errors.Is(err, context.Canceled) {
		t.Errorf("the client: %v", err)
	}
	if err := <-gaveUp; !errors.Is(err, context.Canceled) {
		t.Errorf("the server: %v", err)
	}
}
