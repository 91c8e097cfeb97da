package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/loadtest/result"
	"github.com/offpath-io/offpath/loadtest/scenario"
	"github.com/offpath-io/offpath/loadtest/sim"
)

const simSummary = `
Simulates a fleet in virtual time: the same code decides, reports and counts, on a network and with
clocks as bad as you like. The same seed gives the same figures.`

// network are the flags of a simulation alone.
type network struct {
	loss, repeat float64
	partitions   partitions
	skew         time.Duration
	noForecast   bool
	quietFor     time.Duration
}

func (n *network) add(cmd *cobra.Command) {
	flags.Topic(cmd, "Network and chance", func(s *pflag.FlagSet) {
		flags.Add(s, &n.loss, "loss", "`SHARE` of messages that vanish, 0 to 1", flags.Float(0, 1))
		flags.Add(s, &n.repeat, "repeat", "`SHARE` of messages that arrive twice, 0 to 1",
			flags.Float(0, 1))
		flags.Add(s, &n.skew, "skew",
			"each checker's clock is off by at most this `DURATION`, either way",
			flags.Duration(0, 24*time.Hour))
		flags.Add(s, &n.partitions, "partition", "cut checkers off: `N@FROM+FOR`, such as 2@5s+3s "+
			"for the first 2 from 5 s after the warm-up for 3 s; several with commas between",
			readPartitions)
	})
	flags.Topic(cmd, "Fleet", func(s *pflag.FlagSet) {
		s.BoolVar(&n.noForecast, "no-forecast", false,
			"let checkers decide only by what they are told")
		flags.Add(s, &n.quietFor, "quiet-for", "longest `DURATION` until hits of keys far below "+
			"their limit are reported; 0 for the checkers' default", flags.Duration(0, time.Hour))
	})
}

// partitions are as a flag has them.
type partitions []sim.Partition

// String returns "", the default.
func (partitions) String() string { return "" }

func readPartitions(text string) (partitions, error) {
	var list partitions
	for part := range strings.SplitSeq(text, ",") {
		count, when, ok := strings.Cut(strings.TrimSpace(part), "@")
		from, length, ok2 := strings.Cut(when, "+")
		n, err1 := strconv.Atoi(count)
		f, err2 := time.ParseDuration(from)
		l, err3 := time.ParseDuration(length)
		if !ok || !ok2 || errors.Join(err1, err2, err3) != nil || n < 1 || f < 0 || l <= 0 {
			return nil, fmt.Errorf("%q: want checkers@from+for, such as 2@5s+3s", part)
		}
		list = append(list, sim.Partition{Checkers: n, From: f, For: l})
	}
	return list, nil
}

func newSim() *cobra.Command {
	o := defaultSettings()
	var n network
	var t tortured
	cmd := &cobra.Command{
		Use: "sim [SCENARIO…]", Long: simSummary, Args: cobra.ArbitraryArgs,
		Short: "the same in virtual time: large fleets, bad networks, wrong clocks",
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := t.check(cmd.Flags(), names); err != nil {
				return err
			}
			if t.on {
				return t.run(cmd, &o)
			}
			list, err := o.scenarios(names)
			if err != nil {
				return err
			}
			return runList(cmd, &o, list, n.run(&o))
		},
	}
	o.add(cmd)
	n.add(cmd)
	t.add(cmd)
	cmd.AddCommand(newReplaySimulated())
	return cmd
}

// run returns a runner in virtual time.
func (n *network) run(o *settings) plan {
	options := sim.Options{
		Seed: o.seed, Delay: o.delay, Jitter: o.jitter, Loss: n.loss, Repeat: n.repeat,
		Partitions: n.partitions, Skew: n.skew, NoForecast: n.noForecast, QuietFor: n.quietFor, Acquire: o.acquire,
	}
	run := func(ctx context.Context, sc *scenario.Scenario, progress func(done, all time.Duration)) (result.Run, error) {
		options := options
		options.Progress = progress
		return sim.Run(ctx, sc, options)
	}
	return plan{run, options}
}
