package cmd_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	ratelimitcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
)

// note counts what became of a request.
func (r *rolling) note(allowed bool, err error) {
	switch {
	case err != nil:
		r.failed.Add(1)
		r.firstFailure.CompareAndSwap(nil, new(time.Now().Format("15:04:05.000 ")+err.Error()))
	case allowed:
		r.allowed.Add(1)
	default:
		r.denied.Add(1)
	}
}

// attributesOf are those of a client's request of this number: one of several keys, and now and then a narrow limit.
func attributesOf(client, n int) (to, user string) {
	if n%10 == 9 {
		return "narrow", fmt.Sprint("user", n%3)
	}
	return "wide", fmt.Sprint("user", client, n%50)
}

// pace is the time between two requests of one client.
const pace = 2 * time.Millisecond

// askOverHTTP asks by POST, which no client repeats by itself, on connections that stay open; every tenth one on one of its own.
func (r *rolling) askOverHTTP(ctx context.Context, client int) {
	kept, alone := &http.Transport{}, &http.Transport{DisableKeepAlives: true}
	defer kept.CloseIdleConnections()
	for n := 0; ctx.Err() == nil; n++ {
		transport := kept
		if n%10 == 0 {
			transport = alone
		}
		r.note(r.post(transport, client, n))
		time.Sleep(pace)
	}
}

func (r *rolling) post(transport *http.Transport, client, n int) (allowed bool, err error) {
	to, user := attributesOf(client, n)
	body := fmt.Sprintf(`{"attributes":{"to":%q,"user":%q}}`, to, user)
	c := &http.Client{Transport: transport, Timeout: daemontest.Patience}
	response, err := c.Post("http://"+r.http.listener.Addr().String()+"/v1/check", "application/json", strings.NewReader(body))
	if err != nil {
		return false, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != 200 && response.StatusCode != 429 {
		err = fmt.Errorf("%d %s", response.StatusCode, text)
	}
	return response.StatusCode == 200, err
}

// askOverGRPC asks as Envoy does.
func (r *rolling) askOverGRPC(ctx context.Context, client int) {
	conn, err := grpc.NewClient(r.grpc.listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		r.note(false, err)
		return
	}
	defer conn.Close()
	service := ratelimitv3.NewRateLimitServiceClient(conn)
	for n := 0; ctx.Err() == nil; n++ {
		to, user := attributesOf(client, n)
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), daemontest.Patience)
		answer, err := service.ShouldRateLimit(call, &ratelimitv3.RateLimitRequest{Domain: "any", Descriptors: []*ratelimitcommon.RateLimitDescriptor{
			{Entries: []*ratelimitcommon.RateLimitDescriptor_Entry{{Key: "to", Value: to}, {Key: "user", Value: user}}},
		}})
		cancel()
		passed := answer.GetOverallCode() == ratelimitv3.RateLimitResponse_OK
		if err == nil && passed {
			r.overGRPC.Add(1)
		}
		r.note(passed, err)
		time.Sleep(pace)
	}
}
