package main

import (
	"context"
	"io"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/offpath-io/offpath/cmd/internal/console"
	"github.com/offpath-io/offpath/cmd/internal/rulesfile"
	"github.com/offpath-io/offpath/cmd/internal/signing"
	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/internal/natssource"
)

// rulesTimeout is how long NATS may take to do what a command asks.
const rulesTimeout = 10 * time.Second

func newRules(e flags.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "rules COMMAND", Short: "read and write the fleet's rules",
		Long: "Reads and writes the fleet's rules, which are in a bucket in NATS JetStream.",
		Example: "  offpath rules validate rules.yaml\n" +
			"  offpath rules diff -f rules.yaml --nats nats://127.0.0.1:4222\n" +
			"  offpath rules apply -f rules.yaml --nats nats://127.0.0.1:4222\n" +
			"  offpath rules get --revision 3 | offpath rules apply -f -",
		Args: flags.NoArguments, RunE: flags.NeedsCommand,
	}
	cmd.AddCommand(newApply(), newGetRules(), newList(), newDelete(e), newHistory(), newValidate(),
		newDiff(), newSchema())
	return cmd
}

// rulesFlags are those of all commands; each adds the ones that it knows.
type rulesFlags struct {
	fleetFlags
	file     string
	rules    *ruleSet // in the file
	revision uint64
	given    bool // revision is
	dryRun   bool
	replicas int
	keys     signing.Keys
	public   string                                            // of the signing key, "" if there is none
	note     func(ctx context.Context, r console.Record) error // for the audit log
	stderr   io.Writer
}

// inBucket does what a command is for.
type inBucket func(ctx context.Context, b *natssource.Bucket, stdout io.Writer) error

// command returns a command that connects, calls do, and disconnects.
func (f *rulesFlags) command(use, short, long string, do inBucket) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Long: long, Args: flags.NoArguments}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		f.given, f.stderr = cmd.Flags().Changed("revision"), cmd.ErrOrStderr()
		if err := f.check(); err != nil {
			return err
		}
		return f.withBucket(cmd.Context(), func(ctx context.Context, b *natssource.Bucket) error {
			return do(ctx, b, cmd.OutOrStdout())
		})
	}
	f.replicas = 1
	f.addFlags(cmd)
	flags.Topic(cmd, "Signatures", func(s *pflag.FlagSet) { f.keys.AddPublic(s, signing.Rules) })
	return cmd
}

// takeFile has a command read rules from a file, before it does anything else.
func (f *rulesFlags) takeFile(cmd *cobra.Command) *cobra.Command {
	flags.Topic(cmd, "Rules", func(s *pflag.FlagSet) {
		s.StringVarP(&f.file, "file", "f", "",
			"`FILE|DIR` with the rules, as YAML or in envoyproxy/ratelimit's format; - for standard "+
				"input")
	})
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if f.file == "" {
			return flags.Usagef("--file FILE is needed")
		}
		r, err := rulesfile.Open(f.file, cmd.InOrStdin())
		if err != nil {
			return err
		}
		for _, w := range r.Warnings {
			cmd.PrintErrln("warning:", w)
		}
		f.rules = &ruleSet{Set: r.Set, text: r.Text, notOne: r.NotOne}
		return nil
	}
	return cmd
}

// takeRevision has a command read a revision.
func (f *rulesFlags) takeRevision(cmd *cobra.Command) *cobra.Command {
	flags.Topic(cmd, "Rules", func(s *pflag.FlagSet) {
		flags.Add(s, &f.revision, "revision", "print revision `N` instead of the newest", flags.Uint64)
	})
	return cmd
}

// takeWrite has a command write into the bucket.
func (f *rulesFlags) takeWrite(cmd *cobra.Command) *cobra.Command {
	flags.Topic(cmd, "Rules", func(s *pflag.FlagSet) {
		flags.Add(s, &f.revision, "revision", "write only if revision `N` is still the newest; 0 if "+
			"there are no rules yet; by default the newest at the start", flags.Uint64)
		s.BoolVar(&f.dryRun, "dry-run", false, "print what would change, without changing it")
	})
	flags.Topic(cmd, "Signatures", func(s *pflag.FlagSet) { f.keys.AddSigning(s, signing.Rules) })
	flags.Topic(cmd, "Audit log", f.addAs)
	return cmd
}

// withBucket connects, calls do, and disconnects.
func (f *rulesFlags) withBucket(
	ctx context.Context, do func(ctx context.Context, b *natssource.Bucket) error,
) error {
	keys, err := f.keys.Once(signing.Rules)
	if err != nil {
		return err
	}
	o := natssource.Options{Replicas: f.replicas, Verifier: keys.Verifier}
	if keys.Key != nil {
		o.Key = keys.Key()
		f.public = o.Key.Public()
	}
	return f.withConn(ctx, rulesTimeout, func(ctx context.Context, conn *nats.Conn) error {
		bucket, err := natssource.New(conn, f.namespace, o)
		if err != nil {
			return err
		}
		f.note = func(ctx context.Context, r console.Record) error {
			return console.WriteRecord(ctx, conn, f.namespace, r)
		}
		return do(ctx, bucket)
	})
}
