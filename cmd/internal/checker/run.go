// Package checker is the daemon that decides for programs that ask it over HTTP and gRPC: what
// cmd/checker starts to join a fleet, and "offpath demo" together with a fleet in the same process.
package checker

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/offpath-io/offpath/internal/flags"
)

// Run runs the command "checker" and returns its exit status, as [flags.Environment.Run] does.
func Run(
	ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer,
) int {
	return options{}.run(ctx, args, getenv, stdout, stderr)
}

// options are settings without a flag.
type options struct {
	// clientTime is how long servers wait for a client that is slow with its handshake, its request
	// or reading the answer. 0 means the time-outs of package daemon and of the proxy. Tests wait
	// longer: on a machine that stands still for seconds no client of theirs may be cut off.
	clientTime time.Duration
	// drainTime is how long hits may take to be delivered at a stop, and denials to be written
	// down. 0 means the defaults of packages check and decisionlog. Tests wait longer here, too.
	drainTime time.Duration
}

// run is Run with these settings.
func (o options) run(
	ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer,
) int {
	e := flags.Environment{Prefix: "OFFPATH_", Getenv: getenv, Stdout: stdout, Stderr: stderr}
	return e.Run(ctx, newCommand(getenv, o.serve), args)
}

// serve runs the daemon that c describes.
func (o options) serve(cmd *cobra.Command, c config) error {
	c.options = o
	stdout, stderr := cmd.OutOrStdout(), cmd.ErrOrStderr()
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: c.logLevel}))
	return serve(cmd.Context(), c, stdout, stderr, log)
}
