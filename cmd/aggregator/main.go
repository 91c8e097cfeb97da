// Command aggregator adds what the checkers of a fleet report to Redis, each report once, and sends
// them the totals. Any number of them share the work.
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
	"github.com/offpath-io/offpath/internal/redisconn"
)

func main() {
	redis.SetLogger(redisconn.Silence{})
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // so that a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

// run runs the command and returns its exit status, as [flags.Environment.Run] does.
func run(
	ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer,
) int {
	cmd := newCommand(func(cmd *cobra.Command, c config) error {
		log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: c.logLevel}))
		return serve(cmd.Context(), c, stdout, log)
	})
	e := flags.Environment{Prefix: "OFFPATH_", Getenv: getenv, Stdout: stdout, Stderr: stderr}
	return e.Run(ctx, cmd, args)
}
