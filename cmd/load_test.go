package cmd_test

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	ratelimitcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/grpctest"
)

// load asks checkers behind two balancers, and counts what is answered.
type load struct {
	http, grpc *balancer

	allowed, denied, failed atomic.Int64
	overGRPC                atomic.Int64 // of the allowed
	firstFailure            atomic.Pointer[string]
}

// awaitMore waits until 200 hits more have been admitted.
func (l *load) awaitMore(t *testing.T) {
	t.Helper()
	want := l.allowed.Load() + 200
	daemontest.Eventually(t, "200 hits more get through", func() bool { return l.allowed.Load() >= want })
}

// note counts what became of a request.
func (l *load) note(allowed bool, err error) {
	switch {
	case err != nil:
		l.failed.Add(1)
		l.firstFailure.CompareAndSwap(nil, new(time.Now().Format("15:04:05.000 ")+err.Error()))
	case allowed:
		l.allowed.Add(1)
	default:
		l.denied.Add(1)
	}
}

// attributesOf are those of a client's request of this number: one of several keys, and now and
// then a narrow limit.
func attributesOf(client, n int) (to, user string) {
	if n%10 == 9 {
		return "narrow", fmt.Sprint("user", n%3)
	}
	return "wide", fmt.Sprint("user", client, n%50)
}

// pace is the time between two requests of one client.
const pace = 2 * time.Millisecond

// askOverHTTP asks by POST, which no client repeats by itself, on connections that stay open; every
// tenth one on one of its own.
func (l *load) askOverHTTP(ctx context.Context, t *testing.T, client int) {
	kept, alone := &http.Transport{}, &http.Transport{DisableKeepAlives: true}
	defer kept.CloseIdleConnections()
	for n := 0; ctx.Err() == nil; n++ {
		transport := kept
		if n%10 == 0 {
			transport = alone
		}
		l.note(l.post(t, transport, client, n))
		time.Sleep(pace)
	}
}

func (l *load) post(t *testing.T, transport *http.Transport, client, n int) (allowed bool, err error) {
	to, user := attributesOf(client, n)
	body := fmt.Sprintf(`{"attributes":{"to":%q,"user":%q}}`, to, user)
	c := &http.Client{Transport: transport, Timeout: daemontest.Patience}
	response, text, err := daemontest.Fetch(t, c, "POST", "http://"+l.http.listener.Addr().String()+"/v1/check", body)
	switch {
	case err != nil:
		return false, err
	case response.StatusCode != 200 && response.StatusCode != 429:
		return false, fmt.Errorf("%d %s", response.StatusCode, text)
	}
	return response.StatusCode == 200, nil
}

// askOverGRPC asks as Envoy does.
func (l *load) askOverGRPC(ctx context.Context, t *testing.T, client int) {
	service := ratelimitv3.NewRateLimitServiceClient(grpctest.Dial(t, l.grpc.listener.Addr().String()))
	for n := 0; ctx.Err() == nil; n++ {
		to, user := attributesOf(client, n)
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), daemontest.Patience)
		answer, err := service.ShouldRateLimit(call, &ratelimitv3.RateLimitRequest{
			Domain: "any", Descriptors: []*ratelimitcommon.RateLimitDescriptor{{
				Entries: []*ratelimitcommon.RateLimitDescriptor_Entry{{Key: "to", Value: to}, {Key: "user", Value: user}},
			}},
		})
		cancel()
		passed := answer.GetOverallCode() == ratelimitv3.RateLimitResponse_OK
		if err == nil && passed {
			l.overGRPC.Add(1)
		}
		l.note(passed, err)
		time.Sleep(pace)
	}
}
