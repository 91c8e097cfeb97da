// Command checker decides for programs that ask it over HTTP. Without flags it runs everything that
// offpath consists of in this one process, to try; with --nats it joins a fleet.
package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/offpath-io/offpath/internal/flags"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // so that a second signal ends the process at once
	os.Exit(options{}.run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

// options are settings without a flag.
type options struct {
	// clientTime is how long servers wait for a client that is slow with its handshake, its request
	// or reading the answer. 0 means the time-outs of package daemon and of the proxy. Tests wait
	// longer: on a machine that stands still for seconds no client of theirs may be cut off.
	clientTime time.Duration
	// drainTime is how long hits may take to be delivered at a stop, and denials to be written down.
	// 0 means the defaults of packages check and decisionlog. Tests wait longer here, too.
	drainTime time.Duration
	// stdin is the input of "explain"; nil for the process' own.
	stdin io.Reader
}

// run runs the command and returns its exit status, as [flags.Environment.Run] does.
func (o options) run(
	ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer,
) int {
	cmd := newCommand(getenv, func(cmd *cobra.Command, c config) error {
		c.options = o
		log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: c.logLevel}))
		return serve(cmd.Context(), c, stdout, stderr, log)
	})
	cmd.SetIn(o.stdin)
	e := flags.Environment{Prefix: "OFFPATH_", Getenv: getenv, Stdout: stdout, Stderr: stderr}
	return e.Run(ctx, cmd, args)
}
