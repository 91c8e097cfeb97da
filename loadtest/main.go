// Command loadtest shows what offpath's trade costs: it puts load on a fleet, live or simulated,
// holds every decision against an exact limiter that sees every hit in order, and reports both
// errors, the latency of decisions and the cost of counting.
//
// Without arguments it runs a steady load on a fleet within this process, and writes a page with
// charts. "loadtest --help" lists the commands.
package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/internal/redisconn"
	"github.com/offpath-io/offpath/internal/version"
)

func main() {
	redis.SetLogger(redisconn.Silence{})
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // so that a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

// run runs the command and returns its exit status: 0 when all was measured and every hit accounted
// for, 2 when the arguments make no sense, 130 when it was interrupted, 1 when anything else went
// wrong.
func run(
	ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer,
) int {
	// Not the daemons' variables: their NATS may be in production.
	e := flags.Environment{
		Prefix: "OFFPATH_LOADTEST_", Getenv: getenv, Stdout: stdout, Stderr: stderr,
	}
	return e.Run(ctx, newCommand(), args)
}

const summary = `
Measures what offpath lets through, denies, and costs. Without a command it does "run steady".`

// newCommand returns the command, which is "run" unless a command is named.
func newCommand() *cobra.Command {
	cmd := newRun()
	cmd.Use, cmd.Long, cmd.Args = "loadtest", summary, flags.NoArguments
	cmd.Version = version.Get().Line("loadtest")
	cmd.AddCommand(newRun(), newSim(), newReplayLive(), newHTTP(), newPeers(), newTorture(),
		newShapes(), newScenarios())
	return cmd
}

var (
	// errConserved says that hits were lost or counted twice: the one thing that must not be.
	errConserved = errors.New("charged ≠ counted + late + refused + overflow + lost: see conservation above")
	// errInterrupted says that what was printed is not all that was asked for.
	errInterrupted = &flags.ExitError{
		Status: 130, Err: errors.New("interrupted: the figures are of what had been measured"),
	}
)
