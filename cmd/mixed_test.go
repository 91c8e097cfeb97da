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
	*testing.T
	nats, redis, rules    string
	bin                   map[string]string // directories of the commands, by version
	aggregators, checkers [2]*daemontest.Daemon
	admitted              map[string]int // by rule
}

// TestMixedFleet upgrades a fleet part by part while it counts, takes the upgrade back, and finds
// every hit in the ledger, once. It is for scripts/mixed.sh, which says by OFFPATH_TEST_PREVIOUS
// where the previous version's commands are.
func TestMixedFleet(t *testing.T) {
	previous := os.Getenv("OFFPATH_TEST_PREVIOUS")
	if previous == "" {
		t.Fatal("OFFPATH_TEST_PREVIOUS is not set: run make mixed-test")
	}
	t.Setenv("OFFPATH_GRPC", anyPort) // not as a flag: a previous version may not know it
	m := &mixed{
		T: t, nats: serverstest.NATS(t).URL(), redis: serverstest.Redis(t).URL(),
		rules: writeFile(t, "rules.yaml", fmt.Sprintf("rules:\n"+
			"  - {name: many, match: {api: many}, key: [user], limit: 100000/day, buckets: 24}\n"+
			"  - {name: exact, match: {api: exact}, key: [user], limit: %d/day, enforcement: strict}\n", mixedLimit)),
		bin:      map[string]string{"previous": previous, "this": filepath.Dir(binary(t, "checker"))},
		admitted: make(map[string]int),
	}
	m.upgrade("previous")
	m.upgrade("this")
	m.upgrade("previous")
	for _, d := range append(m.checkers[:], m.aggregators[:]...) {
		m.stop(d)
	}
	if n := m.admitted["exact"]; n > mixedLimit || n < mixedLimit/2 { // permits that a checker returns lapse in part
		t.Errorf("%d hits passed the strict rule, limit %d", n, mixedLimit)
	}
	for version, bin := range m.bin {
		aggregator := process(filepath.Join(bin, "aggregator"), os.Kill)
		status, ledger, stderr := daemontest.Run(t, aggregator, nil, "ledger", "--redis", m.redis, "--json")
		for rule, n := range m.admitted {
			if want := fmt.Sprintf(`"%s":{"counted":%d,"late":0,"refused":0,`, rule, n); status != 0 || !strings.Contains(ledger, want) {
				t.Errorf("by %s version: status %d, stderr %q\ngot  %s\nwant %s…", version, status, stderr, ledger, want)
			}
		}
	}
}

// upgrade replaces each part, as a rolling upgrade does: the old one ends in order, then the new
// one starts.
func (m *mixed) upgrade(version string) {
	m.Helper()
	start := func(command string, flags ...string) *daemontest.Daemon {
		return daemontest.Start(m.T, process(filepath.Join(m.bin[version], command), syscall.SIGTERM),
			append(flags, "--nats", m.nats, "--admin", anyPort)...)
	}
	for i := range m.aggregators {
		m.stop(m.aggregators[i])
		m.aggregators[i] = start("aggregator", "--redis", m.redis)
		m.ask(fmt.Sprintf("aggregator %d of %s version", i, version))
	}
	for i := range m.checkers {
		m.stop(m.checkers[i])
		d := start("checker", "--rules", m.rules, "--listen", anyPort)
		d.Await("it knows of the fleet", func() bool { return d.Metric("offpath_fleet_checkers") != "0" })
		m.checkers[i] = d
		m.ask(fmt.Sprintf("checker %d of %s version", i, version))
	}
}

func (m *mixed) stop(d *daemontest.Daemon) {
	m.Helper()
	if d == nil {
		return
	}
	if status := d.Stop(); status != 0 {
		m.Errorf("status %d; stderr:\n%s", status, d.Stderr())
	}
}

// ask asks each checker a few times by each rule; the first one lets everything pass.
func (m *mixed) ask(when string) {
	m.Helper()
	if m.checkers[1] == nil { // the fleet is not complete yet
		return
	}
	for i := range 20 {
		for _, rule := range []string{"many", "exact"} {
			switch passed := ask(m.T, m.checkers[i%2], fmt.Sprintf(`{"user":"kristie","api":%q}`, rule)); {
			case passed:
				m.admitted[rule]++
			case rule == "many":
				m.Fatalf("%s: denied", when)
			}
		}
	}
	m.Logf("%s: %v admitted", when, m.admitted)
}
