package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/offpath-io/offpath/cmd/internal/console"
	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/internal/natssource"
	"github.com/offpath-io/offpath/pkg/rules"
)

const applySummary = `
Replaces the fleet's rules with those of a file. Every checker with --rules nats follows at once.
Invalid rules are refused, with line and reason, and so is a write at the same time as somebody
else's. The first set of rules creates the bucket. The audit log names you.`

func newApply() *cobra.Command {
	f := &rulesFlags{}
	cmd := f.command("apply", "replace the fleet's rules", applySummary,
		func(ctx context.Context, b *natssource.Bucket, stdout io.Writer) error {
			there, err := f.read(ctx, b)
			if err != nil {
				return err
			}
			return f.write(ctx, b, there, f.rules, stdout)
		})
	flags.Topic(cmd, "Rules", func(s *pflag.FlagSet) {
		flags.Add(s, &f.replicas, "replicas", "keep the bucket on `N` servers of a NATS cluster "+
			"when this command creates it", flags.Int(1, 5))
	})
	return f.takeWrite(f.takeFile(cmd))
}

const deleteSummary = `
Removes rules by name. The others stay as they are, except for blank lines between them. The last
rule cannot be removed.`

func newDelete(e flags.Environment) *cobra.Command {
	f := &rulesFlags{}
	var names []string
	cmd := f.command("delete NAME…", "remove rules", deleteSummary,
		func(ctx context.Context, b *natssource.Bucket, stdout io.Writer) error {
			there, err := f.read(ctx, b)
			switch {
			case err != nil:
				return err
			case there.entry.Revision == 0:
				return natssource.ErrNoRules
			case there.unreadable != nil:
				return there.unreadable
			}
			text, err := without(there.rules.text, names)
			if err != nil {
				return err
			}
			rest, err := parseRules(text)
			if err != nil {
				return fmt.Errorf("without these rules: %w", err)
			}
			return f.write(ctx, b, there, rest, stdout)
		})
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if names = args; len(names) == 0 {
			return flags.Usagef("the NAME of a rule is needed")
		}
		return nil
	}
	cmd.ValidArgsFunction = f.completeRules(e)
	return f.takeWrite(cmd)
}

// inForce is what the bucket holds; its entry's revision is 0 if that is nothing.
type inForce struct {
	entry      natssource.Entry
	rules      *ruleSet // nil if there are none, or if they cannot be read
	unreadable error
}

// read reads what is there, and sees that it is the revision that was asked for, if one was.
func (f *rulesFlags) read(ctx context.Context, b *natssource.Bucket) (there inForce, err error) {
	there.entry, err = b.Get(ctx)
	if err != nil && !errors.Is(err, natssource.ErrNoRules) {
		return there, err
	}
	if f.given && f.revision != there.entry.Revision {
		return there, &natssource.ConflictError{Expected: f.revision, Found: there.entry.Revision}
	}
	if there.entry.Revision > 0 {
		if there.rules, err = parseRules(there.entry.Data); err != nil {
			there.unreadable = fmt.Errorf("revision %d is not a good set: %w", there.entry.Revision, err)
		}
	}
	return there, nil
}

// errSigned says that every checker that looks at signatures would refuse what is to be written.
var errSigned = errors.New("the set that is there is signed: --rules-signing-key-file FILE is needed to write another")

// written is what a command that writes has done.
type written struct {
	Revision uint64         `json:"revision"` // the newest afterwards
	Was      uint64         `json:"was"`
	Digest   string         `json:"digest"`
	Rules    int            `json:"rules"`
	DryRun   bool           `json:"dry_run"`
	Changes  []rules.Change `json:"changes"`
}

// write puts the new rules in place of those that are there, unless they are the same, or this is a
// rehearsal.
func (f *rulesFlags) write(
	ctx context.Context, b *natssource.Bucket, there inForce, set *ruleSet, stdout io.Writer,
) error {
	if set.notOne != nil {
		return set.notOne
	}
	if err := b.CheckSize(set.text); err != nil {
		return err
	}
	changes := changesBetween(there.rules, set)
	done := written{
		Revision: there.entry.Revision, Was: there.entry.Revision, Digest: natssource.Digest(set.text), Rules: len(set.Rules()),
		DryRun: f.dryRun, Changes: changes,
	}
	if there.entry.Version > 0 && f.public == "" {
		return errSigned
	}
	same := there.rules != nil && string(there.rules.text) == string(set.text) &&
		(f.public == "" || f.public == there.entry.SignedBy)
	if !same && !f.dryRun {
		at, err := b.Put(ctx, set.text, there.entry.Revision)
		if err = unwritten(f.writeDown(ctx, at, changes, err), f.stderr); err != nil {
			return err
		}
		done.Revision = at
	}
	return f.print(stdout, done, done.headline(same)+changesText(changes))
}

// noteTimeout is how long the audit log may take. mostNamed is how many rules it names.
const (
	noteTimeout = 3 * time.Second
	mostNamed   = 10
)

// writeDown writes to the audit log what became of a new set.
func (f *rulesFlags) writeDown(
	ctx context.Context, revision uint64, changes []rules.Change, failed error,
) error {
	var parts []string
	for _, c := range changes[:min(len(changes), mostNamed)] {
		parts = append(parts, c.Kind.String()+" "+c.Name)
	}
	if more := len(changes) - mostNamed; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	r := console.Record{
		At: time.Now().UTC(), Who: f.who().ByCommand(), What: "apply", Detail: strings.Join(parts, ", "),
	}
	if failed != nil {
		r.Error = failed.Error()
	} else {
		r.Detail = strings.TrimSuffix(fmt.Sprintf("revision %d: %s", revision, r.Detail), ": ")
	}
	ctx, cancel := context.WithTimeout(ctx, noteTimeout)
	defer cancel()
	if err := f.note(ctx, r); err != nil && failed == nil {
		return fmt.Errorf("%w: %w", console.ErrUnwritten, err)
	}
	return failed
}

func (w written) headline(same bool) string {
	there := "nothing"
	if w.Was > 0 {
		there = fmt.Sprintf("revision %d", w.Was)
	}
	switch {
	case same:
		return there + " is already this set\n"
	case w.DryRun:
		return fmt.Sprintf("would write %s; %s is there\n", count(w.Rules, "rule"), there)
	}
	return fmt.Sprintf("revision %d: %s; %s was there before\n", w.Revision, count(w.Rules, "rule"), there)
}
