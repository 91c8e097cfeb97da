// Package scenario says what a load test does: which rules there are, and which hits come when, for
// which key, at which checker.
//
// A [Scenario] is a description. [New] turns it into [Traffic], a sequence of hits in order of time
// that depends on nothing but the scenario and a seed, so that a live fleet and a simulation can be
// given the very same. Scenarios are built in ([Builtin]) or read from YAML ([Load]).
package scenario

import (
	"fmt"
	"math"
	"time"

	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// Scenario is a description of traffic and of the fleet that it goes to.
type Scenario struct {
	Name string
	// Variant tells the runs of one scenario apart; "" if there is one.
	Variant     string
	Description string
	// Rules that the fleet decides by.
	Rules []rules.Rule
	// Streams of hits, all at the same time.
	Streams []Stream
	// Warmup comes first and is in no figure; then comes the measured part.
	Warmup, Duration time.Duration
	// Checkers, and the aggregators behind them.
	Checkers, Aggregators int
	// Flush is the checkers' flush interval; TimerOnly forbids them to flush before it.
	Flush     time.Duration
	TimerOnly bool
	// Load is how many times the limit is offered in steady load, for the report; 0 if that says
	// nothing here.
	Load float64
	// Phase is when the warm-up begins, counted from an edge of the longest window; nil leaves it
	// to chance.
	Phase *time.Duration
	// Fixed is a plan of hits instead of streams: a replay.
	Fixed *Fixed
	// Speed of a replay, how many times the log's.
	Speed float64
}

// Stream is a source of hits under one rule. They come at random, independently of each other (a
// Poisson process), at the rate of the phase.
type Stream struct {
	// Rule is an index in the scenario's rules.
	Rule int
	// Keys is how many there are; 0 for a new one with each hit.
	Keys int
	// Zipf is the exponent of the keys' popularity, above 1; 0 if all are as popular.
	Zipf float64
	// Phases come one after another, over and over.
	Phases []Phase
	// Route is which checker a hit goes to.
	Route Route
	// Cost of each hit.
	Cost Cost
}

// Cost is what a request costs, in hits: any number from Least to Most, each as often. The zero
// value is 1.
type Cost struct{ Least, Most int32 }

// mean returns the cost of a request in the mean.
func (c Cost) mean() float64 { return max(float64(c.Least)+float64(c.Most), 2) / 2 }

// String writes the cost as ParseCost reads it.
func (c Cost) String() string {
	if c.Most <= c.Least {
		return fmt.Sprint(max(c.Least, 1))
	}
	return fmt.Sprintf("%d..%d", c.Least, c.Most)
}

// Phase is a stretch of time. Its length is drawn anew each time.
type Phase struct {
	Least, Most time.Duration
	// From and To are the rate at its beginning and its end, in hits per second for all keys of the
	// stream together. Requests that cost more come as much more seldom.
	From, To float64
}

// Fixed is a plan of hits that is known beforehand.
type Fixed struct {
	Keys []string
	Hits []FixedHit // in order of time
	// Route is which checker a hit goes to.
	Route Route
}

// FixedHit is one hit of such a plan, by the first rule.
type FixedHit struct {
	At  time.Duration // since the start
	Key int           // index in Keys
}

// Bounds of what can be asked for, so that a slip of the pen is an error and not an endless run.
const (
	MaxCheckers    = 10_000
	MaxAggregators = 100
	MaxKeys        = 10_000_000
	MaxDuration    = 366 * 24 * time.Hour
	maxRate        = 1e9
	maxStreams     = 26 // each has a letter
	maxCost        = 1_000_000
)

// Title is the scenario's name, with its variant.
func (s *Scenario) Title() string {
	if s.Variant == "" {
		return s.Name
	}
	return s.Name + " (" + s.Variant + ")"
}

// Longest returns the longest window of the rules.
func (s *Scenario) Longest() time.Duration {
	var longest time.Duration
	for i := range s.Rules {
		longest = max(longest, s.Rules[i].Window.Length)
	}
	return longest
}

// Hits returns about how many hits there are.
func (s *Scenario) Hits() float64 {
	if s.Fixed != nil {
		return float64(len(s.Fixed.Hits))
	}
	var sum float64
	for i := range s.Streams {
		sum += hitsOf(s.Streams[i].Phases, (s.Warmup + s.Duration).Seconds())
	}
	return sum
}

// hitsOf returns about how many hits phases have in so many seconds.
func hitsOf(phases []Phase, seconds float64) float64 {
	var hits, length float64
	for _, p := range phases {
		h, l := p.in(math.Inf(1))
		hits, length = hits+h, length+l
	}
	rounds := math.Floor(seconds / length)
	sum := rounds * hits
	for left, i := seconds-rounds*length, 0; left > 0 && i < len(phases); i++ {
		h, l := phases[i].in(left)
		sum, left = sum+h, left-l
	}
	return sum
}

// in returns about how many hits the phase has in its first so many seconds, and how many seconds
// these really are.
func (p Phase) in(seconds float64) (hits, length float64) {
	whole := (p.Least + p.Most).Seconds() / 2
	length = min(whole, seconds)
	if whole == 0 {
		return 0, 0
	}
	end := p.From + (p.To-p.From)*length/whole
	return length * (p.From + end) / 2, length
}

// Validate says what is wrong with the scenario, or nil.
func (s *Scenario) Validate() error {
	switch {
	case s.Checkers < 1 || s.Checkers > MaxCheckers:
		return fmt.Errorf("%d checkers: want 1 to %d", s.Checkers, MaxCheckers)
	case s.Aggregators < 1 || s.Aggregators > MaxAggregators:
		return fmt.Errorf("%d aggregators: want 1 to %d", s.Aggregators, MaxAggregators)
	case s.Warmup < 0 || s.Duration <= 0 || s.Warmup+s.Duration > MaxDuration:
		return fmt.Errorf("a warm-up of %v and a duration of %v: want a duration, and at most %v", s.Warmup, s.Duration, MaxDuration)
	case len(s.Streams) == 0 && s.Fixed == nil:
		return fmt.Errorf("no streams of hits")
	case len(s.Streams) > maxStreams:
		return fmt.Errorf("%d streams: want at most %d", len(s.Streams), maxStreams)
	}
	if _, err := rules.NewSet(s.Rules...); err != nil {
		return err
	}
	for i := range s.Streams {
		if err := s.Streams[i].validate(s.Rules); err != nil {
			return fmt.Errorf("stream %d: %w", i+1, err)
		}
	}
	return nil
}

func (s *Stream) validate(rules []rules.Rule) error {
	switch {
	case s.Rule < 0 || s.Rule >= len(rules):
		return fmt.Errorf("rule %d of %d", s.Rule, len(rules))
	case s.Cost != Cost{} && (s.Cost.Least < 1 || s.Cost.Most < s.Cost.Least || s.Cost.Most > maxCost):
		return fmt.Errorf("a cost of %d to %d: want 1 to %d", s.Cost.Least, s.Cost.Most, maxCost)
	case s.Cost.Most > 1 && rules[s.Rule].Window.Kind == window.Leaky:
		return fmt.Errorf("a cost: hits leave a leaky bucket one by one")
	case s.Keys < 0 || s.Keys > MaxKeys:
		return fmt.Errorf("%d keys: want at most %d", s.Keys, MaxKeys)
	case s.Zipf != 0 && !(s.Zipf > 1 && s.Zipf <= 10):
		return fmt.Errorf("zipf %v: want more than 1, at most 10", s.Zipf)
	case s.Zipf != 0 && s.Keys == 0:
		return fmt.Errorf("zipf: there is no popularity among keys that are new with each hit")
	case len(s.Phases) == 0:
		return fmt.Errorf("no phases")
	}
	var length time.Duration
	for i, p := range s.Phases {
		if err := p.validate(); err != nil {
			return fmt.Errorf("phase %d: %w", i+1, err)
		}
		length += p.Least
	}
	if length < time.Millisecond {
		return fmt.Errorf("phases of %v in all: want at least 1ms", length)
	}
	return s.Route.validate()
}

func (p Phase) validate() error {
	switch {
	case p.Least < 0 || p.Most < p.Least || p.Most > MaxDuration:
		return fmt.Errorf("for %v to %v: want an interval", p.Least, p.Most)
	case !(p.From >= 0 && p.From <= maxRate && p.To >= 0 && p.To <= maxRate):
		return fmt.Errorf("%v to %v hits per second: want 0 to %v", p.From, p.To, maxRate)
	}
	return nil
}
