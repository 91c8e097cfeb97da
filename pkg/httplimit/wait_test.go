package httplimit_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/httplimit"
)

// running lets a checker run in a bubble of its own time.
func running(t *testing.T, link check.Link, yaml string, f func(t *testing.T, h http.Handler)) {
	synctest.Test(t, func(t *testing.T) {
		c, err := check.New(check.Options{Rules: parse(t, yaml), Link: link, DrainTimeout: time.Millisecond})
		must(t, err)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Run(ctx) }()
		synctest.Wait()
		f(t, newLimit(t, c, httplimit.Options{User: byHeader}).Handler(hello))
		stop()
		<-done // an error is that nobody has answered
	})
}

// deaf is a link to nobody.
type deaf struct{}

func (deaf) Report(uint32, []byte) error { return nil }
func (deaf) Lease(uint32, []byte) error  { return nil }
func (deaf) Hello([]byte) error          { return nil }

func (deaf) Listen(ctx context.Context, _ func(events.Kind, []byte)) error {
	<-ctx.Done()
	return nil
}

const queueing = "rules: [{name: r, key: [user], algorithm: leaky_bucket, limit: 1/second, burst: 3, on_limit: queue, max_wait: 5s}]"

// A request waits its turn, and passes then; one that would have to wait for too long is denied at once.
func TestQueue(t *testing.T) {
	running(t, nil, queueing, func(t *testing.T, h http.Handler) {
		begun := time.Now()
		statuses := make(chan int, 3)
		for range 3 {
			go func() { statuses <- answer(h, request("GET", "/", "X-User", "kristie")).Code }()
			synctest.Wait()
		}
		if w := answer(h, request("GET", "/", "X-User", "kristie")); w.Code != 429 || time.Since(begun) != 0 || w.Header().Get("Retry-After") == "" {
			t.Errorf("the one too many: %d %v after %v", w.Code, w.Header(), time.Since(begun))
		}
		for i := range 3 {
			if status := <-statuses; status != 200 {
				t.Errorf("place %d: %d", i, status)
			}
		}
		if took := time.Since(begun); took < 1900*time.Millisecond || took > 2100*time.Millisecond {
			t.Errorf("three took %v", took)
		}
	})
}

// When the client gives up, so does the request, and its place is free.
func TestQueueEndsWithTheClient(t *testing.T) {
	running(t, nil, queueing, func(t *testing.T, h http.Handler) {
		answer(h, request("GET", "/", "X-User", "kristie"))
		ctx, leave := context.WithCancel(t.Context())
		ended := make(chan int)
		go func() { ended <- answer(h, request("GET", "/", "X-User", "kristie").WithContext(ctx)).Code }()
		synctest.Wait()
		begun := time.Now()
		leave()
		if status := <-ended; status != 429 || time.Since(begun) != 0 {
			t.Errorf("%d after %v", status, time.Since(begun))
		}
		if w := answer(h, request("GET", "/", "X-User", "kristie")); w.Code != 200 || time.Since(begun) > 1100*time.Millisecond {
			t.Errorf("the next in line: %d after %v", w.Code, time.Since(begun))
		}
	})
}

// Without an aggregator there are no permits, and nobody waits for longer than he may.
func TestStrictWithoutAnAggregator(t *testing.T) {
	running(t, deaf{}, "rules: [{name: r, key: [user], enforcement: strict, limit: 1/second, on_limit: queue, max_wait: 100ms}]", func(t *testing.T, h http.Handler) {
		begun := time.Now()
		if w := answer(h, request("GET", "/", "X-User", "kristie")); w.Code != 429 {
			t.Errorf("%d", w.Code)
		}
		if took := time.Since(begun); took > 140*time.Millisecond {
			t.Errorf("took %v", took)
		}
	})
}
