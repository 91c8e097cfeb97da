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
	t                     *testing.T
	nats, redis, rules    string
	bin                   map[string]string // directories of the commands, by version
	aggregators, checkers [2]*daemontest.Daemon
	admitted              map[string]int // by rule
}

// TestMixedFleet upgrades a fleet part by part while it counts, takes the upgrade back, and finds every hit in the ledger, once. It is
// for scripts/mixed.sh, which says by OFFPATH_TEST_PREVIOUS where the previous version's commands are.
func TestMixedFleet(t *testing.T) {
	previous := os.Getenv("OFFPATH_TEST_PREVIOUS")
	if previous == "" {
		t.Fatal("OFFPATH_TEST_PREVIOUS is not set: run make mixed-test")
	}
	t.Setenv("OFFPATH_GRPC", "127.0.0.1:0") // not as a flag: a previous version may not know it
	m := &mixed{
		t: t, nats: serverstest.NATS(t).URL(), redis: serverstest.Redis(t).URL(), rules: filepath.Join(t.TempDir(), "rules.yaml"),
		bin: map[string]string{"previous": previous}, admitted: make(map[string]int),
	}
	m.bin["this"] = filepath.Dir(build(t, "aggregator"))
	if err := os.Rename(build(t, "checker"), filepath.Join(m.bin["this"], "checker")); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("rules:\n"+
		"  - {name: many, match: {api: many}, key: [user], limit: 100000/day, buckets: 24}\n"+
		"  - {name: exact, match: {api: exact}, key: [user], limit: %d/day, enforcement: strict}\n", mixedLimit)
	if err := os.WriteFile(m.rules, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	for i := range 2 {
		m.aggregator(i, "previous")
		m.checker(i, "previous")
	}
	m.ask("all of the previous version")
	for _, version := range []string{"this", "previous"} {
		for i := range 2 {
			m.aggregator(i, version)
			m.ask(fmt.Sprintf("aggregator %d of %s version", i, version))
		}
		for i := range 2 {
			m.checker(i, version)
			m.ask(fmt.Sprintf("checker %d of %s version", i, version))
		}
	}
	m.account()
}

// aggregator replaces an aggregator, as a rolling upgrade does: the old one ends in order, then the new one starts.
func (m *mixed) aggregator(i int, version string) {
	m.stop(m.aggregators[i])
	m.aggregators[i] = daemontest.Start(m.t, process(filepath.Join(m.bin[version], "aggregator"), syscall.SIGTERM),
		"--nats", m.nats, "--redis", m.redis, "--admin", "127.0.0.1:0")
}

func (m *mixed) checker(i int, version string) {
	m.stop(m.checkers[i])
	d := daemontest.Start(m.t, process(filepath.Join(m.bin[version], "checker"), syscall.SIGTERM),
		"--nats", m.nats, "--rules", m.rules, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
	d.Await("it knows of the fleet", func() bool { return d.Metric("offpath_fleet_checkers") != "0" })
	m.checkers[i] = d
}

func (m *mixed) stop(d *daemontest.Daemon) {
	if d == nil {
		return
	}
	if status := d.Stop(); status != 0 {
		m.t.Errorf("status %d; stderr:\n%s", status, d.Stderr())
	}
}

// ask asks each checker a few times by each rule; the first one lets everything pass.
func (m *mixed) ask(when string) {
	for i := range 20 {
		for _, rule := range []string{"many", "exact"} {
			body := fmt.Sprintf(`{"attributes":{"user":"kristie","api":%q}}`, rule)
			status, answer := daemontest.Do(m.t, "POST", doorOf(m.checkers[i%2]), body)
			switch {
			case status == 200:
				m.admitted[rule]++
			case status != 429 || rule == "many":
				m.t.Fatalf("%s: %d %s", when, status, answer)
			}
		}
	}
	m.t.Logf("%s: %v admitted", when, m.admitted)
}

// account stops the fleet, and compares what was admitted with what was counted.
func (m *mixed) account() {
	for _, d := range append(m.checkers[:], m.aggregators[:]...) {
		m.stop(d)
	}
	if n := m.admitted["exact"]; n > mixedLimit || n < mixedLimit/2 {
		m.t.Errorf("%d hits passed the strict rule, limit %d", n, mixedLimit)
	}
	for version, bin := range m.bin {
		status, ledger, stderr := daemontest.Run(m.t, process(filepath.Join(bin, "aggregator"), os.Kill), nil, "ledger", "--redis", m.redis, "--json")
		for rule, n := range m.admitted {
			if want := fmt.Sprintf(`"%s":{"counted":%d,"late":0,"refused":0,`, rule, n); status != 0 || !strings.Contains(ledger, want) {
				m.t.Errorf("by %s version: status %d, stderr %q\ngot  %s\nwant %s…", version, status, stderr, ledger, want)
			}
		}
	}
}
