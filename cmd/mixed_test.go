//go:build mixed

package cmd_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
)

// mixedLimit is that of the strict rule; the other one's is never reached.
const mixedLimit = 60

// mixed is a fleet of two aggregators and two checkers, each of this version or the previous one.
type mixed struct {
	fleet
	rules    string
	admitted map[string]int // by rule
}

// TestMixedFleet upgrades a fleet part by part while it counts, takes the upgrade back, and finds
// every hit in the ledger, once. It is for scripts/mixed.sh, which says by OFFPATH_TEST_PREVIOUS
// where the previous version's commands are.
func TestMixedFleet(t *testing.T) {
	previous, this := os.Getenv("OFFPATH_TEST_PREVIOUS"), filepath.Dir(binary(t, "checker"))
	if previous == "" {
		t.Fatal("OFFPATH_TEST_PREVIOUS is not set: run make mixed-test")
	}
	t.Setenv("OFFPATH_GRPC", anyPort) // not as a flag: a previous version may not know it
	m := &mixed{
		fleet: fleet{T: t, nats: serverstest.NATS(t).URL(), redis: serverstest.Redis(t).URL()},
		rules: writeFile(t, "rules.yaml", fmt.Sprintf("rules:\n"+
			"  - {name: many, match: {api: many}, key: [user], limit: 100000/day, buckets: 24}\n"+
			"  - {name: exact, match: {api: exact}, key: [user], limit: %d/day, enforcement: strict}\n", mixedLimit)),
		admitted: make(map[string]int),
	}
	for _, version := range []string{previous, this, previous} {
		m.version = version
		m.upgrade()
	}
	m.stop()
	if n := m.admitted["exact"]; n > mixedLimit || n < mixedLimit/2 { // permits that a checker returns lapse in part
		t.Errorf("%d hits passed the strict rule, limit %d", n, mixedLimit)
	}
	ledger := m.ledger()
	for rule, n := range m.admitted {
		if want := fmt.Sprintf(`"%s":{"counted":%d,"late":0,"refused":0,`, rule, n); !strings.Contains(ledger, want) {
			t.Errorf("got  %s\nwant %s…", ledger, want)
		}
	}
}

// upgrade replaces each part, as a rolling upgrade does: the old one ends in order, then the new
// one starts.
func (m *mixed) upgrade() {
	m.Helper()
	start := func(command string, flags ...string) *daemontest.Daemon {
		return daemontest.Start(m.T, process(m.path(command), syscall.SIGTERM),
			append(flags, "--nats", m.nats, "--admin", anyPort)...)
	}
	replace := func(all *[]*daemontest.Daemon, d func() *daemontest.Daemon) {
		if len(*all) == 2 {
			(*all)[0].MustStop()
			*all = (*all)[1:]
		}
		*all = append(*all, d())
		m.ask()
	}
	for range 2 {
		replace(&m.aggregators, func() *daemontest.Daemon { return start("aggregator", "--redis", m.redis) })
	}
	for range 2 {
		replace(&m.checkers, func() *daemontest.Daemon {
			d := start("checker", "--rules", m.rules, "--listen", anyPort)
			d.Await("it knows of the fleet", func() bool { return d.Metric("offpath_fleet_checkers") != "0" })
			return d
		})
	}
}

// ask asks each checker a few times by each rule; the first one lets everything pass.
func (m *mixed) ask() {
	m.Helper()
	if len(m.checkers) < 2 { // the fleet is not complete yet
		return
	}
	for i := range 20 {
		for _, rule := range []string{"many", "exact"} {
			switch passed := ask(m.T, m.checkers[i%2], fmt.Sprintf(`{"user":"kristie","api":%q}`, rule)); {
			case passed:
				m.admitted[rule]++
			case rule == "many":
				m.Fatal("denied")
			}
		}
	}
	m.Logf("at %s: %v admitted", m.version, m.admitted)
}
