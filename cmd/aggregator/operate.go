package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/offpath-io/offpath/cmd/internal/console"
	"github.com/offpath-io/offpath/cmd/internal/signing"
	"github.com/offpath-io/offpath/internal/blocks"
	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/internal/natsconn"
	"github.com/offpath-io/offpath/internal/redact"
	"github.com/offpath-io/offpath/internal/status"
	"github.com/offpath-io/offpath/internal/version"
)

// operateFlags are those of the commands that do what the console does.
type operateFlags struct {
	nats, namespace string
	access          natsconn.Access
	rule            string
	span            time.Duration
	json            bool
	arguments       []string
	keys            signing.Keys // of blocks
}

func newOperateFlags(name, summary string) (*operateFlags, *flags.Set) {
	f := &operateFlags{namespace: defaultNamespace, span: time.Hour}
	s := flags.New("aggregator "+name, summary, version.Get().Line("aggregator"))
	flags.Add(s, &f.nats, "nats", "URL", "NATS of the fleet; several servers of it with commas between", flags.NATS)
	f.access.AddFlags(s)
	addNamespace(s, &f.namespace)
	flags.Add(s, &f.json, "json", "", "print JSON", flags.Bool)
	return f, s
}

// addKey lets a command be about a key.
func (f *operateFlags) addKey(s *flags.Set, ruleUsage string) {
	s.Arguments(&f.arguments, "KEY")
	flags.Add(s, &f.rule, "rule", "NAME", ruleUsage, flags.Text)
}

// addKeys lets a command write blocks, which it does where no aggregator answers.
func (f *operateFlags) addKeys(s *flags.Set) {
	f.keys.AddPublic(s, signing.Entries)
	f.keys.AddSigning(s, signing.Entries)
}

// parse reads the flags, and sees that there is one key if there should be.
func (f *operateFlags) parse(s *flags.Set, args []string, getenv func(string) string, stdout io.Writer, keys int, ruleNeeded bool) (done bool, err error) {
	done, err = s.Parse(args, getenv, stdout)
	switch {
	case err != nil || done:
		return done, err
	case len(f.arguments) != keys:
		return false, flags.Usagef("want one KEY, and there are %d arguments (one that begins with - goes last, after --)", len(f.arguments))
	case ruleNeeded && f.rule == "":
		return false, flags.Usagef("--rule NAME is needed: the rule that the key is of")
	}
	return false, firstError(required("nats", f.nats), f.access.Check(f.nats))
}

// withConn connects, calls do, and disconnects.
func (f *operateFlags) withConn(ctx context.Context, do func(ctx context.Context, conn *nats.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, 2*console.AskTimeout) // to ask, and to do it oneself
	defer cancel()
	ctx, forbid := context.WithCancelCause(ctx)
	defer forbid(nil)
	options, err := f.access.Options(nil)
	if err != nil {
		return err
	}
	conn, err := nats.Connect(f.nats, append(options, nats.Name("offpath-command"), nats.Timeout(console.AskTimeout/2),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if errors.Is(err, nats.ErrPermissionViolation) { // nothing is going to be answered
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

// whoAsks is for the audit log.
func whoAsks(getenv func(string) string) console.Who {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	who := console.Who{Name: getenv("USER"), From: host}
	if who.Name == "" {
		who.Name = "unknown"
	}
	return who
}

const getKeySummary = `Prints what the fleet has counted of a key: how many hits are in the window, how many more fit, when there is room again, and whether
it is blocked. Hits that checkers have not reported yet, of the last moments, are not in it. A key is as its rule makes it of a request's
attributes, joined by |; where keys are hashed, it is the hash.`

// getKey is the command "aggregator get".
func getKey(ctx context.Context, args []string, getenv func(string) string, stdout, _ io.Writer) error {
	f, s := newOperateFlags("get", getKeySummary)
	f.addKey(s, "the rule to look under; without it, all that know the key")
	if done, err := f.parse(s, args, getenv, stdout, 1, false); err != nil || done {
		return err
	}
	return f.withConn(ctx, func(ctx context.Context, conn *nats.Conn) error {
		var found []console.KeyView
		q := console.Question{Rule: f.rule, Key: status.Text(f.arguments[0])}
		if err := console.Ask(ctx, conn, f.namespace, "get", q, &found); err != nil {
			return err
		}
		if f.json {
			return printJSON(stdout, found)
		}
		return printText(stdout, keysText(found))
	})
}

const resetSummary = `Gives back all hits of a key that the fleet has counted, as if they had never been: the ledger has them as refunded. Checkers that deny the
key hear of it at once. It is written to the audit log.`

// resetKey is the command "aggregator reset".
func resetKey(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) error {
	f, s := newOperateFlags("reset", resetSummary)
	f.addKey(s, "the rule that the key is of")
	if done, err := f.parse(s, args, getenv, stdout, 1, true); err != nil || done {
		return err
	}
	return f.withConn(ctx, func(ctx context.Context, conn *nats.Conn) error {
		var after console.KeyView
		err := console.Ask(ctx, conn, f.namespace, "reset", f.question(getenv), &after)
		if err = unwritten(err, stderr); err != nil {
			return err
		}
		if f.json {
			return printJSON(stdout, after)
		}
		return printText(stdout, "reset:\n"+keysText([]console.KeyView{after}))
	})
}

const blockSummary = `Keeps a key out at every checker, for a time, whatever its count is: from a moment from now on, and also at checkers that start meanwhile. It needs
JetStream, and works without an aggregator, too. It is written to the audit log.`

// blockKey is the command "aggregator block".
func blockKey(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) error {
	f, s := newOperateFlags("block", blockSummary)
	f.addKey(s, "the rule that the key is of")
	f.addKeys(s)
	flags.Add(s, &f.span, "for", "DURATION", "how long, such as 10m or 24h", flags.Duration(time.Second, blocks.MaxSpan))
	if done, err := f.parse(s, args, getenv, stdout, 1, true); err != nil || done {
		return err
	}
	return f.withConn(ctx, func(ctx context.Context, conn *nats.Conn) error {
		b := console.BlockView{Rule: f.rule, Key: status.Text(f.arguments[0]), Until: time.Now().Add(f.span)}
		q := f.question(getenv)
		q.Seconds = f.span.Seconds()
		err := console.Ask(ctx, conn, f.namespace, "block", q, &b)
		if errors.Is(err, console.ErrNobody) {
			var o *console.Operator
			if o, err = f.operator(conn); err == nil {
				b, err = o.Block(ctx, q.Who, f.rule, f.arguments[0], f.span)
			}
		}
		if err = unwritten(err, stderr); err != nil {
			return err
		}
		if f.json {
			return printJSON(stdout, b)
		}
		return printText(stdout, fmt.Sprintf("%s of %s is blocked until %s\n", printable(string(b.Key)), printable(b.Rule), b.Until.Local().Format(time.RFC3339)))
	})
}

const unblockSummary = `Ends a key's block. It is written to the audit log.`

// unblockKey is the command "aggregator unblock".
func unblockKey(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) error {
	f, s := newOperateFlags("unblock", unblockSummary)
	f.addKey(s, "the rule that the key is of")
	f.addKeys(s)
	if done, err := f.parse(s, args, getenv, stdout, 1, true); err != nil || done {
		return err
	}
	return f.withConn(ctx, func(ctx context.Context, conn *nats.Conn) error {
		q := f.question(getenv)
		err := console.Ask(ctx, conn, f.namespace, "unblock", q, new(struct{}))
		if errors.Is(err, console.ErrNobody) {
			var o *console.Operator
			if o, err = f.operator(conn); err == nil {
				err = o.Unblock(ctx, q.Who, f.rule, f.arguments[0])
			}
		}
		if err = unwritten(err, stderr); errors.Is(err, blocks.ErrNoBlock) {
			return fmt.Errorf("%s of %s is not blocked", printable(f.arguments[0]), printable(f.rule))
		}
		if err != nil {
			return err
		}
		if f.json {
			return printJSON(stdout, struct {
				Rule      string      `json:"rule"`
				Key       status.Text `json:"key"`
				Unblocked bool        `json:"unblocked"`
			}{f.rule, status.Text(f.arguments[0]), true})
		}
		return printText(stdout, fmt.Sprintf("%s of %s is not blocked any more\n", printable(f.arguments[0]), printable(f.rule)))
	})
}

// question is about the command's key.
func (f *operateFlags) question(getenv func(string) string) console.Question {
	return console.Question{Rule: f.rule, Key: status.Text(f.arguments[0]), Who: whoAsks(getenv)}
}

// operator does what no aggregator is there to do.
func (f *operateFlags) operator(conn *nats.Conn) (*console.Operator, error) {
	keys, err := f.keys.Once(signing.Entries)
	if err != nil {
		return nil, err
	}
	bucket, err := blocks.New(conn, f.namespace, blocks.Options{Verifier: keys.Verifier, Key: keys.Key})
	if err != nil {
		return nil, err
	}
	return console.NewOperator(bucket, time.Now, func(ctx context.Context, r console.Record) error {
		return console.WriteRecord(ctx, conn, f.namespace, r)
	}), nil
}

// unwritten says that something was done, although it is not in the audit log, and takes that error away.
func unwritten(err error, stderr io.Writer) error {
	if errors.Is(err, console.ErrUnwritten) {
		fmt.Fprintf(stderr, "aggregator: %v\n", err)
		return nil
	}
	return err
}
