package cmd_test

import (
	"slices"
	"syscall"
	"testing"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/internal/testing/tracingtest"
)

// TestTraces: one trace holds the spans of the checker, the aggregator and the store, over a real NATS and Redis.
func TestTraces(t *testing.T) {
	nats, redis, receiver := serverstest.NATS(t), serverstest.Redis(t), tracingtest.Start(t)
	aggregator := daemontest.Start(t, process(build(t, "aggregator"), syscall.SIGTERM),
		"--nats", nats.URL(), "--redis", redis.URL(), "--admin", "127.0.0.1:0", "--trace", receiver.URL)
	checker := daemontest.Start(t, process(build(t, "checker"), syscall.SIGTERM), "--nats", nats.URL(), "--rules", "../deploy/rules.yaml",
		"--listen", "127.0.0.1:0", "--grpc", "none", "--admin", "127.0.0.1:0", "--trace", receiver.URL, "--trace-sample", "1")
	checker.Await("it knows of the fleet", func() bool { return checker.Metric("offpath_fleet_checkers") == "1" })
	ask(t, checker, "kristie")
	for _, d := range []*daemontest.Daemon{checker, aggregator} { // what they have left is sent
		if status := d.Stop(); status != 0 {
			t.Errorf("status %d; stderr:\n%s", status, d.Stderr())
		}
	}
	whole := []string{" > offpath-checker/report", "aggregate > offpath-aggregator/apply", "report > offpath-aggregator/aggregate", "report > offpath-checker/refresh"}
	all := receiver.Traces()
	if len(all) == 0 {
		t.Error("no traces")
	}
	for id, got := range all {
		if !slices.Equal(got, whole) {
			t.Errorf("trace %s: %q", id, got)
		}
	}
}
