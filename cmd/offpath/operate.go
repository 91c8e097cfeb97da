package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/offpath-io/offpath/cmd/internal/console"
	"github.com/offpath-io/offpath/cmd/internal/signing"
	"github.com/offpath-io/offpath/internal/blocks"
	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/internal/status"
)

// operation is a command that does what the console does, with its flags.
type operation struct {
	fleetFlags
	key, rule string
	span      time.Duration
	keys      signing.Keys // of blocks
}

// act does what the command is for, and returns its result, as a value and as text.
type act func(
	ctx context.Context, conn *nats.Conn, stderr io.Writer,
) (value any, text string, err error)

// examples are those of the commands' help, by their usage.
var examples = map[string]string{
	"top":   "  offpath top --nats nats://127.0.0.1:4222\n  offpath top --context prod",
	"fleet": "  offpath fleet --nats nats://127.0.0.1:4222",
	"get KEY": "  offpath get kristie\n" +
		"  offpath get 'kristie|createURL' --rule create-per-user",
	"block KEY":   "  offpath block mallory --rule per-user --for 24h",
	"unblock KEY": "  offpath unblock mallory --rule per-user",
	"reset KEY":   "  offpath reset kristie --rule per-user",
}

func (o *operation) command(use, short, long string, do act) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long, Example: examples[use], Args: flags.NoArguments,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := o.check(); err != nil {
			return err
		}
		const timeout = 2 * console.AskTimeout // to ask, and to do it oneself
		return o.withConn(cmd.Context(), timeout, func(ctx context.Context, conn *nats.Conn) error {
			value, text, err := do(ctx, conn, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			return o.print(cmd.OutOrStdout(), value, text)
		})
	}
	o.addFlags(cmd)
	return cmd
}

// takeKey has the command take a KEY of a rule.
func (o *operation) takeKey(
	e flags.Environment, cmd *cobra.Command, ruleUsage string,
) *cobra.Command {
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return flags.Usagef("want one KEY, and there are %d arguments "+
				"(one that begins with - goes last, after --)", len(args))
		}
		o.key = args[0]
		return nil
	}
	flags.Topic(cmd, "Key", func(s *pflag.FlagSet) { s.StringVar(&o.rule, "rule", "", ruleUsage) })
	_ = cmd.RegisterFlagCompletionFunc("rule", o.completeRules(e)) // there is such a flag
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	return cmd
}

// change is takeKey for a command that changes something, which needs to know the rule.
func (o *operation) change(e flags.Environment, cmd *cobra.Command) *cobra.Command {
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if o.rule == "" {
			return flags.Usagef("--rule NAME is needed: the rule that the key is of")
		}
		return nil
	}
	flags.Topic(cmd, "Audit log", o.addAs)
	return o.takeKey(e, cmd, "`NAME` of the key's rule")
}

// sign has the command sign blocks, which it writes itself where no aggregator answers.
func (o *operation) sign(cmd *cobra.Command) *cobra.Command {
	flags.Topic(cmd, "Signatures", func(s *pflag.FlagSet) {
		o.keys.AddPublic(s, signing.Entries)
		o.keys.AddSigning(s, signing.Entries)
	})
	return cmd
}

const getKeySummary = `
Prints what the fleet has counted for a key: the hits in its window, how many more fit, when there
is room again, and whether the key is blocked. Hits that checkers have not reported yet are missing.
KEY is the values of the rule's attributes, joined by |, or their hash where keys are hashed.`

func newGet(e flags.Environment) *cobra.Command {
	o := &operation{}
	cmd := o.command("get KEY", "print what is counted for a key", getKeySummary,
		func(ctx context.Context, conn *nats.Conn, _ io.Writer) (any, string, error) {
			var found []console.KeyView
			q := console.Question{Rule: o.rule, Key: status.Text(o.key)}
			err := console.Ask(ctx, conn, o.namespace, "get", q, &found)
			return found, keysText(found), err
		})
	return o.takeKey(e, cmd, "`NAME` of the key's rule; without it, every rule that has counted the key")
}

const resetSummary = `
Sets a key's count to zero. The ledger has the hits as refunded. Checkers that deny the key learn of
it at once.`

func newReset(e flags.Environment) *cobra.Command {
	o := &operation{}
	return o.change(e, o.command("reset KEY", "set a key's count to zero", resetSummary,
		func(ctx context.Context, conn *nats.Conn, stderr io.Writer) (any, string, error) {
			var after console.KeyView
			err := console.Ask(ctx, conn, o.namespace, "reset", o.question(), &after)
			return after, "reset:\n" + keysText([]console.KeyView{after}), unwritten(err, stderr)
		}))
}

const blockSummary = `
Denies a key at every checker for a time, whatever its count. It needs JetStream, but no aggregator.`

func newBlock(e flags.Environment) *cobra.Command {
	o := &operation{span: time.Hour}
	cmd := o.change(e, o.command("block KEY", "deny a key for a time", blockSummary,
		func(ctx context.Context, conn *nats.Conn, stderr io.Writer) (any, string, error) {
			until := time.Now().Add(o.span)
			b := console.BlockView{Rule: o.rule, Key: status.Text(o.key), Until: until}
			q := o.question()
			q.Seconds = o.span.Seconds()
			err := console.Ask(ctx, conn, o.namespace, "block", q, &b)
			if errors.Is(err, console.ErrNobody) {
				var operator *console.Operator
				if operator, err = o.operator(conn); err == nil {
					b, err = operator.Block(ctx, q.Who.ByCommand(), o.rule, o.key, o.span)
				}
			}
			text := fmt.Sprintf("%s of %s is blocked until %s\n",
				printable(string(b.Key)), printable(b.Rule), b.Until.Local().Format(time.RFC3339))
			return b, text, unwritten(err, stderr)
		}))
	flags.Topic(cmd, "Key", func(s *pflag.FlagSet) {
		flags.Add(s, &o.span, "for", "how long, a `DURATION` such as 10m or 24h",
			flags.Duration(time.Second, blocks.MaxSpan))
	})
	return o.sign(cmd)
}

func newUnblock(e flags.Environment) *cobra.Command {
	const summary = "Ends the block of a key."
	o := &operation{}
	return o.sign(o.change(e, o.command("unblock KEY", "end the block of a key", summary,
		func(ctx context.Context, conn *nats.Conn, stderr io.Writer) (any, string, error) {
			q := o.question()
			err := console.Ask(ctx, conn, o.namespace, "unblock", q, new(struct{}))
			if errors.Is(err, console.ErrNobody) {
				var operator *console.Operator
				if operator, err = o.operator(conn); err == nil {
					err = operator.Unblock(ctx, q.Who.ByCommand(), o.rule, o.key)
				}
			}
			name := printable(o.key) + " of " + printable(o.rule)
			if err = unwritten(err, stderr); errors.Is(err, blocks.ErrNoBlock) {
				err = fmt.Errorf("%s is not blocked", name)
			}
			return struct {
				Rule      string      `json:"rule"`
				Key       status.Text `json:"key"`
				Unblocked bool        `json:"unblocked"`
			}{o.rule, status.Text(o.key), true}, name + " is not blocked any more\n", err
		})))
}

// question is about the command's key.
func (o *operation) question() console.Question {
	return console.Question{Rule: o.rule, Key: status.Text(o.key), Who: o.who()}
}

// operator does what no aggregator is there to do.
func (o *operation) operator(conn *nats.Conn) (*console.Operator, error) {
	keys, err := o.keys.Once(signing.Entries)
	if err != nil {
		return nil, err
	}
	signed := blocks.Options{Verifier: keys.Verifier, Key: keys.Key}
	bucket, err := blocks.New(conn, o.namespace, signed)
	if err != nil {
		return nil, err
	}
	return console.NewOperator(bucket, time.Now, func(ctx context.Context, r console.Record) error {
		return console.WriteRecord(ctx, conn, o.namespace, r)
	}), nil
}

// unwritten prints that something was done although it is not in the audit log, and takes that
// error away.
func unwritten(err error, stderr io.Writer) error {
	if errors.Is(err, console.ErrUnwritten) {
		fmt.Fprintf(stderr, "offpath: %v\n", err)
		return nil
	}
	return err
}
