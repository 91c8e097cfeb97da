package scenario

import (
	"cmp"
	"strconv"
	"time"

	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// Settings are what the command line says of a scenario. What is nil is the scenario's own to
// choose.
type Settings struct {
	Checkers, Aggregators *int
	Limit                 *int64
	Window                *time.Duration
	Buckets               *int
	Algorithm             *rules.Algorithm
	Burst                 *int64
	Load                  *float64
	Flush                 *time.Duration
	TimerOnly             *bool
	Keys                  *int
	Duration              *time.Duration
	Enforcement           *rules.Enforcement
	Cost                  *Cost
}

func or[T any](given *T, otherwise T) T {
	if given != nil {
		return *given
	}
	return otherwise
}

// Fleet sets what the settings say of a scenario's fleet, and defaults where neither says
// something.
func (s Settings) Fleet(sc *Scenario) {
	sc.Checkers = or(s.Checkers, cmp.Or(sc.Checkers, DefaultCheckers))
	sc.Aggregators = or(s.Aggregators, cmp.Or(sc.Aggregators, DefaultAggregators))
	sc.Flush = or(s.Flush, cmp.Or(sc.Flush, DefaultFlush))
	sc.TimerOnly = or(s.TimerOnly, sc.TimerOnly)
	if s.Enforcement != nil {
		for i := range sc.Rules {
			sc.Rules[i].Enforcement, sc.Rules[i].OnOutage = *s.Enforcement, rules.DefaultOnOutage
		}
	}
}

// Defaults of what neither the command line nor the scenario says.
const (
	DefaultCheckers    = 8
	DefaultAggregators = 2
	DefaultLimit       = 1000
	DefaultWindow      = time.Second
	DefaultLoad        = 5
	DefaultFlush       = 50 * time.Millisecond
	DefaultKeys        = 1
	DefaultDuration    = 20 * time.Second
)

// base returns a scenario with one rule, and everything from the settings but its streams and its
// fleet. Limit and length are the scenario's defaults.
func (s Settings) base(name, description string, limit int64, length time.Duration) Scenario {
	length = or(s.Window, length)
	r := rules.Rule{
		Name: name, Key: []string{"key"}, Limit: or(s.Limit, limit),
		Window: window.Shape{Length: length, Buckets: or(s.Buckets, 1)},
	}
	s.reckon(&r)
	return Scenario{
		Name: name, Description: description, Rules: []rules.Rule{r},
		Warmup: 2 * length, Duration: or(s.Duration, max(DefaultDuration, 2*length)),
	}
}

// reckon gives a rule the algorithm that was asked for.
func (s Settings) reckon(r *rules.Rule) {
	if s.Algorithm == nil || *s.Algorithm == rules.SlidingWindow {
		return
	}
	r.Algorithm, r.Burst = *s.Algorithm, or(s.Burst, 0)
	r.Window.Fixed = r.Algorithm == rules.FixedWindow
	r.Window.Kind = map[rules.Algorithm]window.Kind{
		rules.SlidingLog: window.Log, rules.TokenBucket: window.Token, rules.LeakyBucket: window.Leaky,
	}[r.Algorithm]
	if s.Buckets == nil {
		r.Window.Buckets = window.DefaultBuckets(r.Window.Kind, r.Window.Length)
	}
	if r.Burst == 0 && r.Window.Drains() {
		r.Burst = r.Limit
	}
}

// rateOf returns hits per second for a load in times the limit, for so many keys together.
func rateOf(r rules.Rule, load float64, keys int) float64 {
	return load * float64(r.Limit) / r.Window.Length.Seconds() * float64(keys)
}

// always is a steady rate.
func always(rate float64) []Phase {
	return []Phase{{Least: time.Hour, Most: time.Hour, From: rate, To: rate}}
}

// still is a phase of a given length and rate.
func still(length time.Duration, rate float64) Phase {
	return Phase{Least: length, Most: length, From: rate, To: rate}
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}
