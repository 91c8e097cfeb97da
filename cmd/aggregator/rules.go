package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/offpath-io/offpath/cmd/internal/signing"
	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/internal/natsconn"
	"github.com/offpath-io/offpath/internal/natssource"
	"github.com/offpath-io/offpath/internal/redact"
	"github.com/offpath-io/offpath/internal/version"
)

// rulesTimeout is how long NATS may take to do what a command asks.
const rulesTimeout = 10 * time.Second

// command is what run calls.
type command func(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) error

// rulesCommands are the commands after "aggregator rules", in the order in which help lists them.
var rulesCommands = []struct {
	name, what string
	run        command
}{
	{"apply", "writes a set of rules; every checker with --rules nats takes it over", applyRules},
	{"get", "prints the set's text", getRules},
	{"list", "prints one line for each rule", listRules},
	{"delete", "takes rules out of the set", deleteRules},
	{"history", "prints the last 64 revisions", printHistory},
	{"validate", "says whether a file is a good set; it needs no NATS", validateRules},
	{"diff", "prints how a file differs from the set that is there", diffRules},
}

// findRulesCommand returns the command that the arguments name, and the arguments after it.
func findRulesCommand(args []string) (run command, name string, rest []string) {
	if len(args) > 0 {
		for _, c := range rulesCommands {
			if c.name == args[0] {
				return c.run, "aggregator rules " + c.name, args[1:]
			}
		}
	}
	return explainRules, "aggregator rules", args
}

// explainRules is "aggregator rules" without one of its commands: only help and the version make sense.
func explainRules(_ context.Context, args []string, getenv func(string) string, stdout, _ io.Writer) error {
	var names []string
	summary := "Reads and writes the rules in the fleet's bucket in NATS JetStream. Commands, each with --help:\n\n"
	for _, c := range rulesCommands {
		names = append(names, c.name)
		summary += fmt.Sprintf("  %-9s %s\n", c.name, c.what)
	}
	s := flags.New("aggregator rules", summary, version.Get().Line("aggregator"))
	var rest []string
	s.Arguments(&rest, "COMMAND")
	done, err := s.Parse(args, getenv, stdout)
	switch {
	case err != nil || done:
		return err
	case len(rest) > 0:
		return flags.Usagef("rules %q: want %s", rest[0], strings.Join(names, ", "))
	}
	return flags.Usagef("rules: want a command: %s", strings.Join(names, ", "))
}

// rulesFlags are those of all commands; each adds the ones that it knows.
type rulesFlags struct {
	nats, namespace string
	access          natsconn.Access
	file            string
	revision        uint64
	given           bool // revision is
	dryRun, json    bool
	replicas        int
	keys            signing.Keys
	public          string // of the signing key, "" if there is none
}

// newRulesFlags returns the flags of one command, which needs a connection if it is not local.
func newRulesFlags(name, summary string, local bool) (*rulesFlags, *flags.Set) {
	f := &rulesFlags{namespace: defaultNamespace, replicas: 1}
	s := flags.New("aggregator rules "+name, summary, version.Get().Line("aggregator"))
	if !local {
		flags.Add(s, &f.nats, "nats", "URL", "NATS of the fleet; several servers of it with commas between", flags.NATS)
		f.access.AddFlags(s)
		addNamespace(s, &f.namespace)
		f.keys.AddPublic(s, signing.Rules)
	}
	flags.Add(s, &f.json, "json", "", "print JSON", flags.Bool)
	return f, s
}

func (f *rulesFlags) addFile(s *flags.Set) {
	flags.Add(s, &f.file, "file", "FILE", "the rules, as YAML; - is standard input", flags.Text)
	s.Short("f", "file")
}

// addRevision adds the flag of commands that read.
func (f *rulesFlags) addRevision(s *flags.Set) {
	flags.Add(s, &f.revision, "revision", "N", "an older revision; without it, the newest", flags.Uint64)
}

// addWrite adds the flags of commands that write.
func (f *rulesFlags) addWrite(s *flags.Set) {
	flags.Add(s, &f.revision, "revision", "N", "write only if this revision is the newest, 0 for none; without it, the one that is there when the command starts",
		flags.Uint64)
	f.keys.AddSigning(s, signing.Rules)
	flags.Add(s, &f.dryRun, "dry-run", "", "print what would change, and change nothing", flags.Bool)
}

func (f *rulesFlags) addReplicas(s *flags.Set) {
	flags.Add(s, &f.replicas, "replicas", "N", "on how many servers of a NATS cluster the bucket is kept, if this makes it", flags.Int(1, 5))
}

// parse reads the flags, and sees that none that is needed is missing.
func (f *rulesFlags) parse(s *flags.Set, args []string, getenv func(string) string, stdout io.Writer, needed ...string) (done bool, err error) {
	done, err = s.Parse(args, getenv, stdout)
	if err != nil || done {
		return done, err
	}
	f.given = s.Given("revision")
	for _, name := range needed {
		if !s.Given(name) {
			what := map[string]string{"nats": "URL", "file": "FILE"}[name]
			return false, flags.Usagef("--%s %s is needed", name, what)
		}
	}
	return false, f.access.Check(f.nats)
}

// withBucket connects, calls do, and disconnects.
func (f *rulesFlags) withBucket(ctx context.Context, do func(ctx context.Context, b *natssource.Bucket) error) error {
	ctx, cancel := context.WithTimeout(ctx, rulesTimeout)
	defer cancel()
	keys, err := f.keys.Once(signing.Rules)
	if err != nil {
		return err
	}
	options, err := f.access.Options(nil)
	if err != nil {
		return err
	}
	conn, err := nats.Connect(f.nats, append(options, nats.Name("offpath-rules"), nats.Timeout(rulesTimeout/2))...)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", redact.URLs(f.nats), err)
	}
	defer conn.Close()
	o := natssource.Options{Replicas: f.replicas, Verifier: keys.Verifier}
	if keys.Key != nil {
		o.Key = keys.Key()
		f.public = o.Key.Public()
	}
	bucket, err := natssource.New(conn, f.namespace, o)
	if err != nil {
		return err
	}
	return do(ctx, bucket)
}
