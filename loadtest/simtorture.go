package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/loadtest/sim/torture"
)

// tortured are the flags of a simulation that plays faults.
type tortured struct {
	on            bool
	seeds, rounds int
}

// tortureFlags are those that --torture goes with.
var tortureFlags = []string{"torture", "seeds", "rounds", "seed", "json"}

func (t *tortured) add(cmd *cobra.Command) {
	t.seeds, t.rounds = 1000, 3
	flags.Topic(cmd, "Torture", func(s *pflag.FlagSet) {
		s.BoolVar(&t.on, "torture", false, "play random faults instead of a scenario, on fleets of 4 "+
			"checkers, and check what must hold; goes with --seed, --json and these")
		flags.Add(s, &t.seeds, "seeds", "play `N` schedules, of --seed and those after it",
			flags.Int(1, 10_000_000))
		flags.Add(s, &t.rounds, "rounds", "`N` rounds of faults in each schedule, of some 50 faults each",
			flags.Int(1, 100))
	})
}

// check returns a usage error if the flags do not make sense together.
func (t *tortured) check(set *pflag.FlagSet, names []string) error {
	var err error
	set.Visit(func(f *pflag.Flag) {
		switch goes := slices.Contains(tortureFlags, f.Name); {
		case t.on && !goes:
			err = flags.Usagef("--%s does not go with --torture", f.Name)
		case !t.on && goes && f.Name != "seed" && f.Name != "json":
			err = flags.Usagef("--%s needs --torture", f.Name)
		}
	})
	if t.on && len(names) > 0 {
		return flags.Usagef("--torture plays no scenario: %s", names[0])
	}
	return err
}

// run plays the seeds. A single one logs its faults on stderr.
func (t *tortured) run(cmd *cobra.Command, o *settings) error {
	if err := o.check(); err != nil {
		return err
	}
	ctx, stdout, stderr := cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	options := torture.Options{Seed: o.seed, Seeds: t.seeds, Rounds: t.rounds}
	if t.seeds == 1 {
		options.Log = func(at, lasts time.Duration, fault string) {
			fmt.Fprintf(stderr, "%8.3f s: %s (%v)\n", at.Seconds(), fault, lasts.Round(time.Millisecond))
		}
	} else {
		b := newBar(stderr, fmt.Sprintf("torture: seeds %d to %d", o.seed, o.seed+uint64(t.seeds)-1))
		defer b.end()
		options.Progress = func(done, all int) { b.at(time.Duration(done), time.Duration(all)) }
	}
	debug.SetGCPercent(1000) // fleets are small, and a third of the time would go to collecting them
	begin := time.Now()
	r := torture.Run(ctx, options)
	if err := t.write(&r, o.json, stdout, time.Since(begin)); err != nil {
		return err
	}
	switch n := len(r.Violations); {
	case ctx.Err() != nil:
		return errInterrupted
	case n > 0:
		return fmt.Errorf("%d violations: see above", n)
	}
	return nil
}

// write writes the figures, or prints them, like those of scenarios.
func (t *tortured) write(
	r *torture.Result, file string, stdout io.Writer, took time.Duration,
) error {
	inJSON := func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetIndent("", " ")
		return e.Encode(r)
	}
	if file == "-" {
		return inJSON(stdout)
	}
	if file != "" {
		if err := toFile(file, inJSON); err != nil {
			return fmt.Errorf("write the figures: %w", err)
		}
	}
	return printTortured(stdout, r, took)
}

func printTortured(w io.Writer, r *torture.Result, took time.Duration) error {
	var b strings.Builder
	fmt.Fprintf(&b, "torture, simulated: seeds %d to %d, %d faults in %.0f virtual hours, %v\n\n",
		r.First, r.First+uint64(max(r.Seeds, 1))-1, r.AllFaults, r.VirtualSeconds/3600,
		took.Round(time.Second/10))
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	var names []string
	for name := range r.Faults {
		names = append(names, name)
	}
	slices.Sort(names)
	for i, name := range names {
		fmt.Fprintf(table, "%s\t%d", name, r.Faults[name])
		if i%3 == 2 || i == len(names)-1 {
			fmt.Fprintln(table)
		} else {
			fmt.Fprint(table, "\t")
		}
	}
	_ = table.Flush()
	fmt.Fprintf(&b, "\nrequests  %d, admitted %d\n", r.Requests, r.Admitted)
	fmt.Fprintf(&b, "strict    %d hits, judged %.1f %% of them, in %d seeds all\n",
		r.StrictHits, 100*float64(r.StrictJudged)/float64(max(r.StrictHits, 1)), r.StrictSeeds)
	fmt.Fprintf(&b, "hits      late %d, refused %d, lost by kills %d, by the store %d, given up %d\n",
		r.Late, r.Refused, r.LostByKills, r.LostByStore, r.GivenUp)
	fmt.Fprintf(&b, "calm      %d hits, worst window %+.1f %%; with slow reports %d hits, %+.1f %%\n",
		r.Calm-r.Slow, 100*r.CalmOver, r.Slow, 100*r.SlowOver)
	fmt.Fprintf(&b, "time      the fleet's stepped %d times with the store's clock, as nobody knew it, "+
		"and moved %d times with it, as one knew it badly\n", r.TimeSteps, r.TimeMoves)
	fmt.Fprintf(&b, "\nviolations: %d\n", len(r.Violations))
	for _, v := range r.Violations {
		fmt.Fprintf(&b, "%v\n  %s\n", v, v.Command)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
