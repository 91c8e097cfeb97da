package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/offpath-io/offpath/cmd/checker/door"
	"github.com/offpath-io/offpath/cmd/internal/rulesfile"
	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/internal/version"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/window"
)

const explainSummary = `Says what the rules of a file make of a request, of which nothing has been counted yet.

It reads the request's attributes from standard input, as a JSON object of strings: {"user": "kristie", "api": "createURL"}.
Its exit status is 0 if the request may pass, 1 if a rule denies it, and 2 if it cannot be told. A running checker tells the same of
what it has counted at POST /v1/explain.`

// The exit statuses of "checker explain".
const (
	exitAllowed = 0
	exitDenied  = 1
	exitFailed  = 2
)

// explain is the command "checker explain". It returns its exit status.
func explain(args []string, getenv func(string) string, stdin io.Reader, stdout, stderr io.Writer) int {
	status, err := explainRequest(args, getenv, stdin, stdout)
	if err == nil {
		return status
	}
	fmt.Fprintf(stderr, "checker explain: %v\n", err)
	if _, isUsage := errors.AsType[*flags.UsageError](err); isUsage {
		fmt.Fprintln(stderr, "checker explain --help lists the flags.")
	}
	return exitFailed
}

func explainRequest(args []string, getenv func(string) string, stdin io.Reader, stdout io.Writer) (status int, err error) {
	file, cost, asJSON := "", 1, false
	s := flags.New("checker explain", explainSummary, version.Get().Line("checker"))
	flags.Add(s, &file, "rules", "FILE", "rules to explain, as YAML; envoyproxy/ratelimit's format is read, too", flags.Text)
	flags.Add(s, &cost, "cost", "N", "cost of the request", flags.Int(1, int(window.MaxCount)))
	flags.Add(s, &asJSON, "json", "", "print JSON, as POST /v1/explain answers, instead of a text", flags.Bool)
	done, err := s.Parse(args, getenv, stdout)
	if err != nil || done {
		return exitAllowed, err
	}
	if file == "" || file == rulesfile.Stdin {
		return exitFailed, flags.Usagef("want --rules FILE")
	}
	_, set, err := rulesfile.Open(file, nil) // standard input has the request
	if err != nil {
		return exitFailed, err
	}
	attributes, err := door.ReadAttributes(stdin)
	if err != nil {
		return exitFailed, fmt.Errorf("standard input: %w", err)
	}
	checker, err := check.New(check.Options{Rules: set})
	if err != nil {
		return exitFailed, err
	}
	result := checker.Do(check.Request{Attributes: attributes, Cost: int64(cost), Mode: check.Explain})
	if asJSON {
		err = json.NewEncoder(stdout).Encode(door.NewExplained(result))
	} else {
		err = printExplained(stdout, result.Decision, result.Explanations)
	}
	if err == nil && !result.Allowed {
		return exitDenied, nil
	}
	return exitAllowed, err
}

// printExplained prints an explanation for people.
func printExplained(w io.Writer, d check.Decision, all []check.Explanation) error {
	switch {
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
		fmt.Fprintf(t, "%s\t%q\t%d\t%s\t%s\t%d\t%d\t%s\n", x.Counter, x.Key, x.Cost, hits(x.Count), hits(x.Others), x.Limit, x.Room, says(x))
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
