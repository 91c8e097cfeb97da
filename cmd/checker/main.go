// Command checker decides for programs that ask it over HTTP. Without flags it runs everything that
// offpath consists of in this one process, to try; with --nats it joins a fleet.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/offpath-io/offpath/internal/flags"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "explain" {
		os.Exit(explain(os.Args[2:], os.Getenv, os.Stdin, os.Stdout, os.Stderr))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // so that a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

// run is the command. It returns its exit status: 0 when it has done what was asked, 2 when the
// arguments or the environment make no sense, 1 when anything else went wrong.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	return options{}.run(ctx, args, getenv, stdout, stderr)
}

// options are what no flag sets.
type options struct {
	// clientTime is how long servers wait for a client that is slow with its handshake, its request
	// or reading the answer. 0 means the time-outs of package daemon and of the proxy. Tests wait
	// longer: on a machine that stands still for seconds no client of theirs may be cut off.
	clientTime time.Duration
}

func (o options) run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	err := o.start(ctx, args, getenv, stdout, stderr)
	if err == nil {
		return 0
	}
	fmt.Fprintf(stderr, "checker: %v\n", err)
	if _, isUsage := errors.AsType[*flags.UsageError](err); isUsage {
		fmt.Fprintln(stderr, "checker --help lists the flags.")
		return 2
	}
	return 1
}

func (o options) start(
	ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer,
) error {
	c, done, err := readConfig(args, getenv, stdout)
	if err != nil || done {
		return err
	}
	c.options = o
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: c.logLevel}))
	return serve(ctx, c, stdout, stderr, log)
}
