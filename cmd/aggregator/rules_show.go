package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/offpath-io/offpath/cmd/internal/rulesfile"
	"github.com/offpath-io/offpath/internal/natssource"
	"github.com/offpath-io/offpath/pkg/rules"
)

// revisionInfo is a revision as JSON tells of it.
type revisionInfo struct {
	Revision uint64    `json:"revision"`
	Created  time.Time `json:"created"`
	Size     int       `json:"size"` // in bytes
	Digest   string    `json:"digest,omitempty"`
	Deleted  bool      `json:"deleted,omitempty"`
	// SignedBy is a public key; that it is so has been checked if there are public keys to check it
	// by, and Refused is empty.
	SignedBy string `json:"signed_by,omitempty"`
	Refused  string `json:"refused,omitempty"`
}

func infoOf(e natssource.Entry) revisionInfo {
	info := revisionInfo{Revision: e.Revision, Created: e.Created.UTC(), Size: len(e.Data), Deleted: e.Deleted}
	info.SignedBy = e.SignedBy
	if e.Refused != nil {
		info.Refused = e.Refused.Error()
	}
	if !e.Deleted {
		info.Digest = natssource.Digest(e.Data)
	}
	return info
}

const getSummary = `Prints the text of the set that is there, as it was written, or of an older revision: what was written last but
one is back with "get --revision N | apply -f -".`

// getRules is the command "aggregator rules get".
func getRules(ctx context.Context, args []string, getenv func(string) string, stdout, _ io.Writer) error {
	f, s := newRulesFlags("get", getSummary, false)
	f.addRevision(s)
	if done, err := f.parse(s, args, getenv, stdout, "nats"); err != nil || done {
		return err
	}
	return f.withBucket(ctx, func(ctx context.Context, b *natssource.Bucket) error {
		e, err := f.entry(ctx, b)
		if err != nil {
			return err
		}
		if f.json {
			return printJSON(stdout, struct {
				revisionInfo
				Text string `json:"text"`
			}{infoOf(e), string(e.Data)})
		}
		return printText(stdout, string(e.Data))
	})
}

// entry is the set of the revision that was asked for, or the newest.
func (f *rulesFlags) entry(ctx context.Context, b *natssource.Bucket) (natssource.Entry, error) {
	if !f.given {
		return b.Get(ctx)
	}
	return b.At(ctx, f.revision)
}

const listSummary = `Prints one line for each rule of the set that is there, or of an older revision.`

// listRules is the command "aggregator rules list".
func listRules(ctx context.Context, args []string, getenv func(string) string, stdout, _ io.Writer) error {
	f, s := newRulesFlags("list", listSummary, false)
	f.addRevision(s)
	if done, err := f.parse(s, args, getenv, stdout, "nats"); err != nil || done {
		return err
	}
	return f.withBucket(ctx, func(ctx context.Context, b *natssource.Bucket) error {
		e, err := f.entry(ctx, b)
		if err != nil {
			return err
		}
		set, err := parseRules(e.Data)
		if err != nil {
			return fmt.Errorf("revision %d is not a good set: %w", e.Revision, err)
		}
		if f.json {
			return set.printJSON(stdout, e)
		}
		table := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
		for _, rule := range rules.Diff(nil, set.Set) {
			fmt.Fprintf(table, "%s\t%s\n", rule.Name, lineOf(rule))
		}
		return table.Flush()
	})
}

// printJSON prints the rules with the fields of YAML.
func (s *ruleSet) printJSON(stdout io.Writer, e natssource.Entry) error {
	list, err := s.plain()
	if err != nil {
		return err
	}
	return printJSON(stdout, struct {
		revisionInfo
		Rules []map[string]any `json:"rules"`
	}{infoOf(e), list})
}

const historySummary = `Prints the revisions that the bucket remembers, the last 64, oldest first: number, time, size in bytes, digest; and, with
--rules-public-keys, which of them were not signed as they should be, and so never counted.`

// printHistory is the command "aggregator rules history".
func printHistory(ctx context.Context, args []string, getenv func(string) string, stdout, _ io.Writer) error {
	f, s := newRulesFlags("history", historySummary, false)
	if done, err := f.parse(s, args, getenv, stdout, "nats"); err != nil || done {
		return err
	}
	return f.withBucket(ctx, func(ctx context.Context, b *natssource.Bucket) error {
		all, err := b.History(ctx)
		if err != nil {
			return err
		}
		infos := make([]revisionInfo, len(all))
		for i, e := range all {
			infos[i] = infoOf(e)
		}
		if f.json {
			return printJSON(stdout, map[string]any{"revisions": infos})
		}
		table := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "revision\ttime\tsize\tdigest")
		for _, info := range infos {
			fmt.Fprintf(table, "%d\t%s\t%s\n", info.Revision, info.Created.Format(time.RFC3339), info.content())
		}
		return table.Flush()
	})
}

func (r revisionInfo) content() string {
	if r.Deleted {
		return "deleted\t" + r.Refused
	}
	return strings.TrimSpace(fmt.Sprintf("%d\t%s %s", r.Size, r.Digest, r.Refused))
}

const validateSummary = `Says whether a file is a good set, and if not, where and why not. It needs no NATS.`

// validateRules is the command "aggregator rules validate".
func validateRules(_ context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) error {
	f, s := newRulesFlags("validate", validateSummary, true)
	f.addFile(s)
	if done, err := f.parse(s, args, getenv, stdout, "file"); err != nil || done {
		return err
	}
	text, set, err := rulesfile.Open(f.file, os.Stdin)
	refusal, refused := errors.AsType[*rules.Error](err)
	switch {
	case refused && f.json:
		return errors.Join(err, printJSON(stdout, map[string]any{
			"valid": false, "line": refusal.Line, "column": refusal.Column, "reason": refusal.Reason,
		}))
	case err != nil:
		return err
	}
	if f.json {
		return printJSON(stdout, map[string]any{"valid": true, "rules": len(set.Rules()), "size": len(text), "digest": natssource.Digest(text)})
	}
	return printText(stdout, fmt.Sprintf("good: %s, %d bytes\n", countRules(len(set.Rules())), len(text)))
}

const diffSummary = `Prints how a file differs from the set that is there: what "apply" would change.`

// diffRules is the command "aggregator rules diff".
func diffRules(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) error {
	f, s := newRulesFlags("diff", diffSummary, false)
	f.addFile(s)
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
		if there.unreadable != nil {
			return there.unreadable
		}
		changes := changesBetween(there.rules, &ruleSet{set, text})
		if f.json {
			return printJSON(stdout, map[string]any{"revision": there.entry.Revision, "changes": plainChanges(changes)})
		}
		return printText(stdout, changesText(changes))
	})
}

func printText(w io.Writer, text string) error {
	_, err := io.WriteString(w, text)
	return err
}

func printJSON(w io.Writer, value any) error {
	body, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	_, err = fmt.Fprintf(w, "%s\n", body)
	return err
}
