package cmd_test

import (
	"slices"
	"testing"

	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/internal/testing/tracingtest"
)

// TestTraces: one trace holds the spans of the checker, the aggregator and the store, over a real
// NATS and Redis.
func TestTraces(t *testing.T) {
	receiver := tracingtest.Start(t)
	f := &fleet{T: t, nats: serverstest.NATS(t).URL(), redis: serverstest.Redis(t).URL()}
	f.startAggregator("--trace", receiver.URL)
	c := f.startChecker("--rules", "../deploy/rules.yaml", "--trace", receiver.URL, "--trace-sample", "1")
	c.AwaitMetric("offpath_fleet_checkers", "1")
	ask(t, c, asUser("kristie"))
	f.stop() // what is left is sent
	whole := []string{
		" > offpath-checker/report", "aggregate > offpath-aggregator/apply",
		"report > offpath-aggregator/aggregate", "report > offpath-checker/refresh",
	}
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
