package httpload

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/offpath-io/offpath/loadtest/pace"
)

// Tests of this file run in synctest's time, which passes only while everything waits: all figures
// are exact.

// reply is what a server without a network does with a request.
type reply struct {
	after  time.Duration // or until the request is given up
	status int
}

const never = time.Duration(1 << 62)

// replies replies to the requests in turn, numbered from 0, which is the probe.
func replies(replyTo func(n int) reply) http.RoundTripper {
	var mu sync.Mutex
	next := 0
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		mu.Lock()
		reply := replyTo(next)
		next++
		mu.Unlock()
		select {
		case <-r.Context().Done():
			return nil, r.Context().Err()
		case <-time.After(reply.after):
		}
		return &http.Response{StatusCode: reply.status, Body: io.NopCloser(strings.NewReader("{}")), Request: r}, nil
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// asked is a server behind a transport.
func asked(t *testing.T, o Options, transport http.RoundTripper) server {
	t.Helper()
	s, err := openHTTP(o, transport)
	must(t, err)
	return s
}

func newSleeper() pace.Pauser { return pace.Sleeper{} }

// measure runs a load to its end, and returns the whole distributions as well.
func measure(t *testing.T, o Options, transport http.RoundTripper, newPause func() pace.Pauser) (
	r Result, latency, service *hdrhistogram.Histogram,
) {
	t.Helper()
	l, err := prepare(t.Context(), o, asked(t, o, transport))
	must(t, err)
	records := l.work(t.Context(), newPause, nil)
	_, latency, service = merge(records)
	return l.result(records, time.Since(l.start)), latency, service
}

// atLeast counts the samples of d or more, but for the histogram's exactness.
func atLeast(h *hdrhistogram.Histogram, d time.Duration) (count int64) {
	for _, bar := range h.Distribution() {
		if bar.To >= int64(d) {
			count += bar.Count
		}
	}
	return count
}

func options(o Options) Options {
	o.URL = "http://checker/v1/check"
	return o.withDefaults()
}

// near says whether a time is what was wanted, but for the histogram's exactness.
func near(got, want time.Duration) bool { return (got - want).Abs() <= want/500 }

// A server that stalls for 300 ms once, with two connections. A request is due every millisecond:
// of those due in the stall, 201 are due 100 ms or more before its end. From the sending, only the
// two that were under way took long.
func TestStallShowsTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var over time.Time
		stall := replies(func(n int) reply {
			if n == 501 {
				over = time.Now().Add(300 * time.Millisecond)
			}
			return reply{status: 200, after: time.Until(over)}
		})
		o := options(Options{Rate: 1000, Duration: 2 * time.Second, Connections: 2})
		r, latency, service := measure(t, o, stall, newSleeper)
		if n := atLeast(latency, 100*time.Millisecond); n < 200 || n > 202 {
			t.Errorf("%d requests took 100 ms or more since they were due, want 201", n)
		}
		if n := atLeast(service, 100*time.Millisecond); n != 2 {
			t.Errorf("%d requests took 100 ms or more since they were sent, want 2", n)
		}
		if latency.TotalCount() != 2000 || service.TotalCount() != 2000 || r.OK200 != 2000 || r.Achieved != 1000 {
			t.Errorf("%d, %d, %+v", latency.TotalCount(), service.TotalCount(), r)
		}
		// The two under way were sent in time, and those of the last millisecond.
		if r.Late < 296 || r.Late > 298 || r.Queued != r.Late {
			t.Errorf("%d late, %d queued", r.Late, r.Queued)
		}
		if !near(r.Latency.Max, 300*time.Millisecond) || !near(r.Latency.P9999, 300*time.Millisecond) || r.Latency.P75 != 0 {
			t.Errorf("%+v", r.Latency)
		}
	})
}

// overslept waits 5 ms too long.
type overslept struct{ pace.Sleeper }

func (overslept) Pause(d time.Duration) { time.Sleep(d + 5*time.Millisecond) }

// When it is the generator that is late, that shows, and in the latency too.
func TestLateGenerator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good := replies(func(int) reply { return reply{status: 200} })
		o := options(Options{Rate: 100, Duration: time.Second, Connections: 2})
		r, _, _ := measure(t, o, good, func() pace.Pauser { return overslept{} })
		if r.Late != 100 || r.Queued != 0 || !near(r.Latency.P50, 5*time.Millisecond) || r.Service.Max != 0 {
			t.Errorf("%+v", r)
		}
	})
}

// The warm-up is sent and not measured, but what it leaves behind is.
func TestWarmup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests := 0
		cold := replies(func(n int) reply {
			requests++
			if n > 0 && n <= 100 {
				return reply{status: 503, after: 11 * time.Millisecond}
			}
			return reply{status: 200}
		})
		o := options(Options{Rate: 100, Warmup: time.Second, Duration: 3 * time.Second, Connections: 1})
		r, latency, _ := measure(t, o, cold, newSleeper)
		if requests != 401 || r.Sent != 300 || r.OK200 != 300 || len(r.Other) != 0 || latency.TotalCount() != 300 {
			t.Errorf("%d requests, %+v", requests, r)
		}
		// The last one of the warm-up, due after 990 ms, is answered after 1100 ms.
		if n := atLeast(latency, time.Millisecond); n != 10 || r.Achieved != 100 {
			t.Errorf("%d requests waited, %v per second", n, r.Achieved)
		}
	})
}

// When a run is stopped, the figures are of what was answered, and what was due beside is counted.
func TestInterrupt(t *testing.T) {
	good := func(int) reply { return reply{status: 200} }
	hangs := func(from int) func(int) reply {
		return func(n int) reply {
			if n >= from {
				return reply{after: never}
			}
			return good(n)
		}
	}
	for _, test := range []struct {
		name             string
		after            time.Duration // the start
		server           func(n int) reply
		sent, unanswered int64
	}{
		{"a good server", 2495 * time.Millisecond, good, 150, 0}, // of 1000, 1010, … 2490 ms
		{"in the warm-up", 500 * time.Millisecond, good, 0, 0},
		{"a server that hangs", 2495 * time.Millisecond, hangs(201), 100, 50},
		{"in the probe", -lead / 2, hangs(0), 0, 0},
		{"before it begins", -lead, good, 0, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), lead+test.after)
				defer cancel()
				began := time.Now()
				o := options(Options{Rate: 100, Warmup: time.Second, Duration: time.Hour, Timeout: time.Hour, Connections: 3})
				r, err := run(ctx, o, asked(t, o, replies(test.server)), newSleeper, nil)
				must(t, err)
				if !r.Interrupted || r.Sent != test.sent || r.OK200 != test.sent || r.Unanswered != test.unanswered {
					t.Errorf("%+v", r)
				}
				if took := time.Since(began); took != lead+test.after {
					t.Errorf("ended after %v", took)
				}
				if test.sent == 150 && (r.Achieved < 100 || r.Achieved > 100.5) { // 150 in 1.495 s
					t.Errorf("achieved %v", r.Achieved)
				}
			})
		})
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
