package cmd_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
)

// TestRulesReachTheFleet has an operator change the rules of two running checkers with the command, from none to a first
// set, to a lower limit, to a higher one, to one that is refused, and back to an older revision.
func TestRulesReachTheFleet(t *testing.T) {
	nats, redis := serverstest.JetStream(t), serverstest.Redis(t)
	aggregator, checker := build(t, "aggregator"), build(t, "checker")
	daemontest.Start(t, process(aggregator, syscall.SIGTERM), "--nats", nats.URL(), "--redis", redis.URL(), "--admin", "127.0.0.1:0")
	var checkers []*daemontest.Daemon
	for range 2 {
		checkers = append(checkers, daemontest.Start(t, process(checker, os.Interrupt),
			"--nats", nats.URL(), "--rules", "nats", "--listen", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--admin", "127.0.0.1:0"))
	}
	command := func(args ...string) (status int, stdout, stderr string) {
		t.Helper()
		return daemontest.Run(t, process(aggregator, os.Kill), nil, append([]string{"rules"}, append(args, "--nats", nats.URL())...)...)
	}
	apply := func(text string) (status int, output string) {
		t.Helper()
		path := filepath.Join(t.TempDir(), "rules.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		status, stdout, stderr := command("apply", "-f", path)
		return status, stdout + stderr
	}
	everywhere := func(what, metric, value string, begin time.Time) {
		t.Helper()
		for _, d := range checkers {
			d.Await(what, func() bool { return d.Metric(metric) == value })
		}
		t.Logf("%s: %v after the command began", what, time.Since(begin).Round(time.Millisecond))
	}
	limit := func(n int) string {
		return fmt.Sprintf("rules:\n  - name: per-user\n    key: [user]\n    limit: %d/day\n", n)
	}
	inForce := func(n, revision int, output string, status int, begin time.Time) {
		t.Helper()
		if status != 0 || !strings.HasPrefix(output, fmt.Sprintf("revision %d: 1 rule;", revision)) {
			t.Fatalf("apply: %d %s", status, output)
		}
		everywhere(fmt.Sprintf("limit %d is in force", n), "offpath_rules_revision", fmt.Sprint(revision), begin)
	}

	for revision, n := range []int{1000, 10, 30} {
		begin := time.Now()
		status, output := apply(limit(n))
		inForce(n, revision+1, output, status, begin)
		for i, d := range checkers {
			_, answer := daemontest.Do(t, "POST", doorOf(d), `{"attributes":{"user":"kristie"},"cost":12}`)
			// The second checker may or may not have heard of the first one's hits yet; the limit it knows.
			if !strings.Contains(answer, fmt.Sprintf(`"limit":%d,`, n)) {
				t.Errorf("checker %d goes by another limit than %d: %s", i, n, answer)
			}
			if n == 10 && !strings.Contains(answer, `"allowed":false`) {
				t.Errorf("checker %d lets 12 hits pass by a limit of 10: %s", i, answer)
			}
		}
	}

	// A bad set does not come into the bucket.
	if status, output := apply(strings.Replace(limit(5), "key", "keys", 1)); status != 1 || !strings.Contains(output, "rules.yaml:3:5: unknown field") {
		t.Errorf("a bad set: %d %s", status, output)
	}
	for _, d := range checkers {
		if got := d.Metric("offpath_rules_revision"); got != "3" {
			t.Errorf("after a bad set, revision %s is in force", got)
		}
	}

	_, old, _ := command("get", "--revision", "2")
	begin := time.Now()
	status, output := apply(old)
	inForce(10, 4, output, status, begin)
	for _, d := range checkers {
		if ask(t, d, "kristie") {
			t.Error("an older, lower limit is back, and yet he passes")
		}
	}
	if status, stdout, _ := command("history"); status != 0 || strings.Count(stdout, "\n") != 5 {
		t.Errorf("history: %d\n%s", status, stdout)
	}
}
