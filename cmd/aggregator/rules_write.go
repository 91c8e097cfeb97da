package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/offpath-io/offpath/cmd/internal/rulesfile"
	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/internal/natssource"
)

const applySummary = `Writes a set of rules into the fleet's bucket, in place of the one that is there. Every checker with --rules nats
takes it over at once, if it is signed where checkers want that. Bad rules are refused, with line and reason, and nothing changes; so they are if somebody else
writes at the same time. The first set makes the bucket.`

// applyRules is the command "aggregator rules apply".
func applyRules(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) error {
	f, s := newRulesFlags("apply", applySummary, false)
	f.addFile(s)
	f.addWrite(s)
	f.addReplicas(s)
	if done, err := f.parse(s, args, getenv, stdout, "nats", "file"); err != nil || done {
		return err
	}
	text, set, err := rulesfile.Open(f.file, os.Stdin)
	if err != nil {
		return err
	}
	return f.withBucket(ctx, func(ctx context.Context, b *natssource.Bucket) error {
		there, err := f.read(ctx, b)
		if err != nil {
			return err
		}
		return f.write(ctx, b, there, &ruleSet{set, text}, stdout)
	})
}

const deleteSummary = `Takes rules out of the set that is there, by name. The others stay as they are; blank lines between them may not.
The last rule cannot be taken out.`

// deleteRules is the command "aggregator rules delete".
func deleteRules(ctx context.Context, args []string, getenv func(string) string, stdout, _ io.Writer) error {
	f, s := newRulesFlags("delete", deleteSummary, false)
	f.addWrite(s)
	var names []string
	s.Arguments(&names, "NAME…")
	if done, err := f.parse(s, args, getenv, stdout, "nats"); err != nil || done {
		return err
	}
	if len(names) == 0 {
		return flags.Usagef("the NAME of a rule is needed")
	}
	return f.withBucket(ctx, func(ctx context.Context, b *natssource.Bucket) error {
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
}

// inBucket is what the bucket holds; its entry's revision is 0 if that is nothing.
type inBucket struct {
	entry      natssource.Entry
	rules      *ruleSet // nil if there are none, or if they cannot be read
	unreadable error
}

// read reads what is there, and sees that it is the revision that was asked for, if one was.
func (f *rulesFlags) read(ctx context.Context, b *natssource.Bucket) (there inBucket, err error) {
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
	Revision uint64   `json:"revision"` // the newest afterwards
	Was      uint64   `json:"was"`
	Digest   string   `json:"digest"`
	Rules    int      `json:"rules"`
	DryRun   bool     `json:"dry_run"`
	Changes  []change `json:"changes"`
}

// write puts the new rules in place of those that are there, unless they are the same, or this is a rehearsal.
func (f *rulesFlags) write(ctx context.Context, b *natssource.Bucket, there inBucket, rules *ruleSet, stdout io.Writer) error {
	if err := b.CheckSize(rules.text); err != nil {
		return err
	}
	changes := changesBetween(there.rules, rules)
	done := written{
		Revision: there.entry.Revision, Was: there.entry.Revision, Digest: natssource.Digest(rules.text), Rules: len(rules.Rules()),
		DryRun: f.dryRun, Changes: plainChanges(changes),
	}
	if there.entry.Version > 0 && f.public == "" {
		return errSigned
	}
	same := there.rules != nil && string(there.rules.text) == string(rules.text) &&
		(f.public == "" || f.public == there.entry.SignedBy)
	if !same && !f.dryRun {
		at, err := b.Put(ctx, rules.text, there.entry.Revision)
		if err != nil {
			return err
		}
		done.Revision = at
	}
	if f.json {
		return printJSON(stdout, done)
	}
	return printText(stdout, done.headline(same)+changesText(changes))
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
		return fmt.Sprintf("would write %s; %s is there\n", countRules(w.Rules), there)
	}
	return fmt.Sprintf("revision %d: %s; %s was there before\n", w.Revision, countRules(w.Rules), there)
}

func countRules(n int) string {
	if n == 1 {
		return "1 rule"
	}
	return fmt.Sprintf("%d rules", n)
}
