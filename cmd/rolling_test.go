package cmd_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
)

// rolling is a fleet under load of which every part is restarted, one after the other.
type rolling struct {
	*testing.T
	aggregator, checker string // the built commands
	rules, nats         string
	redis               *servers.Redis
	cluster             []*servers.NATS
	http, grpc          *balancer

	allowed, denied, failed atomic.Int64
	overGRPC                atomic.Int64 // of the allowed
	firstFailure            atomic.Pointer[string]
}

const (
	// many is a limit that nobody reaches, few is one that is used up at once.
	many, few = 1_000_000, 5
	// stopDelay is how long a checker answers after it has been told to stop. The balancer looks every 20 ms, and clients ask every 2 ms,
	// each more seldom if the machine has no time for it.
	stopDelay = 2 * time.Second
)

// TestRollingRestarts restarts every checker, every aggregator, every NATS server and Redis of a fleet under load, one at a time, by
// SIGTERM. No request fails; and what was admitted is in the ledger, each hit once.
func TestRollingRestarts(t *testing.T) {
	r := newRolling(t)
	aggregators := []*daemontest.Daemon{r.startAggregator(), r.startAggregator()}
	checkers := []*daemontest.Daemon{r.startChecker(), r.startChecker()}

	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for i := range 4 {
		clients.Go(func() { r.askOverHTTP(ctx, i) })
		clients.Go(func() { r.askOverGRPC(ctx, i) })
	}
	round := func(what string, restart func()) {
		t.Helper()
		before := r.allowed.Load()
		r.awaitLoad(before + 200)
		begin := time.Now()
		restart()
		r.awaitLoad(r.allowed.Load() + 200)
		t.Logf("%s restarted in %v; %d admitted since", what, time.Since(begin).Round(time.Millisecond), r.allowed.Load()-before)
	}
	for i := range checkers {
		round(fmt.Sprintf("checker %d", i), func() {
			r.end(checkers[i])
			checkers[i] = r.startChecker()
		})
	}
	for i := range aggregators {
		round(fmt.Sprintf("aggregator %d", i), func() {
			r.end(aggregators[i])
			aggregators[i] = r.startAggregator()
		})
	}
	for i, n := range r.cluster {
		round(fmt.Sprintf("NATS server %d", i), func() {
			if err := n.Restart(); err != nil {
				t.Fatal(err)
			}
			for _, d := range append(checkers, aggregators...) {
				d.Await("it has found another server", func() bool { return d.Metric("offpath_nats_connected") == "1" })
			}
		})
	}
	round("Redis", func() {
		if err := r.redis.RestartInOrder(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, d := range aggregators {
			d.Await("it has found Redis again", func() bool { return d.Metric("offpath_redis_connected") == "1" })
		}
	})
	stop()
	clients.Wait()
	for _, d := range append(checkers, aggregators...) {
		r.end(d)
	}
	if n := r.failed.Load(); n > 0 {
		t.Errorf("%d requests failed; the first: %s", n, *r.firstFailure.Load())
	}
	if r.denied.Load() == 0 || r.overGRPC.Load() == 0 {
		t.Errorf("%d were denied, %d passed over gRPC: that was no load", r.denied.Load(), r.overGRPC.Load())
	}
	r.holdLedger()
}

func newRolling(t *testing.T) *rolling {
	t.Helper()
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	text := fmt.Sprintf("rules:\n  - {name: wide, match: {to: wide}, key: [user], limit: %d/day}\n"+
		"  - {name: narrow, match: {to: narrow}, key: [user], limit: %d/day}\n", many, few)
	if err := os.WriteFile(rules, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &rolling{
		T: t, aggregator: build(t, "aggregator"), checker: build(t, "checker"), rules: rules,
		redis: serverstest.Redis(t), cluster: serverstest.NATSCluster(t), http: newBalancer(t), grpc: newBalancer(t),
	}
	var urls []string
	for _, n := range r.cluster {
		urls = append(urls, n.URL())
	}
	r.nats = strings.Join(urls, ",")
	return r
}

func (r *rolling) startAggregator() *daemontest.Daemon {
	r.Helper()
	d := daemontest.Start(r.T, process(r.aggregator, syscall.SIGTERM), "--nats", r.nats, "--redis", r.redis.URL(), "--admin", "127.0.0.1:0")
	d.Await("it is ready", func() bool { status, _ := d.Get("/readyz"); return status == 200 })
	return d
}

// startChecker returns when the checker has been heard by the fleet, and takes connections.
func (r *rolling) startChecker() *daemontest.Daemon {
	r.Helper()
	d := daemontest.Start(r.T, process(r.checker, syscall.SIGTERM), "--nats", r.nats, "--rules", r.rules,
		"--stop-delay", stopDelay.String(), "--listen", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--admin", "127.0.0.1:0")
	readyz := d.Admin() + "/readyz"
	overHTTP := &backend{address: d.Find(`HTTP door +http://([^/\s]+)`), readyz: readyz}
	overGRPC := &backend{address: d.Find(`gRPC door +([0-9.:]+)`), readyz: readyz}
	r.http.add(overHTTP)
	r.grpc.add(overGRPC)
	d.Await("the balancers use it", func() bool { return r.http.isReady(overHTTP) && r.grpc.isReady(overGRPC) })
	return d
}

func (r *rolling) end(d *daemontest.Daemon) {
	r.Helper()
	if status := d.Stop(); status != 0 {
		r.Errorf("status %d; stderr:\n%s", status, d.Stderr())
	}
}

// awaitLoad waits until so many hits have been admitted.
func (r *rolling) awaitLoad(admitted int64) {
	r.Helper()
	deadline := time.Now().Add(daemontest.Patience)
	for r.allowed.Load() < admitted {
		if time.Now().After(deadline) {
			r.Fatalf("only %d of %d hits get through; %d failed", r.allowed.Load(), admitted, r.failed.Load())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// holdLedger holds what the store has counted against what the clients have seen pass.
func (r *rolling) holdLedger() {
	r.Helper()
	status, ledger, stderr := daemontest.Run(r.T, process(r.aggregator, os.Kill), nil, "ledger", "--redis", r.redis.URL(), "--json")
	if status != 0 {
		r.Fatalf("status %d, stderr %q", status, stderr)
	}
	var counted int64
	for _, found := range regexp.MustCompile(`"counted":(\d+),"late":0,"refused":0`).FindAllStringSubmatch(ledger, -1) {
		var n int64
		_, _ = fmt.Sscan(found[1], &n)
		counted += n
	}
	if counted != r.allowed.Load() {
		r.Errorf("%d hits were admitted, %d counted\n%s", r.allowed.Load(), counted, ledger)
	}
}
