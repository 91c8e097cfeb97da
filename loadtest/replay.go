package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/loadtest/accesslog"
	"github.com/offpath-io/offpath/loadtest/scenario"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

const replaySummary = `Replays an access log in Common or Combined Log Format, plain or gzipped: every line is a hit of its client's address,
IPv6 ones by their first 64 bits.
Stamps are whole seconds, so hits are spread within theirs by the seed. Without --limit it is done twice, with 10 and with 30.
Silences longer than three windows are cut, by whole windows, which no count notices; --max-gap says otherwise.`

// replay are the flags of a replay. The others are those of every run.
type replay struct {
	settings
	file       string
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

func (r *replay) add(s *flags.Set) {
	r.set = s
	flags.Add(s, &r.limit, "limit", "N", "the limit of each address; 0 for 10, and then 30", flags.Int(0, int(window.MaxCount)))
	flags.Add(s, &r.window, "window", "DURATION", "its window, in the log's time", flags.Duration(time.Millisecond, window.MaxLength))
	flags.Add(s, &r.buckets, "buckets", "N", "into how many buckets the window is cut", flags.Int(1, window.MaxBuckets))
	flags.Add(s, &r.speed, "speed", "X", "how many times faster than the log; 0 for what fits: 1 simulated, live what ends within a minute", flags.Float(0, 1e9))
	flags.Add(s, &r.realWindow, "real-window", "", "keep the window as it is at a higher speed, instead of making it shorter", flags.Bool)
	flags.Add(s, &r.maxGap, "max-gap", "DURATION", "cut longer silences to this; 0 keeps all; -1ns for three windows", flags.Duration(-1, scenario.MaxDuration))
	flags.Add(s, &r.v4, "ipv4-prefix", "BITS", "how many first bits of an IPv4 address are one client", flags.Int(1, 32))
	flags.Add(s, &r.v6, "ipv6-prefix", "BITS", "the same of an IPv6 address", flags.Int(1, 128))
	flags.Add(s, &r.route, "route", "HOW", "which checker a line goes to: random, round_robin or hash (by address)", parseLogRoute)
	flags.Add(s, &r.noSweep, "no-sweep", "", "leave out the simulations with other flush intervals", flags.Bool)
	r.addFleet(s)
}

func parseLogRoute(text string) (scenario.Route, error) {
	route, err := scenario.ParseRoute(text)
	if err != nil || route.Kind == scenario.Hop || route.Kind == scenario.Skew {
		return route, fmt.Errorf("%q: want random, round_robin or hash", text)
	}
	return route, nil
}

func replayLive(ctx context.Context, c call) error {
	r := newReplay()
	var l liveServers
	s := newFlags("replay", replaySummary)
	r.add(s)
	l.add(s)
	list, err := r.parse(s, c, liveLength)
	if err == nil && list != nil {
		err = l.check()
	}
	if list == nil || err != nil {
		return err
	}
	return runList(ctx, c, &r.settings, list, l.run(c, &r.settings))
}

func replaySimulated(ctx context.Context, c call) error {
	r := newReplay()
	var n network
	s := newFlags("sim replay", replaySummary)
	r.add(s)
	n.add(s)
	list, err := r.parse(s, c, 0)
	if list == nil || err != nil {
		return err
	}
	return runList(ctx, c, &r.settings, list, n.run(&r.settings))
}

// parse reads the flags and the log. The list is nil if there is nothing to do.
func (r *replay) parse(s *flags.Set, c call, fit time.Duration) ([]scenario.Scenario, error) {
	var files []string
	s.Arguments(&files, "FILE")
	if done, err := s.Parse(c.args, c.getenv, c.stdout); done || err != nil {
		return nil, err
	}
	if len(files) != 1 {
		return nil, flags.Usagef("%d files: want one access log", len(files))
	}
	r.file = files[0]
	log, err := readLog(r.file, c.stderr)
	if err != nil {
		return nil, err
	}
	return r.scenarios(log, fit)
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

// scenarios makes one scenario for each limit. The replay takes as long as fit, if that is not 0 and
// no speed was asked for.
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

// client returns who is limited for a client in the log: his address by its prefix, without port and zone, or the host
// name that was logged instead.
func (r *replay) client(logged string) string {
	addr, ok := identity.ParseAddr(logged)
	if !ok {
		return logged
	}
	return identity.Group(addr, r.v4, r.v6)
}

// scaled makes the window shorter by the speed. Its buckets must be whole milliseconds, so the speed
// gives way a little.
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
	// The first hit is where it was against the edge of its window; with a scaled window, in proportion.
	edge := time.Duration(plan.Start.UnixNano() % int64(r.window))
	phase := time.Duration(float64(edge) * float64(length) / float64(r.window))
	return scenario.Scenario{
		Phase: &phase,
		Name:  "replay", Variant: fmt.Sprintf("%d/%s per address", limit, brief(r.window)),
		Description: fmt.Sprintf("an access log of %d hits by %d addresses over %v, of which silences left %v, at %.4g times its speed",
			len(plan.Hits), len(plan.Clients), plan.Span.Round(time.Second), plan.Kept.Round(time.Second), speed),
		Rules: []rules.Rule{{
			Name: "per-address", Key: []string{"ip"}, Limit: int64(limit), Enforcement: r.enforcement,
			Window: window.Shape{Length: length, Buckets: r.buckets},
		}},
		Duration: plan.Length() + time.Second, // so that the last hit is in it, even if it is late
		Checkers: r.checkers, Aggregators: r.aggregators, Flush: r.flush, TimerOnly: r.timerOnly,
		Fixed: fixed, Speed: speed,
	}
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
