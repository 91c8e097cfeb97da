package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/offpath-io/offpath/cmd/checker/api"
	"github.com/offpath-io/offpath/cmd/internal/rulesfile"
	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/window"
)

const explainSummary = `Says what each rule of a file decides about a request, as if nothing had been counted yet.

It reads the request's attributes from standard input, a JSON object of strings. The exit status is
0 if the request may pass, 1 if a rule denies it, and 2 after an error. POST /v1/explain at a running
checker does the same with its counts.`

// The exit statuses of "offpath explain", besides 0.
const (
	exitDenied = 1
	exitFailed = 2
)

func newExplain() *cobra.Command {
	file, cost, asJSON, onNoMatch := "", 1, false, rulesfile.AllowNoMatch
	cmd := &cobra.Command{
		Use: "explain", Short: "say what rules decide about a request", Long: explainSummary,
		Example: `  echo '{"user":"kristie"}' | offpath explain --rules rules.yaml`,
		Args:    flags.NoArguments,
	}
	flags.Topic(cmd, "Request", func(s *pflag.FlagSet) {
		s.StringVar(&file, "rules", "",
			"`FILE|DIR` with the rules, as YAML or in envoyproxy/ratelimit's format")
		onNoMatch.AddFlag(s)
		flags.Add(s, &cost, "cost", "charge the request `N` hits",
			flags.Int(1, int(window.MaxCount)))
		s.BoolVar(&asJSON, "json", false, "print JSON, as POST /v1/explain does")
	})
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		result, err := explain(file, cost, onNoMatch, cmd.InOrStdin())
		if err == nil && asJSON {
			err = json.NewEncoder(cmd.OutOrStdout()).Encode(api.NewExplained(result))
		} else if err == nil {
			err = printExplained(cmd.OutOrStdout(), result.Decision, result.Explanations)
		}
		if err != nil {
			return &flags.ExitError{Status: exitFailed, Err: err}
		}
		if !result.Allowed {
			return &flags.ExitError{Status: exitDenied}
		}
		return nil
	}
	return cmd
}

// explain decides about the request whose attributes stdin has.
func explain(file string, cost int, onNoMatch rulesfile.NoMatch, stdin io.Reader) (r check.Result, err error) {
	if file == "" || file == rulesfile.Stdin {
		return r, flags.Usagef("want --rules FILE")
	}
	of, err := rulesfile.Open(file, nil) // standard input has the request
	if err != nil {
		return r, err
	}
	attributes, err := api.ReadAttributes(stdin)
	if err != nil {
		return r, fmt.Errorf("standard input: %w", err)
	}
	checker, err := check.New(check.Options{Rules: of.Set, DenyUnmatched: onNoMatch == rulesfile.DenyNoMatch})
	if err != nil {
		return r, err
	}
	return checker.Do(check.Request{Attributes: attributes, Cost: int64(cost), Mode: check.Explain}), nil
}

// printExplained prints an explanation for people.
func printExplained(w io.Writer, d check.Decision, all []check.Explanation) error {
	switch {
	case d.Unmatched && d.Allowed:
		fmt.Fprintln(w, "allowed: no rule matches the request")
	case d.Unmatched:
		fmt.Fprintf(w, "denied (%d): no rule matches the request\n", d.Status)
	case d.Allowed && d.Rule == "":
		fmt.Fprintln(w, "allowed: no rule limits the request")
	case d.Allowed:
		fmt.Fprintf(w, "allowed: %s leaves the least\n", d.Rule)
	default:
		fmt.Fprintf(w, "denied (%d) by %s; %s\n", d.Status, d.Rule, retry(d.RetryAfter))
	}
	if d.Shadow != "" {
		fmt.Fprintf(w, "%s would deny it, but is a shadow rule\n", d.Shadow)
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "RULE\tKEY\tCOST\tCOUNT\tOTHERS\tLIMIT\tROOM\tSAYS")
	for _, x := range all {
		if x.Why != "" {
			fmt.Fprintf(t, "%s\t-\t-\t-\t-\t-\t-\tdoes not apply: %s\n", x.Rule, x.Why)
			continue
		}
		fmt.Fprintf(t, "%s\t%q\t%d\t%s\t%s\t%d\t%d\t%s\n", x.Counter, x.Key, x.Cost,
			hits(x.Count), hits(x.Others), x.Limit, x.Room, says(x))
	}
	return t.Flush()
}

func says(x check.Explanation) string {
	var parts []string
	switch {
	case x.Barred != "":
		parts = append(parts, "denies: "+x.Barred)
	case x.Denies:
		parts = append(parts, "denies; "+retry(x.RetryAfter))
	default:
		parts = append(parts, "allows")
	}
	if x.Shadow {
		parts = append(parts, "shadow")
	}
	if x.BadCost {
		parts = append(parts, "its cost attribute is no cost")
	}
	if x.Override >= 0 {
		parts = append(parts, fmt.Sprintf("override %d", x.Override+1))
	}
	return strings.Join(parts, ", ")
}

func retry(after time.Duration) string {
	if after == check.Never {
		return "retrying is in vain"
	}
	return "retry in " + after.Round(time.Millisecond).String()
}

func hits(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }
