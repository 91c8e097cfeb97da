package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/offpath-io/offpath/cmd/internal/console"
	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/internal/natsconn"
	"github.com/offpath-io/offpath/internal/redact"
)

// fleetFlags are those of the commands that ask a fleet over NATS.
type fleetFlags struct {
	nats, namespace string
	access          natsconn.Access
	as              string // in the audit log; "" for the account
	output
}

func (f *fleetFlags) addFlags(cmd *cobra.Command) {
	f.namespace = natsconn.DefaultNamespace
	flags.Topic(cmd, "Fleet", func(s *pflag.FlagSet) {
		natsconn.AddFleetFlags(s, &f.nats, &f.namespace)
		addContext(s)
	})
	flags.Topic(cmd, "Output", f.output.addFlags)
	flags.Topic(cmd, "Access to NATS", f.access.AddFlags)
}

func (f *fleetFlags) check() error {
	if f.nats == "" {
		return flags.Usagef("--nats URL is needed, or a context that has it (offpath context --help)")
	}
	return f.access.Check(f.nats)
}

// connectTimeout is how long each server of NATS may take to accept a connection.
const connectTimeout = 5 * time.Second

// withConn connects, calls do, and disconnects. Both have the time-out together.
func (f *fleetFlags) withConn(
	ctx context.Context, timeout time.Duration,
	do func(ctx context.Context, conn *nats.Conn) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	ctx, forbid := context.WithCancelCause(ctx)
	defer forbid(nil)
	options, err := f.access.Options(nil)
	if err != nil {
		return err
	}
	conn, err := nats.Connect(f.nats, append(options, nats.Name("offpath-command"),
		nats.Timeout(connectTimeout),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			// Nothing is going to be answered. An older bucket need not be upgraded, though.
			upgrade := strings.Contains(fmt.Sprint(err), "$JS.API.STREAM.UPDATE.")
			if errors.Is(err, nats.ErrPermissionViolation) && !upgrade {
				forbid(fmt.Errorf("%w: %w", errForbidden, err))
			}
		}))...)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", redact.URLs(f.nats), err)
	}
	defer conn.Close()
	err = do(ctx, conn)
	if cause := context.Cause(ctx); errors.Is(err, context.Canceled) && errors.Is(cause, errForbidden) {
		return cause
	}
	return err
}

// errForbidden says that the account that a command has is not for what it asks.
var errForbidden = errors.New("NATS does not let this user do that")

// addAs adds the flag of commands that change something.
func (f *fleetFlags) addAs(s *pflag.FlagSet) {
	flags.Add(s, &f.as, "as", "your `NAME` in the audit log, in place of that of your account",
		func(name string) (string, error) {
			if len(name) > maxName || printable(name) != name {
				return "", fmt.Errorf("want up to %d bytes of printable text", maxName)
			}
			return name, nil
		})
}

// maxName is the most bytes of a name in the audit log.
const maxName = 64

// who is the caller, for the audit log.
func (f *fleetFlags) who() console.Who {
	who := console.Who{Name: f.as, From: "unknown"}
	if account, err := user.Current(); who.Name == "" && err == nil {
		who.Name = account.Username
	}
	if host, err := os.Hostname(); err == nil {
		who.From = host
	}
	who.Name = cmp.Or(who.Name, fmt.Sprintf("uid %d", os.Getuid())) // a container knows no names
	return who
}

// completeTimeout is how long completing a rule's name may take.
const completeTimeout = 2 * time.Second

// completeRules suggests names of the fleet's rules, as the console shows them.
func (f *fleetFlags) completeRules(e flags.Environment) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		var v console.View
		err := e.Read(cmd)
		if err = cmp.Or(err, f.check()); err == nil {
			err = f.withConn(cmd.Context(), completeTimeout, func(ctx context.Context, conn *nats.Conn) error {
				return console.Ask(ctx, conn, f.namespace, "view", console.Question{}, &v)
			})
		}
		if err != nil {
			return nil, cobra.ShellCompDirectiveError | cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for _, r := range v.Rules {
			if strings.HasPrefix(r.Rule, begun) {
				names = append(names, r.Rule)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// output says how a command prints its result.
type output struct{ json bool }

func (o *output) addFlags(s *pflag.FlagSet) { s.BoolVar(&o.json, "json", false, "print JSON") }

// print prints the value as JSON, or the text.
func (o *output) print(w io.Writer, value any, text string) error {
	if o.json {
		body, err := json.Marshal(value)
		if err != nil {
			return fmt.Errorf("encode the answer: %w", err)
		}
		text = string(body) + "\n"
	}
	_, err := io.WriteString(w, text)
	return err
}
