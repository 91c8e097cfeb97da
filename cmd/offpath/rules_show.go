package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

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

const getSummary = `
Prints the fleet's rules as they were written, or an older revision, which
"offpath rules get --revision N | offpath rules apply -f -" brings back.`

func newGetRules() *cobra.Command {
	f := &rulesFlags{}
	return f.takeRevision(f.command("get", "print the rules", getSummary,
		func(ctx context.Context, b *natssource.Bucket, stdout io.Writer) error {
			e, err := f.entry(ctx, b)
			if err != nil {
				return err
			}
			return f.print(stdout, struct {
				revisionInfo
				Text string `json:"text"`
			}{infoOf(e), string(e.Data)}, string(e.Data))
		}))
}

// entry is the set of the revision that was asked for, or the newest.
func (f *rulesFlags) entry(ctx context.Context, b *natssource.Bucket) (natssource.Entry, error) {
	if !f.given {
		return b.Get(ctx)
	}
	return b.At(ctx, f.revision)
}

func newList() *cobra.Command {
	const summary = "Prints a line for each of the fleet's rules, or those of an older revision."
	f := &rulesFlags{}
	return f.takeRevision(f.command("list", "print one line for each rule", summary,
		func(ctx context.Context, b *natssource.Bucket, stdout io.Writer) error {
			e, err := f.entry(ctx, b)
			if err != nil {
				return err
			}
			set, err := parseRules(e.Data)
			if err != nil {
				return fmt.Errorf("revision %d is not a good set: %w", e.Revision, err)
			}
			list, err := set.plain()
			if err != nil {
				return err
			}
			var rows []string
			for _, rule := range rules.Diff(nil, set.Set) {
				rows = append(rows, rule.Name+"\t"+lineOf(rule))
			}
			return f.print(stdout, struct { // with the fields of YAML
				revisionInfo
				Rules []map[string]any `json:"rules"`
			}{infoOf(e), list}, table(rows...))
		}))
}

const historySummary = `
Prints the last 64 revisions, oldest first: number, time, size in bytes and digest. With
--rules-public-keys it also says which lack a trusted signature, and so were never in force.`

func newHistory() *cobra.Command {
	f := &rulesFlags{}
	return f.command("history", "print the last 64 revisions", historySummary,
		func(ctx context.Context, b *natssource.Bucket, stdout io.Writer) error {
			all, err := b.History(ctx)
			if err != nil {
				return err
			}
			infos, rows := []revisionInfo{}, []string{"revision\ttime\tsize\tdigest"}
			for _, e := range all {
				info := infoOf(e)
				infos = append(infos, info)
				rows = append(rows, fmt.Sprintf("%d\t%s\t%s",
					e.Revision, info.Created.Format(time.RFC3339), info.content()))
			}
			return f.print(stdout, map[string]any{"revisions": infos}, table(rows...))
		})
}

func (r revisionInfo) content() string {
	if r.Deleted {
		return "deleted\t" + r.Refused
	}
	return strings.TrimSpace(fmt.Sprintf("%d\t%s %s", r.Size, r.Digest, r.Refused))
}

func newDiff() *cobra.Command {
	const summary = "Prints how a file differs from the fleet's rules: what apply would change."
	f := &rulesFlags{}
	return f.takeFile(f.command("diff", "print how a file differs from the fleet's rules", summary,
		func(ctx context.Context, b *natssource.Bucket, stdout io.Writer) error {
			there, err := f.read(ctx, b)
			if err != nil {
				return err
			}
			if there.unreadable != nil {
				return there.unreadable
			}
			changes := changesBetween(there.rules, f.rules)
			return f.print(stdout, map[string]any{
				"revision": there.entry.Revision, "changes": changes,
			}, changesText(changes))
		}))
}
