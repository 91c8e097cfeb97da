package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/offpath-io/offpath/cmd/checker/door"
	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
)

// TestOneTokenAtTwoDaemons: a token that is settled at two checkers, for different costs, counts for
// one of them, whichever comes first.
func TestOneTokenAtTwoDaemons(t *testing.T) {
	bus, store, rules := serverstest.NATS(t), memstore.New(), writeFile(t, daily(15))
	startWorker(t, bus.URL(), aggregate.Options{Store: store})
	first := startChecker(t, "--rules", rules, "--nats", bus.URL())
	second := startChecker(t, "--rules", rules, "--nats", bus.URL())
	token := asks(t, first, `{"rule":"per-user","key":"kristie","cost":5,"settle":true}`, 200).Token
	for cost, d := range []*daemontest.Daemon{first, second} {
		url := strings.Replace(doorOf(d), door.Path, door.SettlePath, 1)
		status, body := daemontest.Do(t, "POST", url, fmt.Sprintf(`{"token":%q,"cost":%d}`, token, cost))
		equal(t, body, status, 204)
	}
	for _, d := range []*daemontest.Daemon{first, second} {
		d.AwaitMetric(`offpath_checker_settlements_total{outcome="answered"}`, "1")
	}
	awaitAnswered(first, "per-user", 5)
	ledger, err := store.Ledger(t.Context())
	must(t, err)
	if l := ledger["per-user"]; l.Counted != 5 || l.Refunded != 5 && l.Refunded != 4 || l.Settled != 0 {
		t.Errorf("%+v: want 5 counted, and 5 or 4 of them refunded", l)
	}
}
