package score

import (
	"slices"

	"github.com/offpath-io/offpath/loadtest/scenario"
	"github.com/offpath-io/offpath/loadtest/tap"
)

// TracedKeys is how many keys of each stream are looked at for the refresh lag, the busiest first.
const TracedKeys = 64

// TracedCheckers is on how many checkers they are looked at: in a large simulation those few,
// evenly chosen, stand for all.
const TracedCheckers = 16

// traced returns the checkers that are looked at.
func traced(checkers int) []int {
	chosen := make([]int, min(checkers, TracedCheckers))
	for i := range chosen {
		chosen[i] = i * checkers / len(chosen)
	}
	return chosen
}

// mostSamples bounds the hits that are looked at. Of more, every other one is forgotten, again and
// again, so that those that stay are spread over the run.
const mostSamples = 4000

// sampler chooses hits whose way to other checkers is looked for, and knows who holds their keys.
type sampler struct {
	scenario *scenario.Scenario
	checkers []int             // that are traced
	place    []int             // of each checker among those, −1 for others
	seen     map[int32][]int64 // per traced key and checker, the time of its last hit; 0 for none
	hits     []tap.Hit
	every    int64 // of so many hits one is taken
	passed   int64
}

func newSampler(sc *scenario.Scenario, t *scenario.Traffic) sampler {
	s := sampler{scenario: sc, checkers: traced(sc.Checkers), seen: make(map[int32][]int64), every: 1}
	s.place = slices.Repeat([]int{-1}, sc.Checkers)
	for i, checker := range s.checkers {
		s.place[checker] = i
	}
	for _, key := range t.Busiest(TracedKeys) {
		s.seen[key] = make([]int64, len(s.checkers))
	}
	return s
}

// note takes in a hit of the measured part; near says that its key is above half of its limit.
func (s *sampler) note(now int64, rule int, h scenario.Hit, allowed, near bool) {
	seen, place := s.seen[h.Key], s.place[h.Checker]
	if seen == nil || place < 0 {
		return
	}
	seen[place] = now
	if !allowed || !near {
		return
	}
	s.passed++
	if s.passed%s.every != 0 {
		return
	}
	shape := s.scenario.Rules[rule].Window
	hit := tap.Hit{At: now, Bucket: shape.Bucket(now), Key: h.Key, Checker: int(h.Checker)}
	for i, at := range seen {
		if i != place && at > now-int64(shape.Length) {
			hit.Holders = append(hit.Holders, s.checkers[i])
		}
	}
	s.hits = append(s.hits, hit)
	if len(s.hits) == mostSamples {
		s.halve()
	}
}

func (s *sampler) halve() {
	for i := range len(s.hits) / 2 {
		s.hits[i] = s.hits[2*i]
	}
	s.hits = s.hits[:len(s.hits)/2]
	s.every *= 2
}

// StartTraces lets the traces begin with the measured part.
func (s *Score) StartTraces(traces []*tap.Trace) {
	for _, t := range traces {
		if t != nil {
			t.From(s.from)
		}
	}
}

// NewTraces returns a trace for each checker, nil for those that are not to be listened to.
func NewTraces(sc *scenario.Scenario, t *scenario.Traffic) []*tap.Trace {
	type name struct{ rule, key string }
	ids := make(map[name]int32)
	for _, key := range t.Busiest(TracedKeys) {
		ids[name{sc.Rules[t.Rule(key)].Name, t.Text(key)}] = key
	}
	traces := make([]*tap.Trace, sc.Checkers)
	for _, i := range traced(sc.Checkers) {
		traces[i] = tap.NewTrace(func(rule, key string) (int32, bool) {
			id, ok := ids[name{rule, key}]
			return id, ok
		})
	}
	return traces
}
