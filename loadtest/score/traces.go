package score

import (
	"github.com/offpath-io/offpath/loadtest/scenario"
	"github.com/offpath-io/offpath/loadtest/tap"
)

// NewTraces returns a trace for each checker, nil for those that are not to be listened to.
func NewTraces(sc *scenario.Scenario, t *scenario.Traffic) []*tap.Trace {
	type name struct{ rule, key string }
	ids := make(map[name]int32)
	for _, key := range t.Busiest(TracedKeys) {
		ids[name{sc.Rules[t.Rule(key)].Name, t.Text(key)}] = key
	}
	traces := make([]*tap.Trace, sc.Checkers)
	for i := range min(len(traces), TracedCheckers) {
		traces[i] = tap.NewTrace(func(rule, key string) (int32, bool) {
			id, ok := ids[name{rule, key}]
			return id, ok
		})
	}
	return traces
}
