package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/offpath-io/offpath/cmd/internal/admin"
	"github.com/offpath-io/offpath/cmd/internal/rulelabel"
	"github.com/offpath-io/offpath/internal/version"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/rules/keeper"
)

func TestMetricsAreWellNamed(t *testing.T) {
	registry := admin.NewRegistry(version.Get())
	stats := check.Stats{Rules: []check.RuleStats{{Rule: "a"}}, Heard: time.Second}
	registry.MustRegister(newMetrics(func() check.Stats { return stats }, func() bool { return true }),
		rulesMetrics{func() keeper.State { return keeper.State{Loaded: time.Now()} }})
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
			Rule: "a", Allowed: 1, Denied: 2, Charged: 64, Answered: 4, InFlight: 5, Pending: 6, Overflow: 7, Lost: 17, Cancelled: 25, BadCosts: 18,
		}},
		LiveKeys: 8, IdleKeys: 9,
		ReportsSent: 10, ReportsRepeated: 11, ReportsAnswered: 12, ReportsGivenUp: 13, ReportsUnsent: 14,
		LeasesSent: 20, LeasesRepeated: 21, LeasesAnswered: 22, LeasesRefused: 23, Waiting: 24,
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
	m := newMetrics(func() check.Stats { return stats }, func() bool { return false })
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
	m := newMetrics(func() check.Stats { return stats }, func() bool { return true })

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

func number(t *testing.T, text string) (n float64) {
	t.Helper()
	if _, err := fmt.Sscan(text, &n); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return n
}
