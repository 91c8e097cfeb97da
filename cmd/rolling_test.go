package cmd_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
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
	d.Await("the balancers use it", func() bool { return r.http.isReady(overHTTP) && r.grpc.isReady(overGRPC) })
}
