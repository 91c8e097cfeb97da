package main

import (
	"encoding/json"
	"net"
	"regexp"
	"strings"
	"testing"

	"github.com/offpath-io/offpath/cmd/checker/door"
	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
)

// slowRules let no hit leave its window while a test runs.
const slowRules = `
rules:
  - name: per-user
    key: [user]
    limit: 15/day
`

func start1(t *testing.T, args ...string) *daemontest.Daemon {
	t.Helper()
	return daemontest.Start(t, run, append(args, anywhere...)...)
}

func doorOf(d *daemontest.Daemon) string { return d.Find(`HTTP door +(http://\S+)`) }

func ask(t *testing.T, d *daemontest.Daemon, body string) (int, door.Answer) {
	t.Helper()
	status, text := daemontest.Do(t, "POST", doorOf(d), body)
	var a door.Answer
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		t.Fatalf("%d %s: %v", status, text, err)
	}
	return status, a
}

const strictRules = `
rules:
  - name: per-user
    key: [user]
    limit: 5/day
    enforcement: strict
`

// TestStrictEnforcement: the first request of a key waits for its permit, or, told not to wait, is denied until
// one has come; and then the limit holds.
func TestStrictEnforcement(t *testing.T) {
	const kristie = `{"attributes":{"user":"kristie"}}`
	for _, wait := range []string{"10s", "0"} {
		d := start1(t, "--rules", writeFile(t, strictRules), "--acquire", wait)
		d.Await("it hears its aggregator", func() bool { return d.Metric(`offpath_freshness{state="fresh"}`) == "1" })
		status, a := ask(t, d, kristie)
		if want := map[string]int{"10s": 200, "0": 429}[wait]; status != want {
			t.Errorf("--acquire %s: the first request: %d, want %d; %+v", wait, status, want, a)
		}
		passed := 0
		if a.Allowed {
			passed++
		}
		d.Await("five requests pass", func() bool { // permits may come one by one
			if _, a := ask(t, d, kristie); a.Allowed {
				passed++
			}
			return passed == 5
		})
		if status, a := ask(t, d, kristie); status != 429 || *a.Remaining != 0 {
			t.Errorf("--acquire %s: after five requests: %d %+v", wait, status, a)
		}
		d.Stop()
	}
}

// TestEverythingInOneProcess is what "go run ./cmd/checker" does, on other ports and with a rule that
// is not over after a second.
func TestEverythingInOneProcess(t *testing.T) {
	d := start1(t, "--rules", writeFile(t, slowRules))
	d.Await("it hears its aggregator", func() bool { return d.Metric(`offpath_freshness{state="fresh"}`) == "1" })

	const kristie = `{"attributes":{"user":"kristie"}}`
	for i := range 15 {
		status, a := ask(t, d, kristie)
		if status != 200 || !a.Allowed || *a.Remaining != int64(14-i) || a.Freshness != "fresh" {
			t.Fatalf("request %d: %d %+v", i+1, status, a)
		}
	}
	if status, a := ask(t, d, kristie); status != 429 || a.Allowed || *a.Rule != "per-user" {
		t.Errorf("request 16: %d %+v", status, a)
	}
	if status, _ := ask(t, d, `{"attributes":{"user":"someone else"}}`); status != 200 {
		t.Errorf("another user: %d", status)
	}

	d.Await("all hits are answered", func() bool {
		return d.Metric(`offpath_hits_total{outcome="answered",rule="per-user"}`) == "16"
	})
	for metric, want := range map[string]string{
		`offpath_decisions_total{outcome="allowed",rule="per-user"}`: "16",
		`offpath_decisions_total{outcome="denied",rule="per-user"}`:  "1",
		`offpath_hits_total{outcome="charged",rule="per-user"}`:      "16",
		`offpath_hits_pending{rule="per-user"}`:                      "0",
		`offpath_hits_in_flight{rule="per-user"}`:                    "0",
		`offpath_nats_connected`:                                     "1",
		`offpath_fleet_checkers`:                                     "1",
		`offpath_shards`:                                             "1",
		`offpath_unreadable_messages_total`:                          "0",
	} {
		if got := d.Metric(metric); got != want {
			t.Errorf("%s is %q, want %s", metric, got, want)
		}
	}
	if status, body := d.Get("/healthz"); status != 200 {
		t.Errorf("healthz: %d %s", status, body)
	}
	if status, body := d.Get("/readyz"); status != 200 ||
		!regexp.MustCompile(`^{"ready":true,"nats":"connected","freshness":"fresh","rules":"revision \d+","problem":""}\n$`).MatchString(body) {
		t.Errorf("readyz: %d %s", status, body)
	}

	ask(t, d, `{"attributes":{"user":"at the last moment"}}`)
	doorURL := doorOf(d)
	if status := d.Stop(); status != 0 {
		t.Errorf("status %d after a stop; stderr:\n%s", status, d.Stderr())
	}
	if status, _ := daemontest.Do(t, "POST", doorURL, kristie); status != 0 {
		t.Errorf("the door still answers: %d", status)
	}
	for _, level := range []string{"level=WARN", "level=ERROR", "unreported"} {
		if strings.Contains(d.Stderr(), level) {
			t.Errorf("complaints about nothing:\n%s", d.Stderr())
		}
	}
}

// TestOthersJoin has a second checker join the first one's embedded NATS, as the first says they may.
func TestOthersJoin(t *testing.T) {
	rules := writeFile(t, slowRules)
	first := start1(t, "--rules", rules)
	second := start1(t, "--rules", rules, "--nats", first.Find(`NATS +(nats://\S+)`))
	for _, d := range []*daemontest.Daemon{first, second} {
		d.Await("it hears the aggregator", func() bool { return d.Metric(`offpath_freshness{state="fresh"}`) == "1" })
	}
	if status, a := ask(t, first, `{"rule":"per-user","key":"kristie","cost":15}`); status != 200 {
		t.Fatalf("%d %+v", status, a)
	}
	// The alarm tells the second of a key that it has never seen.
	second.Await("it has heard of kristie", func() bool { return second.Metric("offpath_live_keys") == "1" })
	if status, a := ask(t, second, `{"rule":"per-user","key":"kristie"}`); status != 429 {
		t.Errorf("%d %+v", status, a)
	}
	if status := second.Stop(); status != 0 {
		t.Errorf("status %d; stderr:\n%s", status, second.Stderr())
	}
}

func TestPortsInUse(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	busy := listener.Addr().String()
	for _, args := range [][]string{
		{"--listen", busy, "--admin", "127.0.0.1:0", "--grpc", "127.0.0.1:0"},
		{"--listen", "127.0.0.1:0", "--admin", busy, "--grpc", "127.0.0.1:0"},
		{"--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--grpc", busy},
	} {
		status, stdout, stderr := daemontest.Run(t, run, nil, args...)
		if status != 1 || !strings.Contains(stderr, busy) || !strings.Contains(stderr, "address already in use") {
			t.Errorf("%v: status %d, stderr %q", args, status, stderr)
		}
		if stdout != "" {
			t.Errorf("%v: it says that it runs: %s", args, stdout)
		}
	}
}

// TestNobodyThere starts a checker whose NATS is down, brings that up, and takes it away.
func TestNobodyThere(t *testing.T) {
	nats := serverstest.NATS(t)
	if err := nats.Stop(); err != nil {
		t.Fatal(err)
	}
	d := start1(t, "--rules", writeFile(t, slowRules), "--nats", nats.URL())
	if status, a := ask(t, d, `{"attributes":{"user":"kristie"}}`); status != 200 || a.Freshness != "local" {
		t.Errorf("without NATS: %d %+v", status, a)
	}
	if status, body := d.Get("/readyz"); status != 200 || strings.Contains(body, `"nats":"connected"`) {
		t.Errorf("readyz: %d %s", status, body)
	}
	d.Await("it says what it waits for", func() bool { return strings.Contains(d.Stderr(), "waiting for NATS") })

	if err := nats.Restart(); err != nil {
		t.Fatal(err)
	}
	d.Await("it says that NATS is there", func() bool { return strings.Contains(d.Stderr(), "connected to NATS") })
	if got := d.Metric("offpath_nats_connected"); got != "1" {
		t.Errorf("nats_connected %q", got)
	}
	if got := strings.Count(d.Stderr(), "waiting for NATS"); got != 1 {
		t.Errorf("said %d times what it waits for:\n%s", got, d.Stderr())
	}
	if err := nats.Stop(); err != nil {
		t.Fatal(err)
	}
	d.Await("it says that NATS has gone", func() bool { return strings.Count(d.Stderr(), "waiting for NATS") == 2 })
	if status, _ := ask(t, d, `{"attributes":{"user":"kristie"}}`); status != 200 {
		t.Errorf("without NATS again: %d", status)
	}
	// Two hits will never be delivered: a stop says so.
	if status := d.Stop(); status != 1 || !strings.Contains(d.Stderr(), "2 hits left unreported") {
		t.Errorf("status %d; stderr:\n%s", status, d.Stderr())
	}
}
