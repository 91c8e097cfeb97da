package cmd_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/deploytest"
	"github.com/offpath-io/offpath/internal/testing/servers"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
)

// TestDrills does what the drills of docs/operations_drills.md do to a fleet of real processes
// under load, with a Prometheus that has deploy's alerts: those that the page names fire and then
// end, no request fails, and counting goes on.
func TestDrills(t *testing.T) {
	f := startDrilled(t)
	f.await("nothing")

	f.aggregators[0].Stop()
	f.awaitCounting(f.aggregators[1])
	f.await("TargetDown")
	f.staysQuiet("TargetDown")
	f.aggregators[1].Stop()
	f.await("CountingBehind NoAggregator RefreshStale TargetDown")
	f.startAggregators()
	f.await("nothing")

	must(t, f.server.Pause())
	f.await("CountingBehind NoAggregator RefreshStale StoreDown")
	if status, ready := f.aggregators[0].Get("/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(ready, "Redis") {
		t.Errorf("an aggregator without Redis: %d %s", status, ready)
	}
	must(t, f.server.Resume())
	f.await("nothing")

	must(t, f.server.Kill())
	f.await("NoAggregator RefreshStale StoreDown")
	must(t, f.server.Restart(t.Context())) // it has lost everything
	f.await("StoreLostData")
	f.await("nothing")
	f.awaitCounting(f.aggregators...)

	client := redis.NewClient(&redis.Options{Addr: f.server.Addr()})
	defer client.Close()
	must(t, client.FlushAll(t.Context()).Err()) // Redis goes on
	f.awaitCounting(f.aggregators...)
	f.await("StoreLostData")
	f.await("nothing")

	must(t, f.natsServer.Stop())
	f.await("NATSDown NoAggregator RefreshStale")
	must(t, f.natsServer.Restart())
	f.await("nothing")

	must(t, os.WriteFile(f.rules, []byte("rules: [{name: per-user, key: [user], limit: -1}]"), 0o600))
	f.await("RulesRefused")
	must(t, os.WriteFile(f.rules, []byte(drillRules), 0o600))
	f.await("nothing")

	if asked, failed := f.asked.Load(), f.failed.Load(); asked == 0 || failed > 0 {
		t.Errorf("%d requests, of which %d failed", asked, failed)
	}
}

const drillRules = "rules: [{name: per-user, key: [user], limit: 1000/hour}]\n"

// drilled is a fleet to break.
type drilled struct {
	fleet
	natsServer *servers.NATS
	server     *servers.Redis
	rules      string
	at         []string // where the aggregators' admin APIs are
	prometheus *servers.Program

	asked, failed atomic.Int64
}

func startDrilled(t *testing.T) *drilled {
	t.Helper()
	f := &drilled{
		natsServer: serverstest.NATS(t), server: serverstest.Redis(t),
		rules: writeFile(t, "rules.yaml", drillRules), at: []string{anyPort, anyPort},
	}
	f.fleet = fleet{T: t, nats: f.natsServer.URL(), redis: f.server.URL()}
	f.startAggregators()
	targets := slices.Clone(f.at)
	for range 2 {
		d := f.startChecker("--rules", f.rules, "--stale-after", "2", "--share-after", "4")
		d.AwaitMetric(`offpath_freshness{state="fresh"}`, "1")
		targets = append(targets, hostOf(d))
	}
	f.prometheus = startPrometheus(t, targets)
	f.awaitSeen(len(targets))
	ended := make(chan struct{})
	go func() { defer close(ended); f.load() }()
	t.Cleanup(func() { <-ended })
	return f
}

// startAggregators starts both where they were before, if they were.
func (f *drilled) startAggregators() {
	f.Helper()
	f.aggregators = nil
	for i, at := range f.at {
		f.at[i] = hostOf(f.startAggregator("--admin", at))
	}
}

func hostOf(d *daemontest.Daemon) string { return strings.TrimPrefix(d.Admin(), "http://") }

// load asks about 100 times a second until the test is over. A request fails unless it is answered
// as limits have it.
func (f *drilled) load() {
	for n := 0; f.Context().Err() == nil; n++ {
		time.Sleep(10 * time.Millisecond)
		body := fmt.Sprintf(`{"attributes":{"user":"u%d"}}`, n%20)
		answer, err := http.Post(doorOf(f.checkers[n%len(f.checkers)]), "application/json", strings.NewReader(body))
		if err == nil {
			_ = answer.Body.Close()
		}
		f.asked.Add(1)
		if err != nil || answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusTooManyRequests {
			f.failed.Add(1)
		}
	}
}

// startPrometheus starts one with deploy's alerts, which does not wait as long as they do until it
// is sure: each condition is the same.
func startPrometheus(t *testing.T, targets []string) *servers.Program {
	t.Helper()
	alerts := regexp.MustCompile(`for: \w+`).ReplaceAllString(deploytest.Read(t, "prometheus/alerts.yaml"), "for: 2s")
	alerts = regexp.MustCompile(`\[\d+m\]`).ReplaceAllString(alerts, "[30s]")
	alerts = strings.ReplaceAll(alerts, "< 600 #", "< 30 #") // the same, by a time stamp
	list, err := json.Marshal(targets)
	must(t, err)
	config := writeFile(t, "prometheus.yml", fmt.Sprintf("global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [%q]\n"+
		"scrape_configs: [{job_name: offpath, static_configs: [{targets: %s}]}]\n", writeFile(t, "alerts.yaml", alerts), list))
	// The server is a pinned tool of the module that checks deploy, without what discovers targets
	// in clouds.
	path := filepath.Join(t.TempDir(), "prometheus")
	build := exec.CommandContext(t.Context(), "go", "build", "-C", "../deploy/lint", "-tags", "remove_all_sd", "-o", path,
		"github.com/prometheus/prometheus/cmd/prometheus")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build prometheus: %v\n%s", err, out)
	}
	return serverstest.Program(t, servers.ProgramOptions{Name: path, Prepare: func(port int) ([]string, error) {
		return []string{
			"--config.file=" + config, "--storage.tsdb.path=" + t.TempDir(), fmt.Sprintf("--web.listen-address=127.0.0.1:%d", port),
		}, nil
	}})
}

// await waits until these alerts fire, and, for "nothing", none does although Prometheus has seen
// all parts.
func (f *drilled) await(want string) {
	f.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		firing := f.firing()
		missing := slices.DeleteFunc(strings.Fields(want), func(name string) bool { return slices.Contains(firing, name) })
		if want == "nothing" && len(firing) == 0 && f.fresh() || len(missing) == 0 {
			f.Logf("%s: %s", want, firing)
			return
		}
		if time.Now().After(deadline) {
			f.Fatalf("want %s, firing: %s", want, firing)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// quietPolls is how often an alert is looked for that must not fire, 200 ms apart: in all three
// times as long as alerts wait here.
const quietPolls = 30

// staysQuiet holds that no other alert fires, for long enough for one to have done so.
func (f *drilled) staysQuiet(but string) {
	f.Helper()
	for range quietPolls {
		if firing := f.firing(); slices.ContainsFunc(firing, func(name string) bool { return name != but }) {
			f.Fatalf("firing: %s", firing)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// awaitCounting waits until these have counted something more.
func (f *drilled) awaitCounting(by ...*daemontest.Daemon) {
	f.Helper()
	counted := func() (all []string) {
		for _, d := range by {
			all = append(all, d.Metric(`offpath_hits_total{outcome="counted",rule="per-user"}`))
		}
		return all
	}
	before := counted()
	by[0].Await("counting goes on", func() bool { return !slices.Equal(counted(), before) })
}

// awaitSeen waits until Prometheus has read all targets: it cannot miss what it has never seen.
func (f *drilled) awaitSeen(targets int) {
	f.Helper()
	want := fmt.Sprintf("%q", fmt.Sprint(targets))
	deadline := time.Now().Add(2 * time.Minute)
	for time.Now().Before(deadline) {
		_, answer := daemontest.Do(f.T, http.MethodGet, f.prometheus.URL()+"/api/v1/query?query=count(offpath_build_info)", "")
		if strings.Contains(answer, want) {
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
	f.Fatal("Prometheus has not read all targets")
}

// fresh says that both checkers hear of aggregators.
func (f *drilled) fresh() bool {
	isStale := func(d *daemontest.Daemon) bool { return d.Metric(`offpath_freshness{state="fresh"}`) != "1" }
	return !slices.ContainsFunc(f.checkers, isStale)
}

// firing are the names of the alerts that fire, sorted, without "Offpath".
func (f *drilled) firing() (names []string) {
	f.Helper()
	answer, err := http.Get(f.prometheus.URL() + "/api/v1/alerts")
	must(f.T, err)
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK { // it starts
		return []string{"none yet"}
	}
	var all struct {
		Data struct {
			Alerts []struct {
				State  string
				Labels map[string]string
			}
		}
	}
	must(f.T, json.NewDecoder(answer.Body).Decode(&all))
	for _, a := range all.Data.Alerts {
		if a.State == "firing" {
			names = append(names, strings.TrimPrefix(a.Labels["alertname"], "Offpath"))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
