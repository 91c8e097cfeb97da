package fleet

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/loadtest/result"
	"github.com/offpath-io/offpath/loadtest/scenario"
)

func scenarioOf(t testing.TB, name string, s scenario.Settings) *scenario.Scenario {
	t.Helper()
	list, ok := scenario.Builtin(name, s)
	if !ok {
		t.Fatalf("no scenario %q", name)
	}
	list[0].Warmup = min(list[0].Warmup, list[0].Rules[0].Window.Length)
	return &list[0]
}

// live runs a scenario on the real clock. No hit may ever be lost or counted twice, and all figures
// are there; if one is missing it runs once more, twice as long, since a machine that stands still
// for the whole measured part has nothing to measure.
func live(t testing.TB, sc *scenario.Scenario, o Options) (r result.Run) {
	t.Helper()
	o.Hammer, o.MeetingTimeout = 20*time.Millisecond, time.Minute
	if testing.Short() {
		o.idleKeys = 1000 // a cache for a million is dear under the race detector
	}
	missing := ""
	for range 4 {
		var err error
		if r, err = Run(t.Context(), sc, o); err != nil {
			t.Fatal(err)
		}
		conserved(t, r)
		if missing = missingOf(r); missing == "" {
			return r
		}
		t.Logf("once more: %v have no %s", sc.Duration, missing)
		sc.Duration *= 2
	}
	t.Errorf("there is no %s: %+v", missing, r)
	return r
}

// conserved holds that no hit was lost or counted twice.
func conserved(t testing.TB, r result.Run) {
	t.Helper()
	c := r.Conservation
	if !c.Holds || c.Admitted < r.Admitted || c.Admitted != c.Counted+c.Late || r.Hits != r.Admitted+r.Denied {
		t.Errorf("%d hits, %d admitted, %d denied; %+v", r.Hits, r.Admitted, r.Denied, c)
	}
	if r.Hits > 0 && slices.Max(r.Timeline.Ours)-1 < r.OverWorstWindow-1e-9 {
		t.Errorf("the timeline's peak is %v, the worst window is over by %v", slices.Max(r.Timeline.Ours), r.OverWorstWindow)
	}
}

// missingOf names a figure that a live run should have, and this one has not.
func missingOf(r result.Run) string {
	d := r.DecisionNS
	switch {
	case r.Hits == 0:
		return "hit"
	case d.P50 == nil || *d.P50 <= 0 || *d.Max < *d.P999 || len(d.Curve) < 5:
		return "latency"
	case r.LateMS == nil || *r.ClockNS <= 0:
		return "lateness"
	case r.ReportsPer1000 <= 0 || r.StoreCommandsPer1000 <= 0 || r.ReportBytesPer1000 <= r.ReportsPer1000 || r.RefreshBytes <= 0:
		return "cost"
	case r.Memory.CheckerBytes == nil || *r.Memory.CheckerBytes < 50:
		return "memory"
	case r.DecisionsPerSecond == nil || *r.DecisionsPerSecond != *r.DecisionsPerSecondPerCore*float64(runtime.GOMAXPROCS(0)):
		return "decisions per second"
	}
	return ""
}

// TestAlignedStart: a run begins at the phase of the window, by the fleet's time, that the seed or
// the scenario says; and soon.
func TestAlignedStart(t *testing.T) {
	sc := scenarioOf(t, "steady", scenario.Settings{Window: new(2 * time.Second)})
	now := time.Date(2026, 11, 20, 12, 0, 1, 234, time.UTC).UnixNano()
	phases := make(map[int64]bool)
	for seed := range uint64(5) {
		for _, offset := range []time.Duration{0, 700 * time.Millisecond, -3 * time.Hour} {
			f := &fleet{o: Options{Seed: seed}}
			f.offset.Store(int64(offset))
			start := (&run{fleet: f, scenario: sc}).alignedStart(now)
			if wait := time.Duration(start - now); wait < 0 || wait > 2200*time.Millisecond {
				t.Errorf("seed %d: a wait of %v", seed, wait)
			}
			phases[(start+int64(offset))%int64(2*time.Second)] = true
		}
	}
	if len(phases) != 5 {
		t.Errorf("5 seeds have the phases %v", phases)
	}
	sc.Phase = new(123 * time.Millisecond)
	if got := (&run{fleet: &fleet{}, scenario: sc}).alignedStart(now) % int64(2*time.Second); got != int64(*sc.Phase) {
		t.Errorf("the phase is %v, want %v", time.Duration(got), *sc.Phase)
	}
}

// TestMergedHistograms: percentiles are of all drivers' decisions together, not of their
// percentiles.
func TestMergedHistograms(t *testing.T) {
	slow, quick := newDriver(nil, &plan{hits: make([][]scenario.Hit, 1)}, 0, 0, 0, 0), newDriver(nil, &plan{hits: make([][]scenario.Hit, 1)}, 0, 0, 0, 0)
	for range 99 {
		_, _ = quick.took.RecordValue(100), quick.late.RecordValue(7_000_000)
	}
	_, _ = slow.took.RecordValue(9000), slow.late.RecordValue(9_000_000)
	var got result.Run
	(&run{drivers: []*driver{slow, quick}}).times(&got, 20)
	if *got.DecisionNS.P90 != 100 || *got.DecisionNS.P99 != 100 || *got.DecisionNS.Max < 9000 || *got.ClockNS != 20 || got.LateMS.P99 > 7.1 || got.LateMS.Max < 9 {
		t.Errorf("p90 %v, p99 %v, max %v; late %+v", *got.DecisionNS.P90, *got.DecisionNS.P99, *got.DecisionNS.Max, got.LateMS)
	}
}

// quick are settings of 5,000 hits a second over some windows.
var quick = scenario.Settings{Window: new(100 * time.Millisecond), Limit: new(int64(100)), Duration: new(400 * time.Millisecond)}

// TestLive: every hit is accounted for, by a fleet with servers of its own and by one with somebody
// else's.
func TestLive(t *testing.T) {
	if r := live(t, scenarioOf(t, "steady", quick), Options{}); r.Params.Store != "memory" || r.RedisCallsPer1000 != nil {
		t.Errorf("store %s, %v calls", r.Params.Store, r.RedisCallsPer1000)
	}
	server := serverstest.Redis(t)
	r := live(t, scenarioOf(t, "hop", quick), Options{NATS: serverstest.NATS(t).URL(), Redis: server.URL()})
	if r.Params.Store != "redis" || r.RedisCallsPer1000 == nil || *r.RedisCallsPer1000 < r.StoreCommandsPer1000 {
		t.Errorf("store %s, %v commands and %v calls per 1,000 hits", r.Params.Store, r.StoreCommandsPer1000, r.RedisCallsPer1000)
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	if n, err := client.DBSize(t.Context()).Result(); err != nil || n != 0 {
		t.Errorf("%d keys are left behind in somebody's Redis; error %v", n, err)
	}
}

// TestStoreMemory: what a key takes in a Redis, if there are many.
func TestStoreMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("long: runs in make test-all")
	}
	sc := scenarioOf(t, "zipf", scenario.Settings{Duration: new(2 * time.Second)})
	r := live(t, sc, Options{Redis: Embedded})
	if r.Params.Store != "redis" {
		t.Errorf("store %s", r.Params.Store)
	}
	for try := 0; r.Memory.StoreBytes == nil && try < 3; try++ { // the machine had no time for as many keys
		sc.Duration *= 2
		r = live(t, sc, Options{Redis: Embedded})
	}
	if m := r.Memory.StoreBytes; m == nil || *m < 10 || *m > 1000 {
		t.Errorf("Redis takes %v bytes per key", m)
	}
}

// TestRedisDies: the decisions go on, and are reported; that their hits are not accounted for is an
// error.
func TestRedisDies(t *testing.T) {
	if testing.Short() {
		t.Skip("long: runs in make test-all")
	}
	server := serverstest.Redis(t)
	var once sync.Once
	kill := func() {
		if err := server.Kill(); err != nil {
			t.Error(err)
		}
	}
	sc := scenarioOf(t, "steady", scenario.Settings{Duration: new(10 * time.Second)}) // longer than a machine stands still
	r, err := Run(t.Context(), sc, Options{
		Redis: server.URL(), Hammer: time.Millisecond, Progress: func(time.Duration, time.Duration) { once.Do(kill) },
	})
	if err == nil || !strings.Contains(err.Error(), "unreported") || r.Hits == 0 || r.Admitted == 0 || r.Conservation.Holds {
		t.Errorf("error %v; %d hits, %d admitted; %+v", err, r.Hits, r.Admitted, r.Conservation)
	}
}

func TestFleetsThatDoNotComeTogether(t *testing.T) {
	sc := scenarioOf(t, "steady", scenario.Settings{Duration: new(time.Second)})
	soon := 300 * time.Millisecond
	for name, test := range map[string]struct {
		o    Options
		want string
	}{
		"no NATS":    {Options{NATS: "nats://127.0.0.1:1", MeetingTimeout: soon, idleKeys: -1}, "0 of 8 checkers have met an aggregator"},
		"no Redis":   {Options{Redis: "redis://127.0.0.1:1", MeetingTimeout: soon}, "Redis"},
		"no URL":     {Options{Redis: "127.0.0.1", MeetingTimeout: soon}, "not a URL"},
		"no NATS at": {Options{NATS: "nats://%", MeetingTimeout: soon}, "NATS"},
	} {
		if _, err := Run(context.Background(), sc, test.o); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want …%s…", name, err, test.want)
		}
	}
	many := scenarioOf(t, "steady", scenario.Settings{Limit: new(int64(10_000_000))})
	if _, err := Run(context.Background(), many, Options{}); err == nil || !strings.Contains(err.Error(), "too many for a live run") {
		t.Errorf("a billion hits: error %v", err)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
