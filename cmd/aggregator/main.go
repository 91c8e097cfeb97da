// Command aggregator adds what the checkers of a fleet report to Redis, each report once, and sends
// them the totals. Any number of them share the work. "aggregator ledger" prints what became of
// every hit, "aggregator rules" reads and writes the rules in the fleet's bucket, "aggregator
// keygen" makes the keys that sign them. The others do what its console does: top, get, block,
// unblock, reset and fleet.
package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/offpath-io/offpath/internal/flags"
)

func main() {
	redis.SetLogger(silence{})
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // so that a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

// run runs the command and returns its exit status, as [flags.Environment.Run] does.
func run(
	ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer,
) int {
	cmd := newCommand(getenv, func(cmd *cobra.Command, c config) error {
		log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: c.logLevel}))
		return serve(cmd.Context(), c, stdout, log)
	})
	e := flags.Environment{Prefix: "OFFPATH_", Getenv: getenv, Stdout: stdout, Stderr: stderr}
	return e.Run(ctx, cmd, args)
}

// silence takes what go-redis would log for each attempt to connect. The same errors come back from
// its calls, and the worker logs them once.
type silence struct{}

// Printf does nothing.
func (silence) Printf(context.Context, string, ...any) {}
