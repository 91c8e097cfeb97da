// Command offpath is for the people who run a fleet: it reads and writes rules, shows what is
// counted, blocks and resets keys, and starts a demo. The daemons are aggregator and checker.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/offpath-io/offpath/cmd/internal/checker"
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

const summary = `
Shows and changes what a fleet of offpath, a distributed rate limiter, does: its rules, its counts,
its blocks. "offpath demo" starts one to try.`

// run runs the command and returns its exit status, as [flags.Environment.Run] does.
func run(
	ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer,
) int {
	e := flags.Environment{Prefix: "OFFPATH_", Getenv: getenv, Stdout: stdout, Stderr: stderr}
	e.Saved = savedFlags
	return e.Run(ctx, newCommand(e), args)
}

func newCommand(e flags.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "offpath COMMAND", Long: summary,
		Version: strings.TrimPrefix(version.Get().Line("offpath"), "offpath "), // once is enough
		Args:    flags.NoArguments, RunE: flags.NeedsCommand,
	}
	cmd.AddCommand(newRules(e), newTop(), newFleet(), newGet(e), newExplain(), newBlock(e),
		newUnblock(e), newReset(e), newLedger(), newKeygen(), newContext(), checker.NewDemo())
	completeContextFlags(cmd)
	return cmd
}
