package aggregate_test

import (
	"testing"

	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
	"github.com/offpath-io/offpath/pkg/events"
)

// tokens are 60 a minute in 60 buckets, with room for 10, and queue is the same as a leaky bucket.
func tokens(now int64) *events.Rule {
	return &events.Rule{
		Name: "tokens", Revision: 1, WindowMs: 60_000, Buckets: 60, Algorithm: events.Algorithm_TOKEN_BUCKET,
		Limit: 60, Burst: 10, Newest: now / second,
	}
}

func queue(now int64) *events.Rule {
	r := tokens(now)
	r.Name, r.Algorithm = "queue", events.Algorithm_LEAKY_BUCKET
	return r
}

// Answers and alarms about what drains tell what was before the counts that they tell.
func TestAnswersAndAlarmsCarryLevels(t *testing.T) {
	d := newFixture(t, memstore.New())
	now := start
	for i, step := range []struct {
		why    string
		after  int64 // in seconds
		rule   func(int64) *events.Rule
		hits   []own
		totals string
		levels string
		alarm  string // its levels, "none" if there is no alarm
	}{
		{"nothing was before", 0, tokens, []own{{"a", 0, 4}, {"b", 0, 1}}, "0:4 | 0:1", "61:0 61:0", "none"},
		{"half of the room", 0, tokens, []own{{"a", 0, 1}}, "0:5", "61:0", "61:0"},
		{"far over", 0, tokens, []own{{"a", 0, 100}}, "0:105", "61:0", "61:0"},
		{"60 of the 105 have drained, and there are totals of 61 buckets", 60, tokens, []own{{"a", 0, 1}}, "0:1 60:105", "61:0", "61:0"},
		{"now the first is a level, in sixtieths", 1, tokens, []own{{"a", 0, 1}}, "0:1 1:1", "61:6300", "61:6300"},
		{"which drains a hit a second", 10, tokens, []own{{"a", 0, 1}}, "0:1 10:1 11:1", "61:5700", "61:5700"},
		{"until it is below half", 36, tokens, []own{{"a", 0, 1}}, "0:1 36:1 46:1 47:1", "61:3540", "none"},
		{"any hit of a leaky bucket raises an alarm, at once", 0, queue, []own{{"a", 0, 1}}, "0:1", "61:0", "61:0"},
		{"a window has no level", 1, perSecond, []own{{"a", 0, 9}}, "0:9", "", ""},
	} {
		now += step.after * second
		m := d.exchange(now, report(1, uint64(i)+1, step.rule(now), step.hits...))
		d.step(now + 100*ms)
		d.want(step.why, totals(m), step.totals)
		d.want(step.why, levels(m), step.levels)
		alarm := "none"
		for _, m := range d.bus.alarms {
			alarm = levels(m.GetTotals())
		}
		d.bus.alarms = nil
		d.want(step.why+", alarm", alarm, step.alarm)
	}
}

// In one report of several rules each key has a place among the levels; denied hits have none of
// their own.
func TestLevelsOfOneReportOfManyRules(t *testing.T) {
	d := newFixture(t, memstore.New())
	d.exchange(start, report(1, 1, tokens(start), own{"a", 0, 90}))
	now := start + 61*second
	denied := tokens(now)
	denied.Denied = true
	m := report(1, 2, perSecond(now), own{"a", 0, 1})
	addHits(m, tokens(now), own{"a", 0, 1})
	addHits(m, denied, own{"a", 0, 1})
	got := d.exchange(now, m)
	d.want("three rules", totals(got), "0:1 | 0:1 | 0:1")
	d.want("levels", levels(got), "0:0 61:5400 0:0")
}

// Two workers, of which one learns of a new limit later, answer with the same final level: old hits
// have drained at the old rate until the rules were written.
func TestWorkersAgreeOnWhatANewLimitDrains(t *testing.T) {
	store := memstore.New()
	early, late := newFixture(t, store), newFixture(t, store)
	rule := func(now int64, limit, revision uint64) *events.Rule {
		return &events.Rule{
			Name: "tokens", Revision: revision, WindowMs: 1000, Buckets: 10, Limit: events.Count(int64(limit)), Burst: 5000,
			Algorithm: events.Algorithm_TOKEN_BUCKET, Newest: now / (100 * ms),
		}
	}
	written := uint64(start/ms) + 330
	for _, d := range []*fixture{early, late} {
		d.exchange(start, report(1, 1, rule(start, 1000, written-5000), own{"a", 0, 2000}))
	}
	early.exchange(start+340*ms, report(2, 1, rule(start+340*ms, 500, written), own{"a", 0, 0}))
	now := start + 1900*ms
	for _, d := range []*fixture{early, late} {
		// Of the 2000 at 100 ms, 100 each drain in 2 buckets, 2/8 × 100 + 6/8 × 50 in the next one,
		// and 50 each in 5.
		got := d.exchange(now, report(3, 1, rule(now, 500, written), own{"a", 0, 0}))
		d.want("the level", levels(got), "11:14875")
	}
}
