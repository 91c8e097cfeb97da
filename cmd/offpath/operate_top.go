package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/offpath-io/offpath/cmd/internal/console"
)

const topSummary = `
Prints the decisions of each rule over the whole fleet, and the keys with the most hits and denials,
estimated over the last minute.`

func newTop() *cobra.Command {
	return newView("top", "print the busiest rules and keys", topSummary, topText,
		func(v console.View) any {
			return struct {
				Heard  console.Heard      `json:"heard"`
				Rules  []console.RuleView `json:"rules"`
				Used   []console.TopView  `json:"used"`
				Denied []console.TopView  `json:"denied"`
			}{v.Heard, v.Rules, v.Used, v.Denied}
		})
}

const fleetSummary = `
Prints the fleet's checkers and aggregators, their health, and the blocked keys.`

func newFleet() *cobra.Command {
	return newView("fleet", "print checkers, aggregators and blocked keys", fleetSummary, fleetText,
		fleetParts)
}

// fleetParts are what "fleet --json" prints of a view.
func fleetParts(v console.View) any {
	return struct {
		Heard       console.Heard            `json:"heard"`
		Checkers    []console.CheckerView    `json:"checkers"`
		Aggregators []console.AggregatorView `json:"aggregators"`
		Blocks      []console.BlockView      `json:"blocks"`
		BlocksWhy   string                   `json:"blocks_why,omitempty"` // they cannot be read
	}{v.Heard, v.Checkers, v.Aggregators, v.Blocks, v.BlocksWhy}
}

// newView returns a command that prints a part of what the console shows.
func newView(
	use, short, long string, text func(console.View) string, part func(console.View) any,
) *cobra.Command {
	o := &operation{}
	return o.command(use, short, long,
		func(ctx context.Context, conn *nats.Conn, _ io.Writer) (any, string, error) {
			var v console.View
			err := console.Ask(ctx, conn, o.namespace, "view", console.Question{}, &v)
			return part(v), text(v), err
		})
}

// row makes a row of a table of cells, each as a terminal can show it: names come from the fleet.
func row(cells ...any) string {
	texts := make([]string, len(cells))
	for i, c := range cells {
		texts[i] = printable(fmt.Sprint(c))
	}
	return strings.Join(texts, "\t")
}

// table makes a table of rows.
func table(rows ...string) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, row)
	}
	_ = w.Flush() // a strings.Builder takes everything
	return b.String()
}

// tenth is a rate as people read it.
func tenth(rate float64) string { return strconv.FormatFloat(rate, 'f', 1, 64) }

func topText(v console.View) string {
	rules := []string{row("rule", "admitted", "denied", "admitted/s", "denied/s")}
	for _, r := range v.Rules {
		rules = append(rules, row(r.Rule, r.Allowed, r.Denied, tenth(r.AllowedRate), tenth(r.DeniedRate)))
	}
	text := table(rules...) + listed("rules", len(v.Rules), v.Heard.Rules)
	for _, top := range []struct {
		what string
		list []console.TopView
	}{{"hits", v.Used}, {"denials", v.Denied}} {
		rows := []string{row("rule", "key", top.what+"/s, about")}
		for _, k := range top.list {
			rows = append(rows, row(k.Rule, string(k.Key), tenth(k.Rate)))
		}
		text += "\n" + table(rows...)
	}
	return text + "\n" + heardText(v.Heard)
}

// listed says so if a list is not of all.
func listed(what string, some, all int) string {
	if some >= all {
		return ""
	}
	return fmt.Sprintf("the first %d of %d %s\n", some, all, what)
}

// count is a number of things, whose plural has an s: 1 checker, 2 checkers.
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// heardText says of how many parts the numbers are.
func heardText(h console.Heard) string {
	text := count(h.Checkers, "checker") + " and " + count(h.Aggregators, "aggregator") + " heard"
	switch {
	case h.Silent == 1:
		text += "; 1 checker is silent, and left out of all sums"
	case h.Silent > 1:
		text += fmt.Sprintf("; %d checkers are silent, and left out of all sums", h.Silent)
	}
	return text + "\n"
}

func fleetText(v console.View) string {
	checkers := []string{row("checker", "host", "version", "knows", "admitted", "denied", "unreported", "rules", "heard", "problem")}
	for _, c := range v.Checkers {
		checkers = append(checkers, row(c.Name, c.Host, c.Version, c.Freshness, c.Allowed, c.Denied, c.Unreported, c.RulesRevision, ago(c.Ago, c.Silent), c.Problem))
	}
	aggregators := []string{row("aggregator", "host", "version", "ready", "behind", "waiting", "reports", "errors", "heard", "problem")}
	for _, a := range v.Aggregators {
		behind := "idle"
		if a.Behind >= 0 {
			behind = fmt.Sprintf("%d ms", a.Behind)
		}
		problem := a.Problem
		if l := a.Loss; l != nil && problem == "" {
			problem = fmt.Sprintf("Redis lost data at %s: %s of shard %d", l.At.Local().Format(time.RFC3339), printable(l.Size), l.Shard)
		}
		aggregators = append(aggregators, row(a.Name, a.Host, a.Version, a.Ready, behind, a.Waiting, a.Reports, a.Errors, ago(a.Ago, a.Silent), problem))
	}
	text := table(checkers...) + listed("checkers", len(v.Checkers), v.Heard.Checkers+v.Heard.Silent) + "\n" + table(aggregators...) + "\n"
	if len(v.Blocks) > 0 {
		blocks := []string{row("blocked", "key", "until", "by")}
		for _, b := range v.Blocks {
			blocks = append(blocks, row(b.Rule, string(b.Key), b.Until.Local().Format(time.RFC3339), b.By))
		}
		text += table(blocks...) + listed("blocked keys", len(v.Blocks), v.Heard.Blocks) + "\n"
	}
	if v.BlocksWhy != "" {
		text += "blocks cannot be read: " + printable(v.BlocksWhy) + "\n"
	}
	return text + heardText(v.Heard)
}

func ago(ms int64, silent bool) string {
	text := (time.Duration(ms) * time.Millisecond).Round(100 * time.Millisecond).String()
	if silent {
		return "silent for " + text
	}
	return text + " ago"
}

// keysText says what is known of keys.
func keysText(found []console.KeyView) string {
	rows := []string{row("rule", "key", "count", "limit", "left", "one more in", "all free in", "blocked")}
	for _, k := range found {
		blocked := "no"
		if k.Block != nil {
			blocked = "for " + (time.Duration(k.Block.EndsIn) * time.Millisecond).Round(time.Second).String()
		}
		rows = append(rows, row(k.Rule.Name, string(k.Key), fmt.Sprintf("%.6g", k.Count), k.Limit, k.Remaining, soon(k.RetryAfter), soon(k.FreeAfter), blocked))
	}
	return table(rows...)
}

func soon(ms int64) string {
	if ms == 0 {
		return "now"
	}
	return (time.Duration(ms) * time.Millisecond).String()
}

// printable is a text as a terminal can show it, which takes some bytes for orders.
func printable(text string) string {
	for _, r := range text {
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			return strconv.Quote(text)
		}
	}
	return text
}
