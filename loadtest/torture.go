package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/internal/version"
	"github.com/offpath-io/offpath/loadtest/report"
	"github.com/offpath-io/offpath/loadtest/result"
	"github.com/offpath-io/offpath/loadtest/torture"
	"github.com/offpath-io/offpath/loadtest/torture/found"
)

const tortureSummary = `
Plays faults on a fleet of real processes, and looks whether it keeps what docs/reliability.md
promises: processes are killed, stopped and frozen, links are cut, slow and one-way, Redis loses
data. It builds the daemons and nats-server from the sources it is run in, and needs redis-server.

The seed decides the faults. The exit status is 1 if a promise was broken.`

// errViolated says that a promise was broken.
var errViolated = errors.New("promises were broken: see violations above")

func newTorture() *cobra.Command {
	o := torture.Options{Duration: 10 * time.Minute, Seed: 1, Race: true, Mode: torture.Single}
	minutes, faults, out := 10.0, kinds(nil), output{}
	cmd := &cobra.Command{
		Use: "torture", Short: "faults of all kinds on a fleet of real processes", Long: tortureSummary,
		Args: flags.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.check(); err != nil {
				return err
			}
			o.Faults = faults
			o.Duration = time.Duration(minutes * float64(time.Minute))
			o.Progress = cmd.ErrOrStderr()
			return runTorture(cmd, o, &out)
		},
	}
	flags.Topic(cmd, "Faults", func(s *pflag.FlagSet) {
		flags.Add(s, &minutes, "minutes", "go on for `N` minutes, and to the end of the last round",
			flags.Float(0.1, 24*60))
		flags.Add(s, &o.Seed, "seed", "`N` decides the faults", flags.Uint64)
		s.BoolVar(&o.Drills, "drills", false, "play one state after the other instead, such as an "+
			"outage of Redis, and print what passed in each; with sentinel and cluster, those in which a "+
			"replica takes over")
		flags.Add(s, &faults, "faults", "`KINDS` of faults, with commas between; all that the "+
			"mode can play by default: "+kindNames(torture.Kinds())+" (failover only with sentinel and "+
			"cluster, rollback only with single, version only with --previous)", readKinds)
	})
	flags.Topic(cmd, "Fleet", func(s *pflag.FlagSet) {
		flags.Add(s, &o.Mode, "mode", "how Redis runs: `"+modeNames()+"`, alone, as a master and a "+
			"replica with Sentinels, or as a Cluster with replicas", readMode)
		s.StringVar(&o.Previous, "previous", "", "`COMMIT|TAG` of which one checker and one aggregator "+
			"are, in turn with this version: git has to have it")
		s.BoolVar(&o.Race, "race", o.Race, "build the daemons with the race detector")
		s.BoolVar(&o.Untimed, "untimed", false, "allow a minute to recover, judge no times of "+
			"answers, and limits at rest only roughly: for a machine that others use")
	})
	flags.Topic(cmd, "Output", func(s *pflag.FlagSet) {
		s.StringVar(&out.html, "html", "", "`FILE` for a page with all faults on a time line")
		s.StringVar(&out.json, "json", "", "`FILE` for all that was found as JSON; - prints it "+
			"instead of the table")
		s.StringVar(&o.Logs, "logs", "", "`DIRECTORY` for what each process prints, and for every answer, "+
			"with seconds since the start")
	})
	return cmd
}

func modeNames() string {
	names := make([]string, len(torture.Modes))
	for i, m := range torture.Modes {
		names[i] = string(m)
	}
	return strings.Join(names, "|")
}

func readMode(text string) (torture.Mode, error) {
	m := torture.Mode(text)
	if !slices.Contains(torture.Modes, m) {
		return "", fmt.Errorf("%q: want one of %s", m, modeNames())
	}
	return m, nil
}

// kinds are as a flag has them.
type kinds []torture.Kind

// String returns "", the default.
func (kinds) String() string { return "" }

func kindNames(list []torture.Kind) string {
	names := make([]string, len(list))
	for i, k := range list {
		names[i] = string(k)
	}
	return strings.Join(names, ",")
}

func readKinds(text string) (list kinds, err error) {
	for name := range strings.SplitSeq(text, ",") {
		k := torture.Kind(strings.TrimSpace(name))
		if !slices.Contains(torture.Kinds(), k) {
			return nil, fmt.Errorf("%q: want some of %s", k, kindNames(torture.Kinds()))
		}
		list = append(list, k)
	}
	return list, nil
}

func runTorture(cmd *cobra.Command, o torture.Options, out *output) error {
	r, err := torture.Run(cmd.Context(), o)
	if len(r.Faults)+len(r.Violations) > 0 {
		if out.html != "" {
			err = errors.Join(err, writeCampaign(out.html, &r, err))
		}
		switch {
		case out.json == "-":
			err = errors.Join(err, writeJSON(cmd.OutOrStdout(), r))
		case out.json != "":
			err = errors.Join(err, toFile(out.json, func(w io.Writer) error { return writeJSON(w, r) }))
		}
		if out.json != "-" {
			printTorture(cmd.OutOrStdout(), &r)
		}
	}
	switch {
	case err != nil:
		return err
	case r.Interrupted:
		return errInterrupted
	case len(r.Violations) > 0:
		return errViolated
	}
	return nil
}

// writeCampaign writes the page, which tells of a failure of the campaign itself, too.
func writeCampaign(name string, r *found.Result, failed error) error {
	on := result.File{Offpath: version.Get().Version, Machine: machine()}
	c := report.Campaign{Result: *r, On: on, Failed: failed}
	if err := toFile(name, func(w io.Writer) error { return report.CampaignHTML(w, c) }); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	return nil
}

func printTorture(to io.Writer, r *found.Result) {
	byKind := map[string]int{}
	for _, f := range r.Faults {
		byKind[f.Kind]++
	}
	t := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	row := func(what, format string, args ...any) {
		fmt.Fprintf(t, "%s\t%s\n", what, fmt.Sprintf(format, args...))
	}
	row("faults", "%d in %.0f s, %d rounds", len(r.Faults), r.Seconds, r.Rounds)
	for _, k := range torture.Kinds() {
		if byKind[string(k)] > 0 {
			row("  "+string(k), "%d", byKind[string(k)])
		}
	}
	q := &r.Requests
	row("requests", "%d: %d allowed, %d denied; %d over RLS", q.Asked, q.Allowed, q.Denied, q.OverRLS)
	row("  of live checkers", "p50 %.1f ms, p99 %.1f ms, longest %.0f ms; %d not answered in time",
		q.P50, q.P99, q.Longest, q.Late)
	row("  of others", "%d: killed, stopped or frozen meanwhile", q.Excused)
	longest := 0.0
	for _, rest := range r.Rests {
		longest = max(longest, rest.After)
	}
	row("at rest again", "after %.1f s at most", longest)
	row("hits unknown to others", "for %.0f ms at rest, by what reports take, and %.0f ms at most",
		r.Unknown.P50, r.Unknown.Longest)
	for _, d := range r.Drills {
		row(d.Name, "for %.0f s: %.2f of the limit passed, worst window %+.1f %%, from 24 s on %+.1f %%; "+
			"longest answer %.0f ms, %d missing; at rest after %.1f s", d.For, d.Passed, 100*d.Worst,
			100*d.WorstLater, d.Longest, d.Unanswered, d.RestAfter)
	}
	n := &r.Counts
	row("hits allowed", "%d, and perhaps %d more of requests without an answer", n.Allowed, n.Uncertain)
	row("  in the ledger", "%d", n.Ledger)
	row("  dropped, as checkers say", "%d", n.Dropped)
	row("  lost by Redis", "%d, and perhaps %d more; at most %d were reported again",
		n.StoreLost, n.StoreLostMore, n.CountedAgain)
	row("  gone with killed checkers", "%d (they held %d)",
		max(n.Allowed-n.Ledger-n.Dropped-n.StoreLost, 0), n.Held)
	for _, rule := range r.Rules {
		row("over the limit of "+rule.Rule, "%+.1f %% in the worst window, %+.1f %% at rest",
			100*rule.Worst, 100*rule.AtRest)
	}
	row("the machine stood still", "%.1f %% of the time", 100*r.StoodStill)
	row("violations", "%d", len(r.Violations))
	_ = t.Flush() // as with all that is printed
	for _, v := range r.Violations {
		fmt.Fprintf(to, "  %7.2f s  %s: %s\n", v.At, v.What, v.Text)
	}
	if len(r.Violations) > 0 {
		fmt.Fprintf(to, "repeat the faults with: %s\n", r.Command)
	}
}
