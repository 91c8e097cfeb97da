package cmd_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/deploytest"
)

// deployedRules has everything that goes over a subject, or into a script, of its own.
const deployedRules = `
rules:
  - {name: per-user, key: [user], limit: %d/day}
  - {name: per-team, key: [team], limit: 1000/hour, buckets: 60, count: all}
  - {name: tokens, key: [user, team], limit: 1000/hour, algorithm: token_bucket}
  - {name: exact, match: {api: pay}, key: [user], limit: 5/day, enforcement: strict}
`

// TestDeployed runs a fleet on a NATS and a Redis that are as deploy has them, with its accounts and users. Nobody is refused
// anything, limits hold over the checkers, rules change, and nothing is missing from the ledger.
func TestDeployed(t *testing.T) {
	nats := deploytest.NATS(t)
	redis, _ := deploytest.Redis(t)
	aggregator, checker := build(t, "aggregator"), build(t, "checker")
	rules := func(limit int) {
		t.Helper()
		path := filepath.Join(t.TempDir(), "rules.yaml")
		if err := os.WriteFile(path, fmt.Appendf(nil, deployedRules, limit), 0o600); err != nil {
			t.Fatal(err)
		}
		status, stdout, stderr := daemontest.Run(t, process(aggregator, os.Kill), nil, "rules", "apply", "-f", path, "--nats", nats.URL(t, "operator"))
		if status != 0 {
			t.Fatalf("rules apply: %d\n%s%s", status, stdout, stderr)
		}
	}
	rules(40)
	aggregators := []*daemontest.Daemon{
		daemontest.Start(t, process(aggregator, syscall.SIGTERM), "--nats", nats.URL(t, "aggregator"), "--redis", redis, "--admin", "127.0.0.1:0"),
		daemontest.Start(t, process(aggregator, syscall.SIGTERM), "--nats", nats.URL(t, "aggregator"), "--redis", redis, "--admin", "127.0.0.1:0"),
	}
	var checkers []*daemontest.Daemon
	for _, name := range []string{"checker-1", "checker-2", "checker-2"} { // the second is shared by two, as by the pods of a Deployment
		checkers = append(checkers, daemontest.Start(t, process(checker, syscall.SIGTERM), "--name", name, "--nats", nats.URL(t, name), "--rules", "nats",
			"--listen", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--acquire", "5s"))
	}
	for _, d := range checkers {
		d.Await("it knows of the fleet", func() bool { return d.Metric("offpath_fleet_checkers") == "3" })
	}
	admitted := useUp(t, checkers, 40)
	rules(99) // more than may pass of the first, so that something is left; and few enough for no forecast, by which a checker denies sooner
	for _, d := range checkers {
		d.Await("it has the new rules", func() bool { return strings.Contains(body(d.Get("/readyz")), "revision 2") })
	}
	admitted += useUp(t, checkers, 99-admitted)
	paid := 0
	for i := range 12 {
		status, answer := daemontest.Do(t, "POST", doorOf(checkers[i%3]), `{"attributes":{"user":"rich","api":"pay"}}`)
		if status == 200 {
			paid++
		} else if status != 429 {
			t.Errorf("%d %s", status, answer)
		}
	}
	if paid != 5 {
		t.Errorf("%d admitted under a strict limit of 5", paid)
	}
	command := func(arguments ...string) {
		t.Helper()
		status, stdout, stderr := daemontest.Run(t, process(aggregator, os.Kill), nil, append(arguments, "--nats", nats.URL(t, "operator"))...)
		if status != 0 {
			t.Errorf("%s: %d\n%s%s", arguments, status, stdout, stderr)
		}
	}
	peek := func(d *daemontest.Daemon) int {
		status, _ := daemontest.Do(t, "POST", doorOf(d), `{"rule":"per-user","key":"mallory","mode":"peek"}`)
		return status
	}
	command("block", "mallory", "--rule", "per-user", "--for", "1h")
	for _, d := range checkers {
		d.Await("it blocks", func() bool { return peek(d) == 429 })
	}
	command("unblock", "mallory", "--rule", "per-user")
	for _, d := range checkers {
		d.Await("it blocks no more", func() bool { return peek(d) == 200 })
	}
	command("fleet")
	command("get", "mallory")
	for _, d := range append(checkers, aggregators...) {
		if status := d.Stop(); status != 0 {
			t.Errorf("status %d", status)
		}
		if log := d.Stderr(); strings.Contains(log, "level=WARN") || strings.Contains(log, "level=ERROR") || strings.Contains(strings.ToLower(log), "permission") {
			t.Errorf("it complains:\n%s", log)
		}
	}
	status, ledger, stderr := daemontest.Run(t, process(aggregator, os.Kill), nil, "ledger", "--redis", redis, "--json")
	want := fmt.Sprintf(`"per-user":{"counted":%d,"late":0,`, admitted+paid)
	if status != 0 || !strings.Contains(ledger, want) || !strings.Contains(ledger, `"exact":{"counted":5,"late":0,`) {
		t.Errorf("status %d, stderr %q\ngot  %s\nwant %s", status, stderr, ledger, want)
	}
}

// useUp asks until each checker denies, and returns how many were admitted: the limit, and a few more.
func useUp(t *testing.T, checkers []*daemontest.Daemon, limit int) (admitted int) {
	t.Helper()
	for _, d := range checkers {
		d.Await("it denies", func() bool {
			status, answer := daemontest.Do(t, "POST", doorOf(d), `{"attributes":{"user":"kristie","team":"red"}}`)
			if status == 200 {
				admitted++
			} else if status != 429 {
				t.Fatalf("%d %s", status, answer)
			}
			return status == 429
		})
	}
	if admitted < limit || admitted > 2*limit+3 {
		t.Errorf("%d admitted, limit %d", admitted, limit)
	}
	return admitted
}

func body(_ int, body string) string { return body }
