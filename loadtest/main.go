// Command loadtest shows what offpath's trade costs: it puts load on a fleet, live or simulated, holds
// every decision against an exact limiter that sees every hit in order, and reports both errors, the
// latency of decisions and the cost of counting.
//
// Without arguments it runs a steady load on a fleet within this process, and writes a page with
// charts. "loadtest help" lists the subcommands.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/internal/version"
)

func main() {
	redis.SetLogger(silence{})
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // so that a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

// command is a subcommand.
type command struct {
	name, arguments, summary string
	run                      func(ctx context.Context, c call) error
}

// call is one call of a command.
type call struct {
	args           []string
	getenv         func(string) string
	stdout, stderr io.Writer
}

func commands() []command {
	return []command{
		{"run", "[SCENARIO…]", "put load on a live fleet (what is done without a subcommand)", runLive},
		{"sim", "[SCENARIO…|replay FILE]", "the same in virtual time: large fleets, bad networks, wrong clocks", runSimulated},
		{"replay", "FILE", "replay an access log, each client's address a key", replayLive},
		{"http", "", "put load on a running checker over HTTP, at a fixed rate", runHTTP},
		{"peers", "", "benchmark one decision beside other limiters'", runPeers},
		{"shapes", "[FILE]", "draw what each algorithm lets through, as SVG", drawShapes},
		{"scenarios", "", "list the scenarios that are built in", listScenarios},
	}
}

var (
	// errConserved says that hits were lost or counted twice: the one thing that must not be.
	errConserved = errors.New("charged ≠ counted + late + refused + overflow + lost: see conservation above")
	// errInterrupted says that what was printed is not all that was asked for.
	errInterrupted = errors.New("interrupted: the figures are of what had been measured")
)

// run is the command. It returns its exit status: 0 when all was measured and every hit accounted
// for, 2 when the arguments make no sense, 130 when it was interrupted, 1 when anything else went wrong.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	name, rest := "run", args
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		name, rest = args[0], args[1:]
	}
	if name == "help" || len(args) > 0 && (args[0] == "--help" || args[0] == "-h") {
		printHelp(stdout)
		return 0
	}
	for _, c := range commands() {
		if c.name == name {
			return status(c.run(ctx, call{rest, getenv, stdout, stderr}), name, stderr)
		}
	}
	return status(flags.Usagef("%q: no such subcommand", name), "", stderr)
}

func status(err error, name string, stderr io.Writer) int {
	if err == nil {
		return 0
	}
	fmt.Fprintf(stderr, "loadtest: %v\n", err)
	switch _, isUsage := errors.AsType[*flags.UsageError](err); {
	case isUsage && name == "":
		fmt.Fprintln(stderr, "loadtest help lists the subcommands.")
		return 2
	case isUsage:
		fmt.Fprintf(stderr, "loadtest %s --help lists the flags.\n", name)
		return 2
	case errors.Is(err, errInterrupted):
		return 130
	}
	return 1
}

func printHelp(w io.Writer) {
	fmt.Fprint(w, "Usage: loadtest [SUBCOMMAND] [flags]\n\nMeasures what offpath lets through, denies, and costs.\n\n")
	for _, c := range commands() {
		fmt.Fprintf(w, "  %-32s %s\n", strings.TrimSpace(c.name+" "+c.arguments), c.summary)
	}
	fmt.Fprint(w, "\nEach has --help. Without a subcommand: run steady.\n")
}

// newFlags returns the flags of a subcommand.
func newFlags(name, summary string) *flags.Set {
	s := flags.New("loadtest "+name, summary, version.Get().Line("loadtest"))
	s.Prefix("OFFPATH_LOADTEST_") // not those of the daemons: their NATS may be in production
	return s
}

// silence takes what go-redis would log for each attempt to connect; the errors come back anyway.
type silence struct{}

// Printf does nothing.
func (silence) Printf(context.Context, string, ...any) {}
