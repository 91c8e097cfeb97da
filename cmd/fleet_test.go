// Package cmd_test runs the commands as an operator does: built, as processes, stopped by signals.
package cmd_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
)

// build compiles a command of this module.
func build(t *testing.T, command string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), command)
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", path, "./"+command).CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", command, err, out)
	}
	return path
}

// process runs a program, and stops it by the signal. The status is -1 if a signal has ended it.
func process(path string, signal os.Signal) daemontest.Command {
	return func(ctx context.Context, args []string, _ func(string) string, stdout, stderr io.Writer) int {
		command := exec.CommandContext(ctx, path, args...)
		command.Stdout, command.Stderr = stdout, stderr
		command.Cancel = func() error { return command.Process.Signal(signal) }
		command.WaitDelay = daemontest.Patience / 2
		var exit *exec.ExitError
		if err := command.Run(); err != nil && ctx.Err() == nil && !errors.As(err, &exit) {
			fmt.Fprintln(stderr, err)
			return -2
		}
		return command.ProcessState.ExitCode()
	}
}

func doorOf(d *daemontest.Daemon) string { return d.Find(`HTTP door +(http://\S+)`) }

// TestFleet has three checkers and two aggregators, on a NATS and a Redis, enforce one limit; nothing
// that was admitted is missing from the ledger, or there twice.
func TestFleet(t *testing.T) {
	const limit = 50
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	text := fmt.Sprintf("rules:\n  - name: per-user\n    key: [user]\n    limit: %d/day\n", limit)
	if err := os.WriteFile(rules, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	nats, redis := serverstest.NATS(t), serverstest.Redis(t)
	aggregator, checker := build(t, "aggregator"), build(t, "checker")
	var aggregators, checkers []*daemontest.Daemon
	for range 2 {
		aggregators = append(aggregators, daemontest.Start(t, process(aggregator, syscall.SIGTERM),
			"--nats", nats.URL(), "--redis", redis.URL(), "--admin", "127.0.0.1:0"))
	}
	for range 3 {
		checkers = append(checkers, daemontest.Start(t, process(checker, os.Interrupt),
			"--nats", nats.URL(), "--rules", rules, "--listen", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--admin", "127.0.0.1:0"))
	}
	for _, d := range checkers {
		d.Await("it knows of the fleet", func() bool { return d.Metric("offpath_fleet_checkers") == "3" })
	}

	admitted := 0
	for i := range limit {
		if ask(t, checkers[i%3], "kristie") {
			admitted++
		}
	}
	for _, d := range checkers {
		d.Await("it denies", func() bool {
			if ask(t, d, "kristie") {
				admitted++
				return false
			}
			return true
		})
		if !ask(t, d, "someone else of "+doorOf(d)) {
			t.Error("another user is denied")
		}
		admitted++
	}
	// A flush of 50 ms lets a few more through. Without a word from each other it would be three times
	// the limit.
	if over := admitted - 3 - limit; over < 0 || over > limit {
		t.Errorf("%d requests admitted, limit %d", admitted-3, limit)
	}

	for _, d := range append(checkers, aggregators...) {
		if status := d.Stop(); status != 0 {
			t.Errorf("status %d; stderr:\n%s", status, d.Stderr())
		}
	}
	status, ledger, stderr := daemontest.Run(t, process(aggregator, os.Kill), nil, "ledger", "--redis", redis.URL(), "--json")
	want := fmt.Sprintf(`{"rules":{"per-user":{"counted":%d,"late":0,"refused":0,"refunded":0,"settled":0}}}`, admitted)
	if status != 0 || strings.TrimSpace(ledger) != want {
		t.Errorf("status %d, stderr %q\ngot  %s\nwant %s", status, stderr, ledger, want)
	}
}

func ask(t *testing.T, d *daemontest.Daemon, user string) (allowed bool) {
	t.Helper()
	status, answer := daemontest.Do(t, "POST", doorOf(d), fmt.Sprintf(`{"attributes":{"user":%q}}`, user))
	if status != 200 && status != 429 {
		t.Fatalf("%d %s", status, answer)
	}
	return status == 200
}

// TestSecondSignal stops a checker that has hits which it cannot deliver, and loses patience.
func TestSecondSignal(t *testing.T) {
	rules := filepath.Join("..", "deploy", "rules.yaml")
	nats := serverstest.NATS(t)
	if err := nats.Stop(); err != nil {
		t.Fatal(err)
	}
	pid := make(chan int, 1)
	path := build(t, "checker")
	d := daemontest.Start(t, func(ctx context.Context, args []string, _ func(string) string, stdout, stderr io.Writer) int {
		command := exec.Command(path, args...)
		command.Stdout, command.Stderr = stdout, stderr
		if err := command.Start(); err != nil {
			fmt.Fprintln(stderr, err)
			return -2
		}
		pid <- command.Process.Pid
		stop := context.AfterFunc(ctx, func() { _ = command.Process.Kill() })
		defer stop()
		_ = command.Wait() // the state says it
		return command.ProcessState.ExitCode()
	}, "--nats", nats.URL(), "--rules", rules, "--listen", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--admin", "127.0.0.1:0")
	if !ask(t, d, "kristie") {
		t.Fatal("denied")
	}
	running, err := os.FindProcess(<-pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := running.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	d.Await("it begins to stop", func() bool { return strings.Contains(d.Stderr(), "stopping") })
	// Again and again: it may log that it stops just before it lets go of the signals.
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for running.Signal(os.Interrupt) == nil {
		<-again.C
	}
	// Without the second one it would say after 5 s how many hits it has lost, and end with status 1.
	if status := d.Wait(); status != -1 {
		t.Errorf("status %d, want to be ended by the signal; stderr:\n%s", status, d.Stderr())
	}
}
