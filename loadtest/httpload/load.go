package httpload

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/offpath-io/offpath/loadtest/pace"
)

// late is from when on a request counts as sent late.
const late = time.Millisecond

// load is one run under way. The workers share it.
type load struct {
	options Options
	schedule
	server server
	start  time.Time

	next atomic.Int64 // the first request that no worker has taken
	done atomic.Int64 // how many have ended

	firstError sync.Once
	errorText  string
}

// outcome is what became of one request.
type outcome struct {
	// status is the answer's, or 0 if there was none.
	status int
	// lag is how long after it was due the request was sent. It was queued if no worker was free
	// then.
	lag    time.Duration
	queued bool
	// service is the time from sending it to the end of the answer.
	service time.Duration
}

// take returns a request that no other worker has, the earliest there is; after the last one,
// numbers above it.
func (l *load) take() int64 { return l.next.Add(1) - 1 }

// worker takes requests, one after the other, and sends each when it is due, or at once if that is
// past.
func (l *load) worker(ctx context.Context, pause pace.Pauser, r *record) {
	for i := l.take(); i < l.total; i = l.take() {
		due := l.start.Add(l.due(i))
		queued := time.Since(due) > 0
		if !pace.Until(ctx, due, pause) {
			return
		}
		o, ok := l.send(ctx, l.key(i), due)
		if !ok {
			return
		}
		o.queued = queued
		if i >= l.warm {
			r.add(o)
		}
		l.done.Add(1)
	}
}

// send asks once. It is not ok if ctx has ended meanwhile: what then happens says nothing of the
// server.
func (l *load) send(ctx context.Context, key int, due time.Time) (o outcome, ok bool) {
	sent := time.Now()
	o.lag = sent.Sub(due)
	status, text, err := l.server.ask(ctx, key)
	o.service = time.Since(sent)
	switch {
	case err != nil && ctx.Err() != nil:
		return o, false
	case err != nil:
		l.firstError.Do(func() { l.errorText = err.Error() })
		// A failure must not make the figures better: refused connections are very fast.
		o.service = max(o.service, l.options.Timeout)
		return o, true
	case !expected(status):
		l.firstError.Do(func() { l.errorText = describe(status, text) })
	}
	o.status = status
	return o, true
}

// expected says whether a status is a decision.
func expected(status int) bool {
	return status == http.StatusOK || status == http.StatusTooManyRequests
}

func describe(status int, text string) string {
	return fmt.Sprintf("answered %d %s: %q", status, http.StatusText(status), text)
}

// probe asks once whether there is a checker to load.
func probe(ctx context.Context, server server) error {
	status, text, err := server.ask(ctx, 0)
	if err != nil {
		return fmt.Errorf("no checker answers: %w; start one: go run ./cmd/offpath demo", err)
	}
	if !expected(status) {
		return fmt.Errorf("%s %s, want a decision: is this a checker's API? Start one: go run ./cmd/offpath demo",
			server.name(), describe(status, text))
	}
	return nil
}
