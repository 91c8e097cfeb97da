package score

import (
	"github.com/offpath-io/offpath/loadtest/scenario"
	"github.com/offpath-io/offpath/loadtest/tap"
)

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
