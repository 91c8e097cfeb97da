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
	set *pflag.FlagSet // of the command

	checkers, aggregators, buckets, keys int
	limit, burst                         int
	algorithm                            rules.Algorithm
	load                                 float64
	window, flush, duration              time.Duration
	timerOnly                            bool
	enforcement                          rules.Enforcement
	acquire                              time.Duration
	seed                                 uint64
	delay, jitter                        time.Duration
	noSweep                              bool
	output
}

func defaultSettings() settings {
	return settings{
		checkers: scenario.DefaultCheckers, aggregators: scenario.DefaultAggregators,
		limit: scenario.DefaultLimit, burst: scenario.DefaultLimit, window: scenario.DefaultWindow, buckets: 1,
		load: scenario.DefaultLoad, flush: scenario.DefaultFlush, keys: scenario.DefaultKeys,
		duration: scenario.DefaultDuration, seed: 1, acquire: 20 * time.Millisecond,
		output: output{html: "offpath-loadtest.html"},
	}
}

// add adds the flags to a command.
func (c *settings) add(cmd *cobra.Command) {
	flags.Topic(cmd, "Rule", c.addRule)
	flags.Topic(cmd, "Traffic", c.addTraffic)
	c.addFleet(cmd)
}

func (c *settings) addRule(s *pflag.FlagSet) {
	flags.Add(s, &c.limit, "limit", "limit of `N` hits", flags.Int(1, int(window.MaxCount)))
	flags.Add(s, &c.window, "window", "`DURATION` of the window",
		flags.Duration(time.Millisecond, window.MaxLength))
	flags.Add(s, &c.buckets, "buckets", "`N` buckets in the window",
		flags.Int(1, window.MaxBuckets))
	flags.Add(s, &c.algorithm, "algorithm", "`WHICH` algorithm counts hits: sliding_window, "+
		"fixed_window, sliding_log, token_bucket or leaky_bucket",
		flags.OneOf(rules.SlidingWindow, rules.FixedWindow, rules.SlidingLog, rules.TokenBucket,
			rules.LeakyBucket))
	flags.Add(s, &c.burst, "burst", "a token bucket holds `N` tokens, a leaky bucket N hits; by "+
		"default as many as the limit", flags.Int(1, int(window.MaxCount)))
}

func (c *settings) addTraffic(s *pflag.FlagSet) {
	flags.Add(s, &c.load, "load", "offer each key `X` times the limit (zipf: all together)",
		flags.Float(0, 1e6))
	flags.Add(s, &c.keys, "keys", "`N` keys", flags.Int(1, scenario.MaxKeys))
	flags.Add(s, &c.duration, "duration", "`DURATION` of the measured part; the warm-up before it "+
		"is two windows as a rule", flags.Duration(time.Millisecond, scenario.MaxDuration))
}

// addFleet adds the flags that are not about the traffic.
func (c *settings) addFleet(cmd *cobra.Command) {
	c.set = cmd.Flags()
	flags.Topic(cmd, "Fleet", func(s *pflag.FlagSet) {
		flags.Add(s, &c.checkers, "checkers", "`N` checkers", flags.Int(1, scenario.MaxCheckers))
		flags.Add(s, &c.aggregators, "aggregators", "`N` aggregators",
			flags.Int(1, scenario.MaxAggregators))
		flags.Add(s, &c.flush, "flush", "`INTERVAL` between two flushes of a checker",
			flags.Duration(time.Millisecond, time.Minute))
		flags.Add(s, &c.enforcement, "enforcement",
			"`HOW` strictly the limits hold: async or strict",
			flags.OneOf(rules.Async, rules.Strict))
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

// given returns a pointer to a flag's value if it was set.
func given[T any](c *settings, name string, value T) *T {
	if !c.set.Changed(name) {
		return nil
	}
	return &value
}

// forScenarios returns what the flags say, and nothing of what they do not.
func (c *settings) forScenarios() scenario.Settings {
	return scenario.Settings{
		Checkers: given(c, "checkers", c.checkers), Aggregators: given(c, "aggregators", c.aggregators),
		Limit: given(c, "limit", int64(c.limit)), Window: given(c, "window", c.window),
		Algorithm: given(c, "algorithm", c.algorithm), Burst: given(c, "burst", int64(c.burst)),
		Buckets: given(c, "buckets", c.buckets), Load: given(c, "load", c.load),
		Flush: given(c, "flush", c.flush), TimerOnly: given(c, "timer-only", c.timerOnly),
		Keys: given(c, "keys", c.keys), Duration: given(c, "duration", c.duration),
		Enforcement: given(c, "enforcement", c.enforcement),
	}
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
