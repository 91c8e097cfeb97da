package cmd_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/deploytest"
)

// TestDeployedOperator: under the accounts of deploy/nats.conf the operator's user may do all that the commands do, also while there is no
// aggregator; and the decision log works without any preparation: an aggregator makes the stream, since a checker may not.
func TestDeployedOperator(t *testing.T) {
	nats := deploytest.NATS(t)
	redis, _ := deploytest.Redis(t)
	aggregator, checker := build(t, "aggregator"), build(t, "checker")
	command := func(arguments ...string) string {
		t.Helper()
		status, stdout, stderr := daemontest.Run(t, process(aggregator, os.Kill), nil, append(arguments, "--nats", nats.URL(t, "operator"))...)
		if status != 0 {
			t.Errorf("%s: %d\n%s%s", arguments, status, stdout, stderr)
		}
		return stdout
	}
	path := filepath.Join(t.TempDir(), "rules.yaml")
	write := func(limit int) {
		t.Helper()
		if err := os.WriteFile(path, fmt.Appendf(nil, "rules: [{name: per-user, key: [user], limit: %d/day}]\n", limit), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(2)
	command("rules", "apply", "-f", path, "--dry-run")
	command("rules", "apply", "-f", path)
	write(3)
	command("rules", "diff", "-f", path)
	command("rules", "apply", "-f", path, "--revision", "1")
	for _, arguments := range [][]string{{"rules", "get"}, {"rules", "get", "--revision", "1"}, {"rules", "list"}, {"rules", "history"}} {
		command(arguments...)
	}

	a := daemontest.Start(t, process(aggregator, syscall.SIGTERM), "--nats", nats.URL(t, "aggregator"), "--redis", redis, "--admin", "127.0.0.1:0")
	c := daemontest.Start(t, process(checker, syscall.SIGTERM), "--name", "checker-1", "--nats", nats.URL(t, "checker-1"), "--rules", "nats",
		"--listen", "127.0.0.1:0", "--grpc", "none", "--admin", "127.0.0.1:0", "--decision-log", "nats")
	c.Await("it knows of the fleet", func() bool { return c.Metric("offpath_fleet_checkers") == "1" })
	const asked = 10
	for range asked {
		if status, answer := daemontest.Do(t, "POST", doorOf(c), `{"attributes":{"user":"kristie"}}`); status != 200 && status != 429 {
			t.Fatalf("%d %s", status, answer)
		}
	}
	written := `offpath_decision_log_denials_total{outcome="written",to="nats"}`
	c.Await("its denials are written", func() bool { return c.Metric(written) == strconv.Itoa(asked-3) })
	if got := deniedIn(t, nats.URL(t, "operator")); got != asked-3 {
		t.Errorf("the operator reads of %d denials, want %d", got, asked-3)
	}
	a.Await("it has what was counted", func() bool { return strings.Contains(command("get", "kristie"), "kristie") })
	command("top")
	command("fleet")
	command("reset", "kristie", "--rule", "per-user")
	command("block", "mallory", "--rule", "per-user", "--for", "1h")
	command("unblock", "mallory", "--rule", "per-user")

	if status := a.Stop(); status != 0 {
		t.Errorf("status %d\n%s", status, a.Stderr())
	}
	blocked := func() string { return c.Metric("offpath_blocked_keys") }
	c.Await("nothing is blocked", func() bool { return blocked() == "0" })
	command("block", "mallory", "--rule", "per-user", "--for", "1h")
	c.Await("it blocks without an aggregator", func() bool { return blocked() == "1" })
	command("unblock", "mallory", "--rule", "per-user")
	c.Await("it blocks no more", func() bool { return blocked() == "0" })
	if got := messagesIn(t, nats.URL(t, "operator"), "offpath-audit"); len(got) != 5 {
		t.Errorf("the log of changes has %d records, want 5: %s", len(got), got)
	}
	for _, d := range []*daemontest.Daemon{a, c} {
		if log := d.Stderr(); strings.Contains(strings.ToLower(log), "permission") {
			t.Errorf("it complains:\n%s", log)
		}
	}
}

// deniedIn adds up the decision log.
func deniedIn(t *testing.T, url string) (count int64) {
	t.Helper()
	for _, m := range messagesIn(t, url, "offpath-denied") {
		for line := range strings.Lines(m) {
			var entry struct{ Count int64 }
			if err := json.Unmarshal([]byte(line), &entry); err != nil {
				t.Fatal(err)
			}
			count += entry.Count
		}
	}
	return count
}

// messagesIn reads a stream, as "nats stream view" does.
func messagesIn(t *testing.T, url, name string) (all []string) {
	t.Helper()
	conn, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	consumer, err := stream.OrderedConsumer(t.Context(), jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for n := stream.CachedInfo().State.Msgs; n > 0; n-- {
		m, err := consumer.Next(jetstream.FetchMaxWait(20 * time.Second))
		if err = errors.Join(err, conn.LastError()); err != nil {
			t.Fatal(err)
		}
		all = append(all, string(m.Data()))
	}
	return all
}
