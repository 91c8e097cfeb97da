package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/loadtest/result"
	"github.com/offpath-io/offpath/loadtest/scenario"
	"github.com/offpath-io/offpath/loadtest/sim"
)

const simSummary = `Simulates a fleet in virtual time: the same code for deciding, reporting, folding and counting, on a network and
with clocks as bad as you like. The same seed gives the same figures. "sim replay FILE" replays an access log.`

// network are the flags of a simulation alone.
type network struct {
	loss, repeat float64
	partitions   []sim.Partition
	skew         time.Duration
	noForecast   bool
	quietFor     time.Duration
}

func (n *network) add(s *flags.Set) {
	flags.Add(s, &n.loss, "loss", "SHARE", "the share of messages that vanish, 0 to 1", flags.Float(0, 1))
	flags.Add(s, &n.repeat, "repeat", "SHARE", "the share of messages that arrive twice, 0 to 1", flags.Float(0, 1))
	flags.Add(s, &n.skew, "skew", "DURATION", "how far each checker's clock is off at the most, either way", flags.Duration(0, 24*time.Hour))
	flags.Add(s, &n.noForecast, "no-forecast", "", "let checkers decide by what they are told alone", flags.Bool)
	flags.Add(s, &n.quietFor, "quiet-for", "DURATION", "how long hits of keys far below their limit wait at the most; 0 for the checkers' default", flags.Duration(0, time.Hour))
	var text string
	flags.Add(s, &text, "partition", "N@FROM+FOR", "cut the first N checkers off, such as 2@5s+3s, from 5 s after the warm-up for 3 s; several with commas",
		func(text string) (string, error) {
			var err error
			n.partitions, err = readPartitions(text)
			return text, err
		})
}

func readPartitions(text string) ([]sim.Partition, error) {
	var list []sim.Partition
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

func runSimulated(ctx context.Context, c call) error {
	if len(c.args) > 0 && c.args[0] == "replay" {
		c.args = c.args[1:]
		return replaySimulated(ctx, c)
	}
	o := defaultSettings()
	var n network
	var names []string
	s := newFlags("sim", simSummary)
	s.Arguments(&names, "[SCENARIO…]")
	o.add(s)
	n.add(s)
	if done, err := s.Parse(c.args, c.getenv, c.stdout); done || err != nil {
		return err
	}
	list, err := o.scenarios(names)
	if err != nil {
		return err
	}
	return runList(ctx, c, &o, list, n.run(&o))
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
