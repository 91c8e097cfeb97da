package scenario

import (
	"time"

	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// builtin is a scenario that comes with the program, as one run or several.
type builtin struct {
	name, description string
	make              func(b builtin, s Settings) []Scenario
	// refuses says which settings make no sense for it, and why.
	refuses func(s Settings) string
}

var builtins = []builtin{
	{"steady", "hits at a steady rate, each to any checker", steady, nil},
	{"surge", "from half the limit's rate to 15 times it (or --load), all at once, and back, again and again", surge, nil},
	{"burst", "50 ms at 50 times the limit's rate (or --load), then 450 ms of nothing, with a longer rest every eighth time, so that the phase moves", burst, nil},
	{"ramp", "the rate grows from nothing to the full load", ramp, nil},
	{"zipf", "a million keys (or --keys), their popularity by Zipf's law with exponent 1.1", zipfian, nil},
	{"hop", "all hits of a key go to one checker, and every 200 ms to the next", hop, nil},
	{"skew", "one checker gets 90 % of the hits", skew, nil},
	{"small", "1,000 callers (or --keys) with 10 hits a minute each, who ask for twice that (or --load)", small, nil},
	{"keywalk", "a new key with each hit, beside the normal traffic of a steady key", keywalk, nil},
	{"mixed", "four rules and five kinds of traffic at once", mixed, isMixed},
	{"published-a", "a situation that a project published: a fixed window of 1000 a second, saturated for minutes", publishedA, isFixed},
	{"published-b", "a situation that a project published: 2 nodes, 500 a second, 800 hits a second, reports every 200 ms", publishedB, nil},
}

// Names returns the names of the scenarios that are built in, in their order.
func Names() []string {
	var names []string
	for _, b := range builtins {
		names = append(names, b.name)
	}
	return names
}

// Describe returns what a built-in scenario is.
func Describe(name string) string {
	for _, b := range builtins {
		if b.name == name {
			return b.description
		}
	}
	return ""
}

// Builtin returns the scenario of this name, which may be several runs; ok is false if there is
// none.
func Builtin(name string, s Settings) (list []Scenario, ok bool) {
	for _, b := range builtins {
		if b.name == name {
			list = b.make(b, s)
			for i := range list {
				s.Fleet(&list[i])
				for k := range list[i].Streams {
					list[i].Streams[k].Cost = or(s.Cost, Cost{})
				}
			}
			return list, true
		}
	}
	return nil, false
}

// Refuses says why settings make no sense for a built-in scenario; "" if they do.
func Refuses(name string, s Settings) string {
	if a := or(s.Algorithm, rules.SlidingWindow); s.Burst != nil && a != rules.TokenBucket && a != rules.LeakyBucket {
		return "a burst is for a token_bucket or a leaky_bucket"
	}
	for _, b := range builtins {
		if b.name == name && b.refuses != nil {
			return b.refuses(s)
		}
	}
	return ""
}

func isMixed(s Settings) string {
	if s.Limit != nil || s.Window != nil || s.Buckets != nil || s.Keys != nil || s.Algorithm != nil || s.Burst != nil {
		return "it has limits, windows, buckets, algorithms and keys of its own"
	}
	return ""
}

func isFixed(s Settings) string {
	if s.Buckets != nil {
		return "a fixed window has no buckets"
	}
	if s.Algorithm != nil {
		return "it is about fixed windows"
	}
	return ""
}

// one is a scenario of one rule and one stream. Its phases are made of the rate that stands for
// load 1 with all keys.
func (b builtin) one(s Settings, load float64, route Route, phases func(unit, load float64) []Phase) []Scenario {
	sc := s.base(b.name, b.description, DefaultLimit, DefaultWindow)
	keys := or(s.Keys, DefaultKeys)
	sc.Load = or(s.Load, load)
	sc.Streams = []Stream{{
		Keys: keys, Route: route, Phases: phases(rateOf(sc.Rules[0], 1, keys), sc.Load),
	}}
	return []Scenario{sc}
}

func flat(unit, load float64) []Phase { return always(unit * load) }

func steady(b builtin, s Settings) []Scenario { return b.one(s, DefaultLoad, Route{}, flat) }

func hop(b builtin, s Settings) []Scenario {
	return b.one(s, DefaultLoad, Route{Kind: Hop, Every: 200 * time.Millisecond}, flat)
}

func skew(b builtin, s Settings) []Scenario {
	return b.one(s, DefaultLoad, Route{Kind: Skew, Share: 0.9}, flat)
}

func surge(b builtin, s Settings) []Scenario {
	length := or(s.Window, DefaultWindow)
	return b.one(s, 15, Route{}, func(unit, load float64) []Phase {
		calm := still(2*length, unit/2)
		calm.Most += length // so that the step comes at any phase of the window
		return []Phase{calm, still(2*length, unit*load)}
	})
}

func burst(b builtin, s Settings) []Scenario {
	length := or(s.Window, DefaultWindow)
	return b.one(s, 50, Route{}, func(unit, load float64) []Phase {
		var phases []Phase
		for range 8 {
			phases = append(phases, still(50*time.Millisecond, unit*load), still(450*time.Millisecond, 0))
		}
		phases[len(phases)-1].Most += length
		return phases
	})
}

func ramp(b builtin, s Settings) []Scenario {
	list := b.one(s, DefaultLoad, Route{}, flat)
	sc := &list[0]
	length := sc.Warmup + sc.Duration
	full := sc.Streams[0].Phases[0].To
	sc.Streams[0].Phases = []Phase{{Least: length, Most: length, To: full}}
	return list
}

func zipfian(b builtin, s Settings) []Scenario {
	sc := s.base(b.name, b.description, 100, DefaultWindow)
	sc.Streams = []Stream{{ // the load is of all keys together, so sc.Load, that of each, says nothing
		Keys: or(s.Keys, 1_000_000), Zipf: 1.1, Phases: always(rateOf(sc.Rules[0], or(s.Load, 200), 1)),
	}}
	return []Scenario{sc}
}

func small(b builtin, s Settings) []Scenario {
	sc := s.base(b.name, b.description, 10, time.Minute)
	sc.Load = or(s.Load, 2)
	sc.Warmup = sc.Rules[0].Window.Length
	keys := or(s.Keys, 1000)
	sc.Streams = []Stream{{Keys: keys, Phases: always(rateOf(sc.Rules[0], sc.Load, keys))}}
	return []Scenario{sc}
}

func keywalk(b builtin, s Settings) []Scenario {
	list := steady(b, s)
	sc := &list[0]
	rate := sc.Streams[0].Phases[0].To
	sc.Streams = append(sc.Streams, Stream{Phases: always(rate)})
	return list
}

// mixed takes no limit, window or number of keys: it is about their being different.
func mixed(b builtin, s Settings) []Scenario {
	s.Limit, s.Window, s.Buckets, s.Algorithm, s.Burst = nil, nil, nil, nil, nil
	sc := s.base(b.name, b.description, 1000, time.Second)
	sc.Warmup = 20 * time.Second // two of the longest window
	scale := or(s.Load, 1)
	rule := func(name string, limit int64, length time.Duration, buckets int, fixed bool) rules.Rule {
		return rules.Rule{
			Name: name, Key: []string{"key"}, Limit: limit,
			Window: window.Shape{Length: length, Buckets: buckets, Fixed: fixed},
		}
	}
	sc.Rules = []rules.Rule{
		rule("whole-service", 1000, time.Second, 1, false),
		rule("per-user", 50, time.Second, 1, false),
		rule("per-client", 100, 10*time.Second, 10, false),
		rule("logins", 10, time.Second, 1, true),
	}
	sc.Streams = []Stream{
		{Rule: 0, Keys: 1, Phases: always(scale * rateOf(sc.Rules[0], 3, 1))},
		{Rule: 1, Keys: 10_000, Zipf: 1.1, Phases: always(scale * 3000)},
		{Rule: 2, Keys: 20, Route: Route{Kind: Hash}, Phases: always(scale * rateOf(sc.Rules[2], 2, 20))},
		{Rule: 3, Keys: 50, Route: Route{Kind: Hop, Every: 200 * time.Millisecond}, Phases: always(scale * rateOf(sc.Rules[3], 2, 50))},
		{Rule: 1, Phases: always(scale * 500)},
	}
	return []Scenario{sc}
}

// publishedA: the number of replicas was not published, so two are tried; and the flushes that come
// early when a key is near its limit are forbidden once.
func publishedA(b builtin, s Settings) []Scenario {
	replicas, flushes, timerOnly := []int{2, 4}, []time.Duration{50 * time.Millisecond, 10 * time.Millisecond}, []bool{false, true}
	if s.Checkers != nil {
		replicas = []int{*s.Checkers}
	}
	if s.Flush != nil {
		flushes = []time.Duration{*s.Flush}
	}
	if s.TimerOnly != nil {
		timerOnly = []bool{*s.TimerOnly}
	}
	var list []Scenario
	for _, n := range replicas {
		for i, flush := range flushes {
			for _, timer := range timerOnly {
				if i == 0 || !timer || len(timerOnly) == 1 { // once is enough
					list = append(list, saturated(b, s, n, flush, timer))
				}
			}
		}
	}
	return list
}

func saturated(b builtin, s Settings, replicas int, flush time.Duration, timerOnly bool) Scenario {
	sc := steady(b, s)[0]
	sc.Rules[0].Window.Fixed, sc.Rules[0].Window.Buckets = true, 1
	sc.Duration = or(s.Duration, 2*time.Minute)
	sc.Checkers, sc.Flush, sc.TimerOnly = replicas, flush, timerOnly
	sc.Variant = plural(replicas, "replica") + ", " + flush.String()
	if timerOnly {
		sc.Variant += ", timer only"
	}
	return sc
}

func publishedB(b builtin, s Settings) []Scenario {
	var list []Scenario
	both := []bool{false, true}
	if s.TimerOnly != nil {
		both = []bool{*s.TimerOnly}
	}
	for _, timerOnly := range both {
		sc := s.base(b.name, b.description, 500, time.Second)
		sc.Checkers, sc.Flush, sc.TimerOnly = 2, 200*time.Millisecond, timerOnly
		sc.Load = or(s.Load, 1.6)
		keys := or(s.Keys, 1)
		sc.Streams = []Stream{{Keys: keys, Phases: always(rateOf(sc.Rules[0], sc.Load, keys))}}
		sc.Variant = "early flushes"
		if timerOnly {
			sc.Variant = "timer only"
		}
		list = append(list, sc)
	}
	return list
}
