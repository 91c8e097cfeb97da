package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/loadtest/accesslog"
	"github.com/offpath-io/offpath/loadtest/scenario"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

const replaySummary = `
Replays an access log in Common or Combined Log Format, plain or gzipped: every line is a hit of its
client's address, IPv6 ones by their first 64 bits.

Stamps are whole seconds, so hits are spread within theirs by the seed. Without --limit it is done
twice, with 10 and with 30. Silences longer than three windows are cut, by whole windows, which
changes no count; --max-gap says otherwise.`

// replay are the flags of a replay. The others are those of every run.
type replay struct {
	settings
	limit      int // 0: both of the defaults
	window     time.Duration
	buckets    int
	speed      float64 // 0: as fast as ends within liveLength
	maxGap     time.Duration
	realWindow bool
	v4, v6     int // first bits of an address that are one client
	route      scenario.Route
}

// defaultLimits of a replay.
var defaultLimits = []int{10, 30}

// liveLength is how long a live replay takes, if nothing else is asked for.
const liveLength = 50 * time.Second

func newReplay() *replay {
	return &replay{settings: defaultSettings(), window: time.Minute, buckets: 1, maxGap: -1,
		v4: identity.DefaultIPv4Prefix, v6: identity.DefaultIPv6Prefix}
}

func (r *replay) add(cmd *cobra.Command) {
	flags.Topic(cmd, "Rule", func(s *pflag.FlagSet) {
		flags.Add(s, &r.limit, "limit", "limit of `N` hits for each address; 0 for 10, and then 30",
			flags.Int(0, int(window.MaxCount)))
		flags.Add(s, &r.window, "window", "`DURATION` of the window, in the log's time",
			flags.Duration(time.Millisecond, window.MaxLength))
		flags.Add(s, &r.buckets, "buckets", "`N` buckets in the window",
			flags.Int(1, window.MaxBuckets))
	})
	flags.Topic(cmd, "Log", func(s *pflag.FlagSet) {
		flags.Add(s, &r.speed, "speed", "replay `X` times faster than the log; 0 for 1 when "+
			"simulated, and live for what ends within a minute", flags.Float(0, 1e9))
		s.BoolVar(&r.realWindow, "real-window", false,
			"keep the window as it is at a higher speed, instead of making it shorter")
		flags.Add(s, &r.maxGap, "max-gap", "cut longer silences to this `DURATION`; 0 keeps all; "+
			"-1ns for three windows", flags.Duration(-1, scenario.MaxDuration))
		flags.Add(s, &r.v4, "ipv4-prefix", "the first `BITS` of an IPv4 address are one client",
			flags.Int(1, 32))
		flags.Add(s, &r.v6, "ipv6-prefix", "the same `BITS` of an IPv6 address", flags.Int(1, 128))
		flags.Add(s, &r.route, "route", "`HOW` lines are spread over checkers: random, "+
			"round_robin or hash (by address)", parseLogRoute)
	})
	r.addFleet(cmd)
}

func parseLogRoute(text string) (scenario.Route, error) {
	route, err := scenario.ParseRoute(text)
	if err != nil || route.Kind == scenario.Hop || route.Kind == scenario.Skew {
		return route, fmt.Errorf("%q: want random, round_robin or hash", text)
	}
	return route, nil
}

func newReplayLive() *cobra.Command {
	r := newReplay()
	var l liveServers
	cmd := r.command("replay an access log, each client's address a key", liveLength,
		func(cmd *cobra.Command, list []scenario.Scenario) error {
			if err := l.check(); err != nil {
				return err
			}
			return runList(cmd, &r.settings, list, l.run(cmd.ErrOrStderr(), &r.settings))
		})
	l.add(cmd)
	return cmd
}

func newReplaySimulated() *cobra.Command {
	r := newReplay()
	var n network
	cmd := r.command("replay an access log in virtual time", 0,
		func(cmd *cobra.Command, list []scenario.Scenario) error {
			return runList(cmd, &r.settings, list, n.run(&r.settings))
		})
	n.add(cmd)
	return cmd
}

// command returns a command that makes scenarios of a log, and runs them.
func (r *replay) command(
	short string, fit time.Duration, run func(*cobra.Command, []scenario.Scenario) error,
) *cobra.Command {
	cmd := &cobra.Command{
		Use: "replay FILE", Short: short, Long: replaySummary,
		Args: func(_ *cobra.Command, files []string) error {
			if len(files) != 1 {
				return flags.Usagef("%d files: want one access log", len(files))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, files []string) error {
			log, err := readLog(files[0], cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			list, err := r.scenarios(log, fit)
			if err != nil {
				return err
			}
			return run(cmd, list)
		},
	}
	r.add(cmd)
	return cmd
}

func readLog(name string, stderr io.Writer) (accesslog.Log, error) {
	file, err := os.Open(name)
	if err != nil {
		return accesslog.Log{}, flags.Usagef("%v", err)
	}
	defer file.Close()
	log, err := accesslog.Read(file)
	if err != nil {
		return log, fmt.Errorf("%s: %w", name, err)
	}
	if log.RefusedLines > 0 {
		fmt.Fprintf(stderr, "%s: %d of %d lines are no entries, and left out:\n", name, log.RefusedLines, log.Lines)
		for _, refused := range log.Refused {
			fmt.Fprintf(stderr, "  %v\n", refused)
		}
	}
	return log, nil
}

// scenarios makes one scenario for each limit. The replay takes as long as fit, if that is not 0
// and no speed was asked for.
func (r *replay) scenarios(log accesslog.Log, fit time.Duration) ([]scenario.Scenario, error) {
	if r.maxGap < 0 {
		r.maxGap = 3 * r.window
	}
	// Cut by whole windows: what is left keeps its phase against the windows' edges.
	how := accesslog.PlanOptions{Seed: r.seed, MaxGap: r.maxGap, Whole: r.window, Group: r.client, Speed: 1}
	plan, err := log.Plan(how)
	if err != nil {
		return nil, err
	}
	speed, length := r.speed, r.window
	if speed == 0 {
		speed = 1
		if fit > 0 {
			speed = math.Max(float64(plan.Length())/float64(fit), 1)
		}
	}
	if !r.realWindow {
		length, speed = scaled(length, r.buckets, speed)
	}
	how.Speed = speed
	if plan, err = log.Plan(how); err != nil {
		return nil, err
	}
	limits := []int{r.limit}
	if r.limit == 0 {
		limits = defaultLimits
	}
	var list []scenario.Scenario
	for _, limit := range limits {
		sc := r.scenario(plan, limit, length, speed)
		if err := sc.Validate(); err != nil {
			return nil, flags.Usagef("%v", err)
		}
		list = append(list, sc)
	}
	return list, nil
}

// client returns who is limited for a client in the log: his address by its prefix, without port
// and zone, or the host name that was logged instead.
func (r *replay) client(logged string) string {
	addr, ok := identity.ParseAddr(logged)
	if !ok {
		return logged
	}
	return identity.Group(addr, r.v4, r.v6)
}

// scaled makes the window shorter by the speed. Its buckets must be whole milliseconds, so the
// speed gives way a little.
func scaled(length time.Duration, buckets int, speed float64) (time.Duration, float64) {
	if speed == 1 {
		return length, 1
	}
	unit := time.Duration(buckets) * time.Millisecond
	short := max(time.Duration(float64(length)/speed).Round(unit), unit)
	return short, float64(length) / float64(short)
}

func (r *replay) scenario(plan accesslog.Plan, limit int, length time.Duration, speed float64) scenario.Scenario {
	fixed := &scenario.Fixed{Keys: plan.Clients, Route: r.route}
	for _, h := range plan.Hits {
		fixed.Hits = append(fixed.Hits, scenario.FixedHit{At: h.At, Key: h.Client})
	}
	// The first hit is where it was against the edge of its window; with a scaled window, in
	// proportion.
	edge := time.Duration(plan.Start.UnixNano() % int64(r.window))
	phase := time.Duration(float64(edge) * float64(length) / float64(r.window))
	sc := scenario.Scenario{
		Phase: &phase,
		Name:  "replay", Variant: fmt.Sprintf("%d/%s per address", limit, brief(r.window)),
		Description: fmt.Sprintf("an access log of %d hits by %d addresses over %v, of which silences left %v, at %.4g times its speed",
			len(plan.Hits), len(plan.Clients), plan.Span.Round(time.Second), plan.Kept.Round(time.Second), speed),
		Rules: []rules.Rule{{
			Name: "per-address", Key: []string{"ip"}, Limit: int64(limit),
			Window: window.Shape{Length: length, Buckets: r.buckets},
		}},
		Duration: plan.Length() + time.Second, // so that the last hit is in it, even if it is late
		Fixed:    fixed, Speed: speed,
	}
	r.forScenarios().Fleet(&sc)
	return sc
}

// brief writes a duration without the zeros at its end: 1m for 1m0s.
func brief(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
