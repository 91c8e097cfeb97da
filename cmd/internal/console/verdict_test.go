package console

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/offpath-io/offpath/cmd/internal/console/history"
	"github.com/offpath-io/offpath/internal/status"
)

// healthyView is of a fleet with which nothing is wrong: two checkers, two aggregators.
func healthyView() *View {
	v := &View{Now: noon, Connected: true, Heard: Heard{Checkers: 2, Limited: 3}}
	for range 2 {
		v.Checkers = append(v.Checkers, CheckerView{Freshness: "fresh", RulesDigest: "abc"})
		v.Aggregators = append(v.Aggregators, AggregatorView{Part: status.Part{Host: "host"}, Ready: true, Behind: -1})
	}
	v.Aggregators[1].Behind = 40
	return v
}

// TestVerdict: what is wrong is told, the worst first, each with a section of the runbook that
// there is; and nothing else is.
func TestVerdict(t *testing.T) {
	book, err := os.ReadFile("../../../docs/operations_alerts.md")
	must(t, err)
	for _, test := range []struct {
		why    string
		damage func(*View, map[string]history.Point, *time.Time)
		state  State
		text   string
		alert  string // of the first finding
		all    int
	}{
		{"all is well", func(*View, map[string]history.Point, *time.Time) {}, Good,
			"All limits hold. 3 keys are being limited. The newest hits were counted after 40 ms.", "", 0},
		{"nobody comes", func(v *View, _ map[string]history.Point, _ *time.Time) {
			v.Aggregators[1].Behind, v.Heard.Limited = -1, 0
		}, Good, "All limits hold. No key is being limited. Everything is counted.", "", 0},
		{"some wait", func(v *View, _ map[string]history.Point, _ *time.Time) {
			v.Aggregators[1].Behind, v.Checkers[0].Unreported, v.Checkers[1].Unreported = -1, 2, 3
		}, Good, "All limits hold. 3 keys are being limited. 5 hits wait to be reported.", "", 0},
		{"more than are told of", func(v *View, _ map[string]history.Point, _ *time.Time) { v.Heard.LimitedMore = true }, Good,
			"All limits hold. At least 3 keys are being limited. The newest hits were counted after 40 ms.", "", 0},
		{"one key", func(v *View, _ map[string]history.Point, _ *time.Time) { v.Heard.Limited = 1 }, Good,
			"All limits hold. 1 key is being limited. The newest hits were counted after 40 ms.", "", 0},
		{"no checker", func(v *View, _ map[string]history.Point, _ *time.Time) { v.Checkers, v.Heard = nil, Heard{} }, Good,
			"No checker has been heard yet, so nothing is limited.", "", 0},
		{"NATS is away", func(v *View, _ map[string]history.Point, _ *time.Time) { v.Connected = false }, Page,
			"This aggregator has no connection to NATS: what is shown is old.", "OffpathNATSDown", 1},
		{"Redis is away", func(v *View, _ map[string]history.Point, _ *time.Time) {
			for i := range v.Aggregators {
				v.Aggregators[i].Ready, v.Aggregators[i].Problem = false, "the store: refused"
			}
		}, Page, "No aggregator can count, so limits are kept less and less exactly: the store: refused.", "OffpathNoAggregator", 1},
		{"Redis is away from one", func(v *View, _ map[string]history.Point, _ *time.Time) {
			v.Aggregators[0].Ready, v.Aggregators[0].Problem = false, "the store: refused"
		}, Page, "1 of 2 aggregators cannot count: the store: refused.", "OffpathStoreDown", 1},
		{"one is silent", func(v *View, _ map[string]history.Point, _ *time.Time) {
			v.Aggregators[0].Silent, v.Aggregators[0].Ago = true, 7000
		}, Ticket, "1 of 2 aggregators cannot count: host has been silent for 7.0 s.", "OffpathNoAggregator", 1},
		{"no aggregators", func(v *View, _ map[string]history.Point, _ *time.Time) { v.Aggregators = nil }, Page,
			"No aggregator is heard, so limits are kept less and less exactly.", "OffpathNoAggregator", 1},
		{"behind", func(v *View, _ map[string]history.Point, _ *time.Time) { v.Aggregators[0].Behind = 6500 }, Page,
			"Hits are counted 6.5 s late.", "OffpathCountingBehind", 1},
		{"stale", func(v *View, _ map[string]history.Point, _ *time.Time) { v.Checkers[0].Freshness = "local_share" }, Page,
			"1 of 2 checkers know only old counts.", "OffpathRefreshStale", 1},
		{"alone, and the worst first", func(v *View, _ map[string]history.Point, _ *time.Time) {
			v.Checkers[0].Freshness, v.Checkers[1].Problem = "local", "rules refused: line 3: no"
		}, Page, "1 of 2 checkers have never heard of an aggregator: each lets every key have the whole limit.", "OffpathAlone", 2},
		{"silent", func(v *View, _ map[string]history.Point, _ *time.Time) { v.Checkers[0].Silent = true }, Ticket,
			"1 checker is silent, and left out of all sums.", "OffpathRefreshStale", 1},
		{"rules refused", func(v *View, _ map[string]history.Point, _ *time.Time) { v.Book.Why = "refused: line 3: no" }, Ticket,
			"New rules are not in force, and the ones before are: refused: line 3: no.", "OffpathRulesRefused", 1},
		{"no rules", func(v *View, _ map[string]history.Point, _ *time.Time) { v.Checkers[0].Problem = "no rules: none" }, Page,
			"A checker has no rules, so it limits nobody: no rules: none.", "OffpathRulesSourceDown", 1},
		{"rules differ", func(v *View, _ map[string]history.Point, _ *time.Time) { v.Checkers[0].RulesDigest = "def" }, Ticket,
			"Checkers decide by 2 different sets of rules.", "OffpathRulesDiffer", 1},
		{"rules just written", func(v *View, _ map[string]history.Point, _ *time.Time) {
			v.Checkers[0].RulesDigest, v.Book.Written = "def", noon.Add(-time.Second)
		}, Good, "All limits hold. 3 keys are being limited. The newest hits were counted after 40 ms.", "", 0},
		{"some problem", func(v *View, _ map[string]history.Point, _ *time.Time) {
			v.Checkers[0].Host, v.Checkers[0].Problem = "web", "a report was refused"
		}, Ticket, "web: a report was refused.", "OffpathReportsRefused", 1},
		{"Redis lost data", func(v *View, _ map[string]history.Point, _ *time.Time) {
			v.Aggregators[0].Loss = &status.Loss{At: noon.Add(-time.Minute), Shard: 3, Size: "all of it"}
		}, Page, "Redis has lost counts of shard 3, 1m0s ago: all of it.", "OffpathStoreLostData", 1},
		{"long ago", func(v *View, _ map[string]history.Point, _ *time.Time) {
			v.Aggregators[0].Loss = &status.Loss{At: noon.Add(-time.Hour)}
		}, Good, "All limits hold. 3 keys are being limited. The newest hits were counted after 40 ms.", "", 0},
		{"hits lost", func(_ *View, rules map[string]history.Point, _ *time.Time) { rules["r"] = history.Point{Lost: 7} }, Page,
			"7 hits passed in the last five minutes that nobody will ever count.", "OffpathBufferDropping", 1},
		{"more hits lost than there can be", func(_ *View, rules map[string]history.Point, _ *time.Time) {
			rules["r"] = history.Point{Lost: 1e30}
		}, Page, "1000000000000000 hits passed in the last five minutes that nobody will ever count.", "OffpathBufferDropping", 1},
		{"more hits wait than there can be", func(v *View, _ map[string]history.Point, _ *time.Time) {
			v.Aggregators[1].Behind, v.Checkers[0].Unreported, v.Checkers[1].Unreported = -1, math.MaxInt64, math.MaxInt64
		}, Good, "All limits hold. 3 keys are being limited. 9223372036854775807 hits wait to be reported.", "", 0},
		{"no room", func(_ *View, _ map[string]history.Point, full *time.Time) { *full = noon.Add(-time.Minute) }, Page,
			"A rule has more new keys than Redis has room for: hits of the others are in no count.", "OffpathKeysOverflow", 1},
		{"exceeded", func(_ *View, rules map[string]history.Point, _ *time.Time) {
			rules["r"] = history.Point{Allowed: 1000, Over: 25}
		}, Ticket, "Rule r is exceeded: 2.5 % of what passed in the last five minutes was beyond its limit.", "OffpathOvershoot", 1},
		{"hardly exceeded", func(_ *View, rules map[string]history.Point, _ *time.Time) {
			rules["r"] = history.Point{Allowed: 2, Over: 2, False: 2} // of next to nothing
		}, Good, "All limits hold. 3 keys are being limited. The newest hits were counted after 40 ms.", "", 0},
		{"denied falsely", func(_ *View, rules map[string]history.Point, _ *time.Time) {
			rules["r"] = history.Point{Allowed: 500, Denied: 500, False: 50}
		}, Ticket, "Rule r denies too much: about 5.0 % of the requests of the last five minutes were denied although there was room.",
			"OffpathFalseDenials", 1},
	} {
		v, rules, full := healthyView(), map[string]history.Point{}, time.Time{}
		test.damage(v, rules, &full)
		got := judge(v, history.Point{Lost: rules["r"].Lost}, rules, full)
		if got.State != test.state || got.Text != test.text || len(got.Findings) != test.all {
			t.Errorf("%s: %+v", test.why, got)
			continue
		}
		if test.all > 0 && got.Findings[0].Runbook != runbook+strings.ToLower(test.alert) {
			t.Errorf("%s: %s", test.why, got.Findings[0].Runbook)
		}
		if test.alert != "" && !strings.Contains(string(book), "\n## "+test.alert+"\n") {
			t.Errorf("the runbook has no section %s", test.alert)
		}
	}
}

// TestVerdictOfManyRules: the verdict is about all rules, also about those that have no series of
// their own in the history.
func TestVerdictOfManyRules(t *testing.T) {
	clock := &at{noon}
	p := newPicture(clock.now)
	for i := range int64(2) {
		s := checkerSays("a", 0, 0)
		for rule := range history.MaxRules + 50 {
			s.Rules = append(s.Rules, status.Decisions{Rule: fmt.Sprintf("rule%03d", rule), Allowed: 1000 * i})
		}
		last := &s.Rules[len(s.Rules)-1]
		last.Denied, last.False, last.Lost = 1000*i, 500*i, 3*i
		p.checker(s)
		p.aggregator(status.Aggregator{Part: status.Part{Name: "x"}, Rules: []status.Rule{{Name: last.Rule, Over: float64(100 * i)}}})
		clock.pass(time.Second)
	}
	all, rules := p.history.Lately(lately, clock.now())
	var said []string
	for _, f := range judge(healthyView(), all, rules, time.Time{}).Findings {
		said = append(said, f.Text)
	}
	got := strings.Join(said, "\n")
	for _, want := range []string{"3 hits passed in", "Rule rule149 is exceeded: 10.0 %", "Rule rule149 denies too much: about 25.0 %"} {
		if !strings.Contains(got, want) {
			t.Errorf("the verdict does not say %q: %s", want, got)
		}
	}
}
