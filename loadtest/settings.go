package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/loadtest/scenario"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// settings are the flags that run and sim share.
type settings struct {
	set *flags.Set

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

// add adds the flags.
func (c *settings) add(s *flags.Set) {
	c.set = s
	c.addFleet(s)
	flags.Add(s, &c.limit, "limit", "N", "the rule's limit", flags.Int(1, int(window.MaxCount)))
	flags.Add(s, &c.window, "window", "DURATION", "the rule's window", flags.Duration(time.Millisecond, window.MaxLength))
	flags.Add(s, &c.buckets, "buckets", "N", "into how many buckets the window is cut", flags.Int(1, window.MaxBuckets))
	flags.Add(s, &c.algorithm, "algorithm", "WHICH", "how hits are counted: sliding_window, fixed_window, sliding_log, token_bucket or leaky_bucket", parseAlgorithm)
	flags.Add(s, &c.burst, "burst", "N", "how many tokens a token bucket holds, or how many hits a leaky bucket; the limit if not given", flags.Int(1, int(window.MaxCount)))
	flags.Add(s, &c.load, "load", "X", "how many times the limit is offered to each key (of zipf: to all together)", flags.Float(0, 1e6))
	flags.Add(s, &c.keys, "keys", "N", "how many keys", flags.Int(1, scenario.MaxKeys))
	flags.Add(s, &c.duration, "duration", "DURATION", "length of the measured part; the warm-up, two windows as a rule, comes before it",
		flags.Duration(time.Millisecond, scenario.MaxDuration))
	flags.Add(s, &c.noSweep, "no-sweep", "", "leave out the simulations with other flush intervals", flags.Bool)
}

// addFleet adds the flags that are not about the traffic.
func (c *settings) addFleet(s *flags.Set) {
	flags.Add(s, &c.checkers, "checkers", "N", "how many checkers", flags.Int(1, scenario.MaxCheckers))
	flags.Add(s, &c.aggregators, "aggregators", "N", "how many aggregators", flags.Int(1, scenario.MaxAggregators))
	flags.Add(s, &c.flush, "flush", "DURATION", "the checkers' flush interval", flags.Duration(time.Millisecond, time.Minute))
	flags.Add(s, &c.enforcement, "enforcement", "HOW", "how strictly the limits hold: async or strict", parseEnforcement)
	flags.Add(s, &c.acquire, "acquire", "DURATION", "how long a hit under strict enforcement waits for a permit; 0 for not at all",
		flags.Duration(0, time.Minute))
	flags.Add(s, &c.timerOnly, "timer-only", "", "forbid flushes before the interval is over", flags.Bool)
	flags.Add(s, &c.seed, "seed", "N", "decides everything that is left to chance", flags.Uint64)
	flags.Add(s, &c.delay, "delay", "DURATION", "how long each message takes longer, each way", flags.Duration(0, time.Second))
	flags.Add(s, &c.jitter, "jitter", "DURATION", "how much longer than that at the most", flags.Duration(0, time.Second))
	c.output.add(s)
}

// given returns a pointer to a flag's value if it was set.
func given[T any](c *settings, name string, value T) *T {
	if !c.set.Given(name) {
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

func parseEnforcement(text string) (rules.Enforcement, error) {
	for _, e := range []rules.Enforcement{rules.Async, rules.Strict} {
		if text == e.String() {
			return e, nil
		}
	}
	return 0, fmt.Errorf("%q: want async or strict", text)
}

func parseAlgorithm(text string) (rules.Algorithm, error) {
	for _, a := range []rules.Algorithm{rules.SlidingWindow, rules.FixedWindow, rules.SlidingLog, rules.TokenBucket, rules.LeakyBucket} {
		if text == a.String() {
			return a, nil
		}
	}
	return 0, fmt.Errorf("%q: want sliding_window, fixed_window, sliding_log, token_bucket or leaky_bucket", text)
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
	if name == "replay" {
		return nil, flags.Usagef(`replay: want "sim replay FILE" first, and then the flags`)
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

// listScenarios prints what is built in.
func listScenarios(_ context.Context, c call) error {
	s := newFlags("scenarios", "Lists the scenarios that are built in.")
	if done, err := s.Parse(c.args, c.getenv, c.stdout); done || err != nil {
		return err
	}
	for _, name := range scenario.Names() {
		if _, err := fmt.Fprintf(c.stdout, "%-12s %s\n", name, scenario.Describe(name)); err != nil {
			return err
		}
	}
	return nil
}
