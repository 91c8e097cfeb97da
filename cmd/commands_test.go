// Package cmd_test runs the commands as an operator does: built, as processes, stopped by signals.
// All of its tests are long.
package cmd_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"testing"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
)

// anyPort has the system choose a port.
const anyPort = "127.0.0.1:0"

// builtIn is where built has put the commands.
var builtIn string

// built compiles the commands of this module, once for all tests.
var built = sync.OnceValue(func() error {
	dir, err := os.MkdirTemp("", "offpath-cmd-")
	if err != nil {
		return err
	}
	builtIn = dir
	if out, err := exec.Command("go", "build", "-o", dir, "./aggregator", "./checker", "./offpath").CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
})

func TestMain(m *testing.M) {
	status := m.Run()
	_ = os.RemoveAll(builtIn)
	os.Exit(status)
}

// binary returns the path of a built command.
func binary(t *testing.T, command string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("long: runs in make test-all")
	}
	must(t, built())
	return filepath.Join(builtIn, command)
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

// fleet is aggregators and checkers as processes. Its URLs are the defaults of what it starts;
// later flags win.
type fleet struct {
	*testing.T
	nats, redis           string // URLs; nats may be that of the operator
	version               string // the directory of the commands; "" is where built has put them
	aggregators, checkers []*daemontest.Daemon
}

// path is that of a command of the fleet's version.
func (f *fleet) path(command string) string {
	f.Helper()
	if f.version != "" {
		return filepath.Join(f.version, command)
	}
	return binary(f.T, command)
}

func (f *fleet) startAggregator(flags ...string) *daemontest.Daemon {
	f.Helper()
	d := daemontest.Start(f.T, process(f.path("aggregator"), syscall.SIGTERM),
		append([]string{"--nats", f.nats, "--redis", f.redis, "--admin", anyPort}, flags...)...)
	f.aggregators = append(f.aggregators, d)
	return d
}

func (f *fleet) startChecker(flags ...string) *daemontest.Daemon {
	f.Helper()
	d := daemontest.Start(f.T, process(f.path("checker"), os.Interrupt),
		append([]string{"--nats", f.nats, "--listen", anyPort, "--grpc", anyPort, "--admin", anyPort}, flags...)...)
	f.checkers = append(f.checkers, d)
	return d
}

// run runs one of offpath's commands, of this version, which has to succeed.
func (f *fleet) run(args ...string) (stdout string) {
	f.Helper()
	status, stdout, stderr := daemontest.Run(f.T, process(binary(f.T, "offpath"), os.Kill), nil, args...)
	if status != 0 {
		f.Fatalf("%q: status %d\n%s%s", args, status, stdout, stderr)
	}
	return stdout
}

// do is run for a command that talks to NATS.
func (f *fleet) do(args ...string) (stdout string) {
	f.Helper()
	return f.run(append(args, "--nats", f.nats)...)
}

// undelivered matches hits that a checker has to deliver.
var undelivered = regexp.MustCompile(`(?m)^offpath_hits_(pending|in_flight)\{.*\} [^0].*$`)

// stop stops everything, checkers first, once they have delivered what they hold: a stop waits 5 s
// for that, and a machine may stand still for as long.
func (f *fleet) stop() {
	f.Helper()
	for _, d := range f.checkers {
		d.Await("all hits are delivered", func() bool {
			status, page := d.Get("/metrics")
			return status == 200 && !undelivered.MatchString(page)
		})
	}
	for _, d := range append(f.checkers, f.aggregators...) {
		d.MustStop()
	}
}

// ledger is what the store has counted, as JSON.
func (f *fleet) ledger() string {
	f.Helper()
	return f.run("ledger", "--redis", f.redis, "--json")
}

func doorOf(d *daemontest.Daemon) string { return d.Find(`HTTP API +(http://\S+)`) }

// ask asks a checker about a request with these attributes, in JSON.
func ask(t *testing.T, d *daemontest.Daemon, attributes string) (allowed bool) {
	t.Helper()
	status, answer := daemontest.Do(t, "POST", doorOf(d), `{"attributes":`+attributes+`}`)
	if status != 200 && status != 429 {
		t.Fatalf("%d %s", status, answer)
	}
	return status == 200
}

// asUser are the attributes of a user.
func asUser(name string) string { return fmt.Sprintf(`{"user":%q}`, name) }

var (
	writeFile = daemontest.File
	must      = daemontest.Must
)
