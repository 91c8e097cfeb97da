package cmd_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ratelimitcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/grpctest"
	"github.com/offpath-io/offpath/internal/testing/servers"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
)

// rolling is a fleet under load of which every part is restarted, one after the other.
type rolling struct {
	fleet
	load
	server  *servers.Redis
	cluster []*servers.NATS
}

const (
	// many is a limit that nobody reaches, few is one that is used up at once.
	many, few = 1_000_000, 5
	// stopDelay is how long a checker that stops under load goes on answering. Within that time the
	// balancers have to look, every 20 ms, and the clients to ask, every 2 ms, even if the machine
	// stands still for seconds meanwhile.
	stopDelay = 15 * time.Second
)

// TestRollingRestarts restarts every checker, every aggregator, every NATS server and Redis of a
// fleet under load, one at a time, by a signal. No request fails; and what was admitted is in the
// ledger, each hit once.
func TestRollingRestarts(t *testing.T) {
	r := newRolling(t)
	for range 2 {
		r.startAggregator()
	}
	for range 2 {
		r.startChecker(stopDelay)
	}
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for i := range 4 {
		clients.Go(func() { r.askOverHTTP(ctx, t, i) })
		clients.Go(func() { r.askOverGRPC(ctx, t, i) })
	}
	round := func(what string, restart func()) {
		t.Helper()
		r.awaitMore(t)
		begin := time.Now()
		restart()
		r.awaitMore(t)
		t.Logf("%s restarted in %v", what, time.Since(begin).Round(time.Millisecond))
	}
	replace := func(all *[]*daemontest.Daemon, start func()) {
		(*all)[0].MustStop()
		*all = (*all)[1:]
		start()
	}
	for range 2 {
		round("a checker", func() { replace(&r.checkers, func() { r.startChecker(0) }) }) // these stop after the load
	}
	for range 2 {
		round("an aggregator", func() { replace(&r.aggregators, r.startAggregator) })
	}
	connected := func(metric string, all ...*daemontest.Daemon) {
		for _, d := range all {
			d.AwaitMetric(metric, "1")
		}
	}
	for _, n := range r.cluster {
		round("a NATS server", func() {
			must(t, n.Restart())
			connected("offpath_nats_connected", append(r.checkers, r.aggregators...)...)
		})
	}
	round("Redis", func() {
		must(t, r.server.RestartInOrder(t.Context()))
		connected("offpath_redis_connected", r.aggregators...)
	})
	stop()
	clients.Wait()
	r.stop()
	if n := r.failed.Load(); n > 0 {
		t.Errorf("%d requests failed; the first: %s", n, *r.firstFailure.Load())
	}
	if r.denied.Load() == 0 || r.overGRPC.Load() == 0 {
		t.Errorf("%d were denied, %d passed over gRPC: that was no load", r.denied.Load(), r.overGRPC.Load())
	}
	var counted int64
	ledger := r.ledger()
	for _, found := range regexp.MustCompile(`"counted":(\d+),"late":0,"refused":0`).FindAllStringSubmatch(ledger, -1) {
		var n int64
		_, _ = fmt.Sscan(found[1], &n)
		counted += n
	}
	if counted != r.allowed.Load() {
		t.Errorf("%d hits were admitted, %d counted\n%s", r.allowed.Load(), counted, ledger)
	}
}

func newRolling(t *testing.T) *rolling {
	t.Helper()
	r := &rolling{server: serverstest.Redis(t), cluster: serverstest.NATSCluster(t), load: load{http: newBalancer(t), grpc: newBalancer(t)}}
	var urls []string
	for _, n := range r.cluster {
		urls = append(urls, n.URL())
	}
	r.fleet = fleet{T: t, nats: strings.Join(urls, ","), redis: r.server.URL()}
	return r
}

func (r *rolling) startAggregator() {
	r.Helper()
	d := r.fleet.startAggregator()
	d.Await("it is ready", func() bool { status, _ := d.Get("/readyz"); return status == 200 })
}

// startChecker returns when the checker takes connections from both balancers.
func (r *rolling) startChecker(delay time.Duration) {
	r.Helper()
	d := r.fleet.startChecker("--stop-delay", delay.String(), "--rules", writeFile(r.T, "rules.yaml", fmt.Sprintf(
		"rules:\n  - {name: wide, match: {to: wide}, key: [user], limit: %d/day}\n"+
			"  - {name: narrow, match: {to: narrow}, key: [user], limit: %d/day}\n", many, few)))
	readyz := d.Admin() + "/readyz"
	overHTTP := r.http.add(d.Find(`HTTP API +http://([^/\s]+)`), readyz)
	overGRPC := r.grpc.add(d.Find(`gRPC API +([0-9.:]+)`), readyz)
	d.Await("the balancers use it", func() bool { return overHTTP.ready.Load() && overGRPC.ready.Load() })
}

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

// balancer is a load balancer for TCP, as small as can be: it hands each connection to the next
// backend of which /readyz says 200, and repeats nothing: if that one refuses it, the client's is
// closed.
type balancer struct {
	listener net.Listener

	mu       sync.Mutex
	backends []*backend
	next     int
}

// backend is where one checker's API is, and where it says whether it is ready.
type backend struct {
	address, readyz string
	ready           atomic.Bool
}

func newBalancer(t *testing.T) *balancer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	b := &balancer{listener: listener}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(func() { stop(); _ = listener.Close() })
	go b.look(ctx)
	go b.serve()
	return b
}

// add lets a backend take connections as soon as it is ready.
func (b *balancer) add(address, readyz string) *backend {
	b.mu.Lock()
	defer b.mu.Unlock()
	x := &backend{address: address, readyz: readyz}
	b.backends = append(b.backends, x)
	return x
}

// look asks all backends again and again whether they are ready.
func (b *balancer) look(ctx context.Context) {
	client := &http.Client{Timeout: daemontest.Patience}
	for ctx.Err() == nil {
		b.mu.Lock()
		all := append([]*backend(nil), b.backends...)
		b.mu.Unlock()
		for _, x := range all {
			response, err := client.Get(x.readyz)
			x.ready.Store(err == nil && response.StatusCode == http.StatusOK)
			if err == nil {
				_ = response.Body.Close()
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (b *balancer) serve() {
	for {
		client, err := b.listener.Accept()
		if err != nil {
			return
		}
		go b.join(client)
	}
}

// join hands a connection over, and copies until both sides have said all.
func (b *balancer) join(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", b.turn())
	if err != nil {
		return
	}
	defer server.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(server, client)
		_ = server.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(client, server)
	_ = client.(*net.TCPConn).CloseWrite()
	<-done
}

// turn returns the address of the next backend that is ready, "" if none is.
func (b *balancer) turn() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	for range b.backends {
		b.next++
		if x := b.backends[b.next%len(b.backends)]; x.ready.Load() {
			return x.address
		}
	}
	return ""
}
