// Command aggregator adds what the checkers of a fleet report to Redis, each report once, and tells
// them the totals. Any number of them share the work. "aggregator ledger" prints what became of
// every hit, "aggregator rules" reads and writes the rules in the fleet's bucket, "aggregator
// keygen" makes the keys that sign them. The others do what its console does: top, get, block,
// unblock, reset and fleet.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/offpath-io/offpath/internal/flags"
)

func main() {
	redis.SetLogger(silence{})
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // so that a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

// run is the command. It returns its exit status: 0 when it has done what was asked, 2 when the
// arguments or the environment make no sense, 1 when anything else went wrong.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	command, name, args := find(args)
	err := command(ctx, args, getenv, stdout, stderr)
	if err == nil {
		return 0
	}
	fmt.Fprintf(stderr, "aggregator: %v\n", err)
	if _, isUsage := errors.AsType[*flags.UsageError](err); isUsage {
		fmt.Fprintf(stderr, "%s --help lists the flags.\n", name)
		return 2
	}
	return 1
}

// find returns the command that the arguments name, and the arguments after its name.
func find(args []string) (run command, name string, rest []string) {
	if len(args) > 0 {
		switch args[0] {
		case "ledger":
			return printLedger, "aggregator ledger", args[1:]
		case "keygen":
			return generateKey, "aggregator keygen", args[1:]
		case "rules":
			return findRulesCommand(args[1:])
		}
		if run, ok := operateCommands[args[0]]; ok {
			return run, "aggregator " + args[0], args[1:]
		}
		if isName.MatchString(args[0]) {
			return noCommand(args[0]), "aggregator", args[1:]
		}
	}
	return start, "aggregator", args
}

// operateCommands do what the console does.
var operateCommands = map[string]command{
	"top": printTop, "get": getKey, "block": blockKey, "unblock": unblockKey, "reset": resetKey, "fleet": printFleet,
}

// isName says what may be meant for a command's name: neither a flag, nor a URL, which may hold a password.
var isName = regexp.MustCompile(`^[a-z]+$`)

// noCommand is what a mistyped one comes to.
func noCommand(name string) command {
	return func(context.Context, []string, func(string) string, io.Writer, io.Writer) error {
		names := slices.Sorted(maps.Keys(operateCommands))
		return flags.Usagef("argument %q: there is no such command; want rules, ledger, keygen, %s, or flags only",
			name, strings.Join(names, ", "))
	}
}

func start(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) error {
	c, done, err := readConfig(args, getenv, stdout)
	if err != nil || done {
		return err
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: c.logLevel}))
	return serve(ctx, c, stdout, log)
}

// silence takes what go-redis would log for each attempt to connect. The same errors come back from
// its calls, and the worker logs them once.
type silence struct{}

// Printf does nothing.
func (silence) Printf(context.Context, string, ...any) {}
