package cmd_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
)

// TestSecondSignalEndsAStop: a checker that takes its time to stop ends at once when it is
// interrupted again. Without that it would take a minute, and end with status 1 since it cannot
// deliver its hit.
func TestSecondSignalEndsAStop(t *testing.T) {
	nats := serverstest.NATS(t)
	must(t, nats.Stop())
	pid, path := make(chan int, 1), binary(t, "checker")
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
	}, "--stop-delay", "1m", "--nats", nats.URL(), "--rules", "../deploy/rules.yaml",
		"--listen", anyPort, "--grpc", anyPort, "--admin", anyPort)
	if !ask(t, d, asUser("kristie")) {
		t.Fatal("denied")
	}
	running, err := os.FindProcess(<-pid)
	must(t, err)
	must(t, running.Signal(os.Interrupt))
	d.Await("it begins to stop", func() bool { return strings.Contains(d.Stderr(), "stopping") })
	// Again and again: it may log that it stops just before it lets go of the signals.
	for running.Signal(os.Interrupt) == nil {
		time.Sleep(20 * time.Millisecond)
	}
	if status := d.Wait(); status != -1 {
		t.Errorf("status %d, want to be ended by the signal; stderr:\n%s", status, d.Stderr())
	}
}
