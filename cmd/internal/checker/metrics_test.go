package checker

import (
	"errors"
	"fmt"
	"maps"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/offpath-io/offpath"
	"github.com/offpath-io/offpath/internal/rulelabel"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/envoylimit"
	"github.com/offpath-io/offpath/pkg/envoyquota"
)

func TestMetrics(t *testing.T) {
	stats := offpath.Stats{
		ByLabel: map[string]check.RuleStats{"a": {
			Rule: "a", Allowed: 1, Denied: 2, Charged: 64, Answered: 4, InFlight: 5, Pending: 6, Overflow: 7, Lost: 17, Cancelled: 25,
			BadCosts: 18, FalseDenials: 26,
		}},
		Rules:       offpath.RulesState{Revision: 30, Rules: 31, Loaded: time.Unix(32, 0), Loads: 33, Refusals: 34, Refused: errors.New("bad")},
		Blocks:      offpath.BlocksState{Keys: 35, Up: true},
		RulesCache:  &offpath.CacheState{Revision: 36, Saved: time.Unix(37, 0), Failures: 38},
		BlocksCache: &offpath.CacheState{Failures: 39},
	}
	stats.Checker = check.Stats{
		LiveKeys: 8, IdleKeys: 9, Unmatched: 44,
		ReportsSent: 10, ReportsRepeated: 11, ReportsAnswered: 12, ReportsGivenUp: 13, ReportsUnsent: 14,
		LeasesSent: 20, LeasesRepeated: 21, LeasesAnswered: 22, LeasesRefused: 23, Waiting: 24,
		SettlementsTaken: 27, SettlementsAnswered: 28, SettlementsLost: 29,
		Alarms: 15, Unreadable: 16, StoreLosses: 45, LastStoreLoss: 46e9,
		ShardFreshness: map[check.Freshness]int{check.Fresh: 41, check.Stale: 1},
		Freshness:      check.Stale, Heard: 1500 * time.Millisecond, Shards: 18, Checkers: 19, ClockOffset: -time.Millisecond,
	}
	want := series(`
offpath_bad_costs_total{rule="a"} 18
offpath_false_denials_total{rule="a"} 26
offpath_hits_pending{rule="a"} 6
offpath_hits_in_flight{rule="a"} 5
offpath_waiting_requests 24
offpath_alarms_received_total 15
offpath_unreadable_messages_total 16
offpath_live_keys 8
offpath_live_keys_max 30
offpath_idle_keys 9
offpath_unmatched_requests_total 44
offpath_store_losses_total 45
offpath_store_last_loss_timestamp_seconds 46
offpath_refresh_age_seconds 1.5
offpath_nats_connected 0
offpath_nats_reconnects_total 43
offpath_rules 31
offpath_rules_revision 30
offpath_rules_loaded_timestamp_seconds 32
offpath_rules_refused 1
offpath_rules_source_up 1
offpath_blocked_keys 35
offpath_blocks_source_up 1
offpath_cache_rules_revision 36
offpath_fleet_checkers 19
offpath_shards 18
offpath_clock_offset_seconds -0.001
offpath_quota_streams 1
offpath_quota_buckets 2
offpath_quota_buckets_turned_away_total 8
`)
	for family, all := range map[string]string{
		`offpath_decisions_total{outcome="%s",rule="a"}`:     "allowed 1 denied 2",
		`offpath_hits_total{outcome="%s",rule="a"}`:          "answered 4 cancelled 25 charged 64 lost 17 overflow 7",
		`offpath_reports_total{outcome="%s"}`:                "answered 12 given_up 13 repeated 11 sent 10 unsent 14",
		`offpath_checker_lease_requests_total{outcome="%s"}`: "answered 22 refused 23 repeated 21 sent 20",
		`offpath_checker_settlements_total{outcome="%s"}`:    "taken 27 answered 28 lost 29",
		`offpath_freshness{state="%s"}`:                      "fresh 0 local 0 stale 1 local_share 0 outage 0",
		`offpath_shard_freshness{state="%s"}`:                "fresh 41 local 0 stale 1 local_share 0 outage 0",
		`offpath_rules_loads_total{outcome="%s"}`:            "loaded 33 refused 34",
		`offpath_cache_saved_timestamp_seconds{bucket="%s"}`: "rules 37 entries 0",
		`offpath_cache_failures_total{bucket="%s"}`:          "rules 38 entries 39",
		`offpath_quota_streams_total{outcome="%s"}`:          "opened 3 refused 4 failed 5",
		`offpath_quota_requests_total{outcome="%s"}`:         "allowed 6 denied 7",
	} {
		for of := range slices.Chunk(strings.Fields(all), 2) { // a label's value, and the metric's
			want[fmt.Sprintf(family, of[0])] = of[1]
		}
	}
	m := metrics{func() offpath.Stats { return stats }, func() bool { return false }, func() uint64 { return 43 }, 30}
	got := values(t, m)
	quota := envoyquota.Stats{Streams: 1, Buckets: 2, Opened: 3, Refused: 4, Failed: 5, Allowed: 6, Denied: 7, TurnedAway: 8}
	maps.Copy(got, values(t, quotaMetrics{func() envoyquota.Stats { return quota }}))
	hits := envoylimit.Hits{Domain: "d", Descriptor: "a_b.c", Total: 50, Within: 51, Near: 52, Over: 53, Shadow: 54}
	maps.Copy(got, values(t, envoyMetrics{func() []envoylimit.Hits { return []envoylimit.Hits{hits} }}))
	for kind, value := range map[string]string{"": "50", "within_limit_": "51", "near_limit_": "52", "over_limit_": "53", "shadow_mode_": "54"} {
		want[`offpath_envoy_`+kind+`hits_total{descriptor="a_b.c",domain="d"}`] = value
	}
	for name, value := range want {
		equal(t, name, got[name], value)
		delete(got, name)
	}
	equal(t, "metrics that are not expected", fmt.Sprint(got), "map[]")
	stats.Checker.Heard = 0
	if age, ok := values(t, m)["offpath_refresh_age_seconds"]; ok {
		t.Errorf("nobody was ever heard, yet the age is %s", age)
	}
}

// values returns what a collector collects, by name and labels, as /metrics has it.
func values(t *testing.T, c prometheus.Collector) map[string]string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	must(t, registry.Register(c))
	page := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	equal(t, "status", page.Code, 200)
	return series(page.Body.String())
}

// series are the lines of a page of metrics, by what is before the value.
func series(page string) map[string]string {
	all := make(map[string]string)
	for line := range strings.Lines(strings.TrimSpace(page)) {
		if name, value, _ := strings.Cut(strings.TrimSpace(line), " "); name != "#" {
			all[name] = value
		}
	}
	return all
}

// TestSeriesAreBounded: as many as docs/operations_metrics.md promises, whatever the number of
// rules; and all well named, by Prometheus' own rules.
func TestSeriesAreBounded(t *testing.T) {
	const mostSeries = 2600
	stats := offpath.Stats{
		ByLabel: make(map[string]check.RuleStats), Rules: offpath.RulesState{Loaded: time.Now()},
		RulesCache: new(offpath.CacheState), BlocksCache: new(offpath.CacheState),
	}
	stats.Checker.Heard = time.Second
	for i := range rulelabel.Most + 2 { // others, and removed ones
		stats.ByLabel[fmt.Sprint("r", i)] = check.RuleStats{Allowed: 1}
	}
	n := 9*4 + 2*4 + 1      // files of certificates and secrets, both logs of denials, the build
	n += 4*27 + 2*17 + 6*12 // requests by status of HTTP and gRPC, and their times
	for _, c := range []prometheus.Collector{
		metrics{func() offpath.Stats { return stats }, func() bool { return true }, func() uint64 { return 0 }, 10},
		quotaMetrics{func() envoyquota.Stats { return envoyquota.Stats{} }},
		envoyMetrics{func() []envoylimit.Hits { return nil }}, newReportTimes(),
	} {
		n += len(values(t, c))
		if problems, err := testutil.CollectAndLint(c); err != nil || len(problems) > 0 {
			t.Errorf("%v, %v", problems, err)
		}
	}
	if n > mostSeries || n < 10*rulelabel.Most {
		t.Errorf("%d series", n)
	}
}

// A report's time is observed once, when it is answered, and who traces it is told all.
func TestReportsAreTimed(t *testing.T) {
	took := newReportTimes()
	var events []check.TraceEvent
	traced := func(shard uint32, sequence uint64, keys int) (string, func(check.TraceEvent)) {
		return fmt.Sprint(shard, sequence, keys), func(e check.TraceEvent) { events = append(events, e) }
	}
	all := []check.TraceEvent{check.TraceRefused, check.TraceRepeated, check.TraceAnswered, check.TraceMerged}
	untraced := func(uint32, uint64, int) (string, func(check.TraceEvent)) { return "", nil }
	for i, next := range []check.Tracing{traced, untraced, nil} {
		name, follow := timed(took, next)(1, 2, 3)
		equal(t, "traceparent", name, []string{"1 2 3", "", ""}[i])
		time.Sleep(3 * time.Millisecond)
		for _, e := range all {
			follow(e)
		}
	}
	_, givenUp := timed(took, nil)(1, 3, 3)
	givenUp(check.TraceGivenUp)
	equal(t, "events", fmt.Sprint(events), fmt.Sprint(all))
	got := values(t, took)
	equal(t, "reports", got["offpath_report_seconds_count"], "3")
	equal(t, "reports of less than 2 ms", got[`offpath_report_seconds_bucket{le="0.002"}`], "0")
}
