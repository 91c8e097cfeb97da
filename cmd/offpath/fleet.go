package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/internal/natsconn"
	"github.com/offpath-io/offpath/internal/redact"
)

// fleetFlags are those of the commands that ask a fleet over NATS.
type fleetFlags struct {
	nats, namespace string
	access          natsconn.Access
	output
}

func (f *fleetFlags) addFlags(cmd *cobra.Command) {
	f.namespace = natsconn.DefaultNamespace
	flags.Topic(cmd, "Fleet", func(s *pflag.FlagSet) {
		natsconn.AddFleetFlags(s, &f.nats, &f.namespace)
	})
	flags.Topic(cmd, "Output", f.output.addFlags)
	flags.Topic(cmd, "Access to NATS", f.access.AddFlags)
}

func (f *fleetFlags) check() error {
	return cmp.Or(flags.Required("nats", f.nats), f.access.Check(f.nats))
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
