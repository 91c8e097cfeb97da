package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/internal/natsconn"
	"github.com/offpath-io/offpath/internal/redisconn"
	"github.com/offpath-io/offpath/loadtest/fleet"
	"github.com/offpath-io/offpath/loadtest/result"
	"github.com/offpath-io/offpath/loadtest/scenario"
	"github.com/offpath-io/offpath/loadtest/sim"
)

const runSummary = `
Puts load on a live fleet: real checkers with connections of their own, NATS and aggregators, all in
this process unless --nats and --redis name servers. A scenario is built in ("loadtest scenarios"
lists them; "all" runs them all) or a YAML file. What a scenario sets itself beats the defaults
below; a flag that is given beats both.`

// liveServers are the flags of a live fleet.
type liveServers struct {
	nats, redis string
	natsIn      natsconn.Access
	redisIn     redisconn.Access
}

func (l *liveServers) add(cmd *cobra.Command) {
	flags.Topic(cmd, "Servers", func(s *pflag.FlagSet) {
		flags.Add(s, &l.nats, "nats", "`URL` of a NATS server; without it, one in this process",
			natsconn.URL)
		flags.Add(s, &l.redis, "redis", "`URL|embedded` of the Redis to count in, or embedded for "+
			"a private redis-server; without it, this process' memory", redisURL)
	})
	flags.Topic(cmd, "Access to NATS", l.natsIn.AddFlags)
	flags.Topic(cmd, "Access to Redis", l.redisIn.AddFlags)
}

// check returns a usage error if the flags do not make sense together.
func (l *liveServers) check() error {
	redis := l.redis
	if redis == fleet.Embedded {
		redis = ""
	}
	if err := l.natsIn.Check(l.nats); err != nil {
		return err
	}
	return l.redisIn.Check(redis)
}

// redisURL takes the URL of a Redis, or what stands for a private one.
func redisURL(text string) (string, error) {
	if text == fleet.Embedded {
		return text, nil
	}
	return redisconn.URL(text)
}

func newRun() *cobra.Command {
	o := defaultSettings()
	var l liveServers
	cmd := &cobra.Command{
		Use: "run [SCENARIO…]", Short: "put load on a live fleet (the default)", Long: runSummary,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := l.check(); err != nil {
				return err
			}
			list, err := o.scenarios(names)
			if err != nil {
				return err
			}
			return runList(cmd, &o, list, l.run(cmd.ErrOrStderr(), &o))
		},
	}
	o.add(cmd)
	l.add(cmd)
	return cmd
}

// runner runs one scenario.
type runner func(ctx context.Context, sc *scenario.Scenario, progress func(done, all time.Duration)) (result.Run, error)

// plan is how scenarios are run, and how they are simulated with other flush intervals.
type plan struct {
	run   runner
	sweep sim.Options
}

// run returns a runner on a live fleet.
func (l *liveServers) run(stderr io.Writer, o *settings) plan {
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	run := func(ctx context.Context, sc *scenario.Scenario, progress func(done, all time.Duration)) (result.Run, error) {
		return fleet.Run(ctx, sc, fleet.Options{
			NATS: l.nats, NATSAccess: l.natsIn, Redis: l.redis, RedisAccess: l.redisIn,
			Delay: o.delay, Jitter: o.jitter, Seed: o.seed, Acquire: o.acquire, Log: log,
			Progress: progress,
		})
	}
	return plan{run, sim.Options{Seed: o.seed, Delay: o.delay + sweepDelay, Jitter: o.jitter, Acquire: o.acquire}}
}

// runList runs scenarios one after the other, and reports on all that were run, whatever happens to
// the next.
func runList(cmd *cobra.Command, o *settings, list []scenario.Scenario, p plan) error {
	if err := o.output.check(); err != nil {
		return err
	}
	ctx, stderr := cmd.Context(), cmd.ErrOrStderr()
	var runs []result.Run
	var failed error
	for i := range list {
		r, err := runOne(ctx, stderr, o, &list[i], p)
		if err == nil || r.Hits > 0 {
			runs = append(runs, r)
		}
		if err != nil {
			failed = fmt.Errorf("scenario %s: %w", list[i].Title(), err)
		}
		if failed != nil || ctx.Err() != nil {
			break
		}
	}
	err := errors.Join(o.output.write(runs, cmd.OutOrStdout(), stderr, o.set.Changed("html")),
		failed)
	for _, r := range runs {
		if !r.Conservation.Holds {
			err = errors.Join(err, errConserved)
			break
		}
	}
	if ctx.Err() != nil {
		return errors.Join(errInterrupted, err)
	}
	return err
}

func runOne(
	ctx context.Context, stderr io.Writer, o *settings, sc *scenario.Scenario, p plan,
) (result.Run, error) {
	bar := newBar(stderr, describe(sc))
	r, err := p.run(ctx, sc, bar.at)
	bar.end()
	if err != nil || o.noSweep || ctx.Err() != nil {
		return r, err
	}
	bar = newBar(stderr, printable(sc.Title())+": simulating other flush intervals")
	p.sweep.Progress = bar.at
	r.Sweep, r.SweepSeconds = sweep(ctx, sc, p.sweep)
	bar.end()
	return r, nil
}

// describe says in a line what is being run.
func describe(sc *scenario.Scenario) string {
	return fmt.Sprintf("%s: %d checkers, %v after %v of warm-up",
		printable(sc.Title()), sc.Checkers, sc.Duration.Round(time.Millisecond), sc.Warmup)
}

// printable leaves out what a terminal would take for a command: a scenario's name is anybody's
// text.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}
