package checker

import (
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
)

// TestEverythingInOneProcess is what a checker without --nats does, with a rule that is not over
// after a second.
func TestEverythingInOneProcess(t *testing.T) {
	d := startChecker(t, "--rules", writeFile(t, daily(15)), "--stop-delay", "1ms", "--log-level", "debug",
		"--stale-after", "1000", "--share-after", "1000", "--outage-after", "1000") // however slow the machine is
	awaitFresh(d)
	for i := range 15 {
		if a := asks(t, d, kristie, 200); !a.Allowed || *a.Remaining != int64(14-i) || a.Freshness != "fresh" {
			t.Fatalf("request %d: %+v", i+1, a)
		}
	}
	if a := asks(t, d, kristie, 429); a.Allowed || *a.Rule != "per-user" {
		t.Errorf("request 16: %+v", a)
	}
	asks(t, d, `{"attributes":{"user":"someone else"}}`, 200)

	awaitAnswered(d, "per-user", 16)
	d.AwaitMetric("offpath_fleet_checkers", "1") // nobody knows the number before a while of listening
	for metric, want := range map[string]string{
		`offpath_decisions_total{outcome="allowed",rule="per-user"}`: "16",
		`offpath_decisions_total{outcome="denied",rule="per-user"}`:  "1",
		`offpath_hits_total{outcome="charged",rule="per-user"}`:      "16",
		`offpath_hits_pending{rule="per-user"}`:                      "0",
		`offpath_hits_in_flight{rule="per-user"}`:                    "0",
		`offpath_nats_connected`:                                     "1",
		`offpath_shards`:                                             "1",
		`offpath_unreadable_messages_total`:                          "0",
	} {
		equal(t, metric, d.Metric(metric), want)
	}
	ready := regexp.MustCompile(
		`^{"ready":true,"nats":"connected","freshness":"fresh","rules":"revision \d+","problem":""}\n$`)
	if status, body := d.Get("/readyz"); status != 200 || !ready.MatchString(body) {
		t.Errorf("readyz: %d %s", status, body)
	}

	asks(t, d, `{"attributes":{"user":"at the last moment"}}`, 200)
	url := apiOf(d)
	d.MustStop()
	if status, _ := daemontest.Do(t, "POST", url, kristie); status != 0 {
		t.Errorf("the listener still answers: %d", status)
	}
	// The listeners close after it has said that it leaves, and hits are delivered after the last
	// request.
	order := regexp.MustCompile(
		`(?s)"not ready any more; servers stop soon" delay=1ms.*part="HTTP API".*part=reporter.*part="embedded aggregator"`)
	if !order.MatchString(d.Stderr()) {
		t.Errorf("it stops in another order:\n%s", d.Stderr())
	}
	if len(complaints(d.Stderr())) > 0 || strings.Contains(d.Stderr(), "unreported") {
		t.Errorf("complaints about nothing:\n%s", d.Stderr())
	}
}

// TestStrictEnforcement: the first request of a key waits for its permit, or, told not to wait, is
// denied until one has come; and then the limit holds.
func TestStrictEnforcement(t *testing.T) {
	rules := writeFile(t, "rules: [{name: per-user, key: [user], limit: 5/day, enforcement: strict}]")
	for wait, first := range map[string]int{"1m": 200, "0": 429} {
		d := startChecker(t, "--rules", rules, "--acquire", wait)
		awaitFresh(d)
		passed := 0
		if asks(t, d, kristie, first).Allowed {
			passed++
		}
		d.Await("five requests pass", func() bool { // permits may come one by one
			if _, a := ask(t, d, kristie); a.Allowed {
				passed++
			}
			return passed == 5
		})
		equal(t, "--acquire "+wait+": after five requests", *asks(t, d, kristie, 429).Remaining, 0)
		d.Stop()
	}
}

func TestPortsInUse(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer listener.Close()
	busy := listener.Addr().String()
	for _, flag := range []string{"--listen", "--admin", "--grpc", "--proxy"} {
		args := append([]string{"--rules", "r", "--upstream", "http://127.0.0.1:1", "--proxy", "127.0.0.1:0"}, anywhere...)
		args[slices.Index(args, flag)+1] = busy
		refuses(t, nil, args, 1, busy, "address already in use")
	}
}

// TestWithoutNATS: a checker whose NATS is down decides and says what it waits for; also when NATS
// goes again.
func TestWithoutNATS(t *testing.T) {
	t.Parallel()
	nats := serverstest.NATS(t)
	must(t, nats.Stop())
	hasty := options{clientTime: daemontest.Patience, drainTime: time.Millisecond}
	d := daemontest.Start(t, hasty.run, append(anywhere[:len(anywhere):len(anywhere)], "--rules", writeFile(t, daily(15)), "--nats", nats.URL())...)
	equal(t, "without NATS", asks(t, d, kristie, 200).Freshness, "local")
	if status, body := d.Get("/readyz"); status != 200 || strings.Contains(body, `"nats":"connected"`) {
		t.Errorf("readyz: %d %s", status, body)
	}
	if status, _ := d.Get("/"); status != 404 || strings.Contains(d.Stdout(), "console") {
		t.Errorf("the aggregators have the console, not a participant in a fleet: %d; %s", status, d.Stdout())
	}
	d.AwaitLog("waiting for NATS")

	must(t, nats.Restart())
	d.AwaitLog("connected to NATS")
	d.AwaitMetric("offpath_nats_connected", "1")
	equal(t, "how often it says what it waits for", strings.Count(d.Stderr(), "waiting for NATS"), 1)
	must(t, nats.Stop())
	d.Await("it says that NATS has gone", func() bool { return strings.Count(d.Stderr(), "waiting for NATS") == 2 })
	asks(t, d, kristie, 200)
	// Two hits will never be delivered: a stop says so.
	if status := d.Stop(); status != 1 || !strings.Contains(d.Stderr(), "2 hits left unreported") {
		t.Errorf("status %d; stderr:\n%s", status, d.Stderr())
	}
}

// TestDemo: there is a console, which sees the checker, its rules and who is denied; and nothing is
// left behind.
func TestDemo(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	d := startDemo(t)
	loads(d, 1)
	if found, _ := filepath.Glob(filepath.Join(temp, "offpath-embedded-*")); len(found) != 1 {
		t.Errorf("JetStream's files are in %q", found)
	}
	equal(t, "the console", d.Find(`console +(http://[^/ ]+/)`), d.Admin()+"/")
	asks(t, d, kristie, 200)
	asks(t, d, `{"attributes":{"user":"kristie"},"cost":16}`, 429) // its limit is 15 per second
	d.Await("the console shows it", func() bool {
		_, view := d.Get("/api/view")
		_, denied, _ := strings.Cut(view, `"denied":[`)
		return strings.Contains(view, `"heard":{"checkers":1,"silent":0,"aggregators":1,`) &&
			strings.Contains(view, `"rule":"per-user","allowed":1,`) && strings.Contains(denied, `"key":"kristie"`) &&
			strings.Contains(view, `"revision":1,`)
	})
	if status, page := d.Get("/"); status != 200 || !strings.Contains(page, "<title>offpath</title>") {
		t.Errorf("%d %s", status, page)
	}
	d.MustStop()
	if len(complaints(d.Stderr())) > 0 {
		t.Errorf("stderr:\n%s", d.Stderr())
	}
	if left, _ := os.ReadDir(temp); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
