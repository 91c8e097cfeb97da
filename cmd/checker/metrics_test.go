package main

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/offpath-io/offpath/cmd/internal/admin"
	"github.com/offpath-io/offpath/cmd/internal/rulelabel"
	"github.com/offpath-io/offpath/internal/version"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/envoyquota"
	"github.com/offpath-io/offpath/pkg/rules/keeper"
)

func TestMetricsAreWellNamed(t *testing.T) {
	registry := admin.NewRegistry(version.Get())
	stats := check.Stats{Rules: []check.RuleStats{{Rule: "a"}}, Heard: time.Second}
	registry.MustRegister(newMetrics(func() check.Stats { return stats }, func() bool { return true }, 10),
		rulesMetrics{func() keeper.State { return keeper.State{Loaded: time.Now()} }},
		quotaMetrics{func() envoyquota.Stats { return envoyquota.Stats{} }})
	problems, err := testutil.GatherAndLint(registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "offpath_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

func TestMetrics(t *testing.T) {
	stats := check.Stats{
		Rules: []check.RuleStats{{
			Rule: "a", Allowed: 1, Denied: 2, Charged: 64, Answered: 4, InFlight: 5, Pending: 6, Overflow: 7, Lost: 17, Cancelled: 25, BadCosts: 18, FalseDenials: 26,
		}},
		LiveKeys: 8, IdleKeys: 9,
		ReportsSent: 10, ReportsRepeated: 11, ReportsAnswered: 12, ReportsGivenUp: 13, ReportsUnsent: 14,
		LeasesSent: 20, LeasesRepeated: 21, LeasesAnswered: 22, LeasesRefused: 23, Waiting: 24,
		SettlementsTaken: 27, SettlementsAnswered: 28, SettlementsLost: 29,
		Alarms: 15, Unreadable: 16,
		Freshness: check.Stale, Heard: 1500 * time.Millisecond, Shards: 18, Checkers: 19, ClockOffset: -time.Millisecond,
	}
	want := `
offpath_decisions_total{outcome="allowed",rule="a"} 1
offpath_decisions_total{outcome="denied",rule="a"} 2
offpath_hits_total{outcome="answered",rule="a"} 4
offpath_hits_total{outcome="cancelled",rule="a"} 25
offpath_hits_total{outcome="charged",rule="a"} 64
offpath_hits_total{outcome="lost",rule="a"} 17
offpath_hits_total{outcome="overflow",rule="a"} 7
offpath_bad_costs_total{rule="a"} 18
offpath_false_denials_total{rule="a"} 26
offpath_hits_pending{rule="a"} 6
offpath_hits_in_flight{rule="a"} 5
offpath_reports_total{outcome="answered"} 12
offpath_reports_total{outcome="given_up"} 13
offpath_reports_total{outcome="repeated"} 11
offpath_reports_total{outcome="sent"} 10
offpath_reports_total{outcome="unsent"} 14
offpath_checker_lease_requests_total{outcome="answered"} 22
offpath_checker_lease_requests_total{outcome="refused"} 23
offpath_checker_lease_requests_total{outcome="repeated"} 21
offpath_checker_lease_requests_total{outcome="sent"} 20
offpath_waiting_requests 24
offpath_alarms_received_total 15
offpath_unreadable_messages_total 16
offpath_live_keys 8
offpath_live_keys_max 30
offpath_checker_settlements_total{outcome="taken"} 27
offpath_checker_settlements_total{outcome="answered"} 28
offpath_checker_settlements_total{outcome="lost"} 29
offpath_idle_keys 9
offpath_refresh_age_seconds 1.5
offpath_freshness{state="fresh"} 0
offpath_freshness{state="local"} 0
offpath_freshness{state="stale"} 1
offpath_freshness{state="local_share"} 0
offpath_freshness{state="outage"} 0
offpath_nats_connected 0
offpath_fleet_checkers 19
offpath_shards 18
offpath_clock_offset_seconds -0.001
`
	m := newMetrics(func() check.Stats { return stats }, func() bool { return false }, 30)
	got := values(t, m)
	for line := range strings.Lines(strings.TrimSpace(want)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if got[name] != value {
			t.Errorf("%s is %q, want %s", name, got[name], value)
		}
		delete(got, name)
	}
	if len(got) > 0 {
		t.Errorf("not expected: %v", got)
	}
	stats.Heard = 0
	if age, ok := values(t, m)["offpath_refresh_age_seconds"]; ok {
		t.Errorf("nobody was ever heard, yet the age is %s", age)
	}
}

func TestQuotaMetrics(t *testing.T) {
	stats := envoyquota.Stats{Streams: 1, Buckets: 2, Opened: 3, Refused: 4, Failed: 5, Allowed: 6, Denied: 7, TurnedAway: 8}
	got := values(t, quotaMetrics{func() envoyquota.Stats { return stats }})
	want := map[string]string{
		"offpath_quota_streams": "1", "offpath_quota_buckets": "2", "offpath_quota_buckets_turned_away_total": "8",
		`offpath_quota_streams_total{outcome="opened"}`: "3", `offpath_quota_streams_total{outcome="refused"}`: "4",
		`offpath_quota_streams_total{outcome="failed"}`:   "5",
		`offpath_quota_requests_total{outcome="allowed"}`: "6", `offpath_quota_requests_total{outcome="denied"}`: "7",
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// values returns what a collector collects, in the words of the text format.
func values(t *testing.T, c prometheus.Collector) map[string]string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(c); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]string)
	for _, family := range families {
		for _, m := range family.Metric {
			name := family.GetName()
			if len(m.Label) > 0 {
				var labels []string
				for _, l := range m.Label {
					labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
				}
				name += "{" + strings.Join(labels, ",") + "}"
			}
			all[name] = fmt.Sprint(m.GetCounter().GetValue() + m.GetGauge().GetValue())
		}
	}
	return all
}

// TestManyRules has more rules than labels, one of them called like the rest together.
func TestManyRules(t *testing.T) {
	stats := check.Stats{}
	for i := range 500 {
		stats.Rules = append(stats.Rules, check.RuleStats{Rule: fmt.Sprintf("r%d", i), Allowed: int64(i), Charged: int64(i)})
	}
	stats.Rules[400].Rule = rulelabel.Other
	m := newMetrics(func() check.Stats { return stats }, func() bool { return true }, 10)

	before := values(t, m)
	total := 0
	for name := range before {
		if strings.HasPrefix(name, "offpath_hits_pending{") {
			total++
		}
	}
	if total != rulelabel.Most && total != rulelabel.Most+1 {
		t.Errorf("%d labels", total)
	}
	if got := before[`offpath_decisions_total{outcome="allowed",rule="r499"}`]; got != "499" {
		t.Errorf("the busiest: %q", got)
	}
	want := 400 // the rule of that name
	for i := range 300 {
		want += i
	}
	if got := before[`offpath_decisions_total{outcome="allowed",rule="other"}`]; got != fmt.Sprint(want) {
		t.Errorf("the rest: %q, want %d", got, want)
	}

	for i := range stats.Rules {
		stats.Rules[i].Allowed += int64(1000 - i) // the idlest are the busiest now
	}
	after := values(t, m)
	for name, was := range before {
		if strings.Contains(name, "_total") && number(t, after[name]) < number(t, was) {
			t.Errorf("%s went from %s to %s", name, was, after[name])
		}
	}
}

// TestSeriesAreBounded: as many as docs/operations.md promises, whatever the number of rules.
func TestSeriesAreBounded(t *testing.T) {
	const mostSeries = 2400
	stats := check.Stats{Removed: check.RuleStats{Charged: 1}, Heard: 1}
	for i := range 10 * rulelabel.Most {
		stats.Rules = append(stats.Rules, check.RuleStats{Rule: fmt.Sprint("r", i), Allowed: 1})
	}
	n := len(values(t, newMetrics(func() check.Stats { return stats }, func() bool { return true }, 10)))
	n += len(values(t, rulesMetrics{func() keeper.State { return keeper.State{Loaded: time.Now()} }}))
	n += len(values(t, quotaMetrics{func() envoyquota.Stats { return envoyquota.Stats{} }}))
	n += 9*4 + 2*4 + 2 + 1 // files of certificates and secrets, both logs of denials, blocks, the build
	if n > mostSeries || n < 10*rulelabel.Most {
		t.Errorf("%d series", n)
	}
}

// TestRemovedRules: no hit is missing from the sum over all rules when rules go, and one may have the name of them all.
func TestRemovedRules(t *testing.T) {
	stats := check.Stats{Rules: []check.RuleStats{{Rule: "r", Charged: 1, Denied: 2}}}
	m := newMetrics(func() check.Stats { return stats }, func() bool { return true }, 10)
	charged := func(rule string) string {
		return values(t, m)[`offpath_hits_total{outcome="charged",rule="`+rule+`"}`]
	}
	if got := charged("removed"); got != "" {
		t.Errorf("nothing has been removed: %q", got)
	}
	stats.Removed = check.RuleStats{Charged: 30, Denied: 4}
	if r, removed := charged("r"), charged("removed"); r != "1" || removed != "30" {
		t.Errorf("charged by r %q, by those that are gone %q", r, removed)
	}
	stats.Rules = append(stats.Rules, check.RuleStats{Rule: rulelabel.Removed, Charged: 500})
	if got := charged("removed"); got != "530" {
		t.Errorf("with a rule of that name: %q", got)
	}
}

// TestRulesThatGo: half of many rules go, of those with a label of their own and of the rest, and one comes back. No counter goes
// backwards, and the sum over all of them stays right.
func TestRulesThatGo(t *testing.T) {
	var stats check.Stats
	for i := range 2 * rulelabel.Most {
		stats.Rules = append(stats.Rules, check.RuleStats{Rule: fmt.Sprint("r", i), Charged: 10, Answered: 8, Pending: 2})
	}
	m := newMetrics(func() check.Stats { return stats }, func() bool { return true }, 10)
	const other = `offpath_hits_total{outcome="charged",rule="other"}`
	sum := func(all map[string]string) (sum float64) {
		for name, value := range all {
			if strings.HasPrefix(name, `offpath_hits_total{outcome="charged"`) {
				sum += number(t, value)
			}
		}
		return sum
	}
	before := values(t, m)

	var stay []check.RuleStats
	for i, r := range stats.Rules {
		if i%2 == 0 {
			stay = append(stay, r)
			continue
		}
		stats.Removed.Charged += 11 // one more since
		stats.Removed.Answered += 11
	}
	stats.Rules = stay
	after := values(t, m)
	if got, want := sum(after), float64(21*rulelabel.Most); got != want {
		t.Errorf("%v hits, want %v", got, want)
	}
	if number(t, after[other]) < number(t, before[other]) {
		t.Errorf("other went from %s to %s", before[other], after[other])
	}

	stats.Rules = append(stats.Rules, check.RuleStats{Rule: "r1", Charged: 1, Answered: 1}, check.RuleStats{Rule: "new", Charged: 1, Answered: 1})
	again := values(t, m)
	if got, want := sum(again), float64(21*rulelabel.Most+2); got != want {
		t.Errorf("%v hits, want %v", got, want)
	}
	if number(t, again[other]) < number(t, after[other]) {
		t.Errorf("other went from %s to %s", after[other], again[other])
	}
	if got := again[`offpath_hits_total{outcome="charged",rule="new"}`]; got != "1" {
		t.Errorf("a new rule has no label, with half of them left: %q", got)
	}
}

// TestRulesThatAreRenamed: a checker that has seen a thousand names still tells what the rules in force do.
func TestRulesThatAreRenamed(t *testing.T) {
	var stats check.Stats
	m := newMetrics(func() check.Stats { return stats }, func() bool { return true }, 10)
	for i := range 1000 {
		name := fmt.Sprint("r", i)
		stats.Rules = []check.RuleStats{{Rule: name, Charged: 1}}
		all := values(t, m)
		if all[`offpath_hits_total{outcome="charged",rule="`+name+`"}`] != "1" {
			t.Fatalf("after %d names, a rule has no label", i)
		}
		stats.Removed.Charged++
	}
	if n := len(values(t, m)); n > 100 {
		t.Errorf("%d series: those of rules that are gone are still there", n)
	}
}

func number(t *testing.T, text string) (n float64) {
	t.Helper()
	if _, err := fmt.Sscan(text, &n); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return n
}
