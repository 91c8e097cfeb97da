package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/loadtest/scenario"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// settings are the flags that run and sim share.
type settings struct {
	scenario.Settings
	set *pflag.FlagSet // of the command

	acquire, delay, jitter time.Duration
	seed                   uint64
	timerOnly, noSweep     bool
	output
}

func defaultSettings() settings {
	return settings{seed: 1, acquire: 20 * time.Millisecond, output: output{html: "offpath-loadtest.html"}}
}

// optional adds a flag that leaves *p nil unless it is given. Help shows the default.
func optional[T any](
	s *pflag.FlagSet, p **T, otherwise T, name, usage string, parse func(string) (T, error),
) {
	flags.Add(s, &otherwise, name, usage, func(text string) (T, error) {
		v, err := parse(text)
		*p = &v
		return v, err
	})
}

// hits takes a limit or a burst.
func hits(text string) (int64, error) {
	n, err := flags.Int(1, int(window.MaxCount))(text)
	return int64(n), err
}

// add adds the flags to a command.
func (c *settings) add(cmd *cobra.Command) {
	flags.Topic(cmd, "Rule", c.addRule)
	flags.Topic(cmd, "Traffic", c.addTraffic)
	c.addFleet(cmd)
}

func (c *settings) addRule(s *pflag.FlagSet) {
	optional(s, &c.Limit, scenario.DefaultLimit, "limit", "limit of `N` hits", hits)
	optional(s, &c.Window, scenario.DefaultWindow, "window", "`DURATION` of the window",
		flags.Duration(time.Millisecond, window.MaxLength))
	optional(s, &c.Buckets, 1, "buckets", "`N` buckets in the window", flags.Int(1, window.MaxBuckets))
	optional(s, &c.Algorithm, rules.SlidingWindow, "algorithm", "`WHICH` algorithm counts hits: "+
		"sliding_window, fixed_window, sliding_log, token_bucket or leaky_bucket",
		flags.OneOf(rules.SlidingWindow, rules.FixedWindow, rules.SlidingLog, rules.TokenBucket,
			rules.LeakyBucket))
	optional(s, &c.Burst, scenario.DefaultLimit, "burst", "a token bucket holds `N` tokens, a leaky "+
		"bucket N hits; by default as many as the limit", hits)
}

func (c *settings) addTraffic(s *pflag.FlagSet) {
	optional(s, &c.Load, scenario.DefaultLoad, "load",
		"offer each key `X` times the limit (zipf: all together)", flags.Float(0, 1e6))
	optional(s, &c.Keys, scenario.DefaultKeys, "keys", "`N` keys", flags.Int(1, scenario.MaxKeys))
	optional(s, &c.Cost, scenario.Cost{Least: 1, Most: 1}, "cost",
		"a request costs `N` hits, or any number of a range such as 1..50", scenario.ParseCost)
	optional(s, &c.Duration, scenario.DefaultDuration, "duration", "`DURATION` of the measured part; "+
		"the warm-up before it is two windows as a rule",
		flags.Duration(time.Millisecond, scenario.MaxDuration))
}

// addFleet adds the flags that are not about the traffic.
func (c *settings) addFleet(cmd *cobra.Command) {
	c.set = cmd.Flags()
	flags.Topic(cmd, "Fleet", func(s *pflag.FlagSet) {
		optional(s, &c.Checkers, scenario.DefaultCheckers, "checkers", "`N` checkers",
			flags.Int(1, scenario.MaxCheckers))
		optional(s, &c.Aggregators, scenario.DefaultAggregators, "aggregators", "`N` aggregators",
			flags.Int(1, scenario.MaxAggregators))
		optional(s, &c.Flush, scenario.DefaultFlush, "flush",
			"`INTERVAL` between two flushes of a checker", flags.Duration(time.Millisecond, time.Minute))
		optional(s, &c.Enforcement, rules.Async, "enforcement",
			"`HOW` strictly the limits hold: async or strict", flags.OneOf(rules.Async, rules.Strict))
		flags.Add(s, &c.acquire, "acquire", "longest `DURATION` that a hit under strict "+
			"enforcement waits for a permit; 0 for no wait", flags.Duration(0, time.Minute))
		s.BoolVar(&c.timerOnly, "timer-only", false, "forbid flushes before the interval is over")
	})
	flags.Topic(cmd, "Network and chance", func(s *pflag.FlagSet) {
		flags.Add(s, &c.seed, "seed", "`N` decides everything that is left to chance", flags.Uint64)
		flags.Add(s, &c.delay, "delay", "extra `DURATION` of each message, each way",
			flags.Duration(0, time.Second))
		flags.Add(s, &c.jitter, "jitter", "at most this `DURATION` on top of it, by chance",
			flags.Duration(0, time.Second))
	})
	flags.Topic(cmd, "Output", func(s *pflag.FlagSet) {
		c.output.add(s)
		s.BoolVar(&c.noSweep, "no-sweep", false,
			"leave out the simulations with other flush intervals")
	})
}

// forScenarios returns what the flags say, and nothing of what they do not.
func (c *settings) forScenarios() scenario.Settings {
	if c.set.Changed("timer-only") {
		c.TimerOnly = &c.timerOnly
	}
	return c.Settings
}

// scenarios returns the scenarios of these names or files; steady if there are none.
func (c *settings) scenarios(names []string) ([]scenario.Scenario, error) {
	if len(names) == 0 {
		names = []string{"steady"}
	}
	if slices.Equal(names, []string{"all"}) {
		names = scenario.Names()
	}
	var all []scenario.Scenario
	for _, name := range names {
		list, err := c.scenario(name)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	for i := range all {
		if err := all[i].Validate(); err != nil {
			return nil, flags.Usagef("scenario %s: %v", all[i].Title(), err)
		}
	}
	return all, nil
}

func (c *settings) scenario(name string) ([]scenario.Scenario, error) {
	list, ok := scenario.Builtin(name, c.forScenarios())
	if why := scenario.Refuses(name, c.forScenarios()); why != "" {
		return nil, flags.Usagef("scenario %s: a flag does not apply: %s", name, why)
	}
	if ok {
		return list, nil
	}
	if !strings.ContainsAny(name, "./") {
		return nil, flags.Usagef("scenario %q: want a file, all, or one of %s", name, strings.Join(scenario.Names(), ", "))
	}
	sc, err := scenario.Load(name, c.forScenarios())
	if errors.Is(err, os.ErrNotExist) {
		return nil, flags.Usagef("scenario %q: no such file; those built in are %s", name, strings.Join(scenario.Names(), ", "))
	}
	if err != nil {
		return nil, &flags.UsageError{Reason: err.Error()}
	}
	return []scenario.Scenario{sc}, nil
}

func newScenarios() *cobra.Command {
	return &cobra.Command{
		Use: "scenarios", Short: "list the scenarios that are built in", Args: flags.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, name := range scenario.Names() {
				line := fmt.Sprintf("%-12s %s\n", name, scenario.Describe(name))
				if _, err := io.WriteString(cmd.OutOrStdout(), line); err != nil {
					return err
				}
			}
			return nil
		},
	}
}
