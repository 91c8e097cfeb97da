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
	"github.com/offpath-io/offpath/loadtest/sim"
	"github.com/offpath-io/offpath/pkg/rules"
)

func scenarioOf(t testing.TB, name string, s scenario.Settings) *scenario.Scenario {
	t.Helper()
	list, ok := scenario.Builtin(name, s)
	if !ok {
		t.Fatalf("no scenario %q", name)
	}
	list[0].Warmup = min(list[0].Warmup, time.Second)
	return &list[0]
}

func live(t testing.TB, sc *scenario.Scenario, o Options) result.Run {
	t.Helper()
	o.Hammer = 200 * time.Millisecond
	r, err := Run(context.Background(), sc, o)
	if err != nil {
		t.Fatal(err)
	}
	complete(t, r)
	return r
}

// complete holds that a run has all figures of a live run, and that no hit was lost or counted twice.
func complete(t testing.TB, r result.Run) {
	t.Helper()
	c := r.Conservation
	if !c.Holds || c.Admitted < r.Admitted || c.Admitted != c.Counted+c.Late || r.Hits != r.Admitted+r.Denied || r.Hits == 0 {
		t.Errorf("%d hits, %d admitted, %d denied; %+v", r.Hits, r.Admitted, r.Denied, c)
	}
	if r.DecisionNS.P50 == nil || *r.DecisionNS.P50 <= 0 || *r.DecisionNS.Max < *r.DecisionNS.P999 || len(r.DecisionNS.Curve) < 5 ||
		r.LateMS == nil || *r.ClockNS <= 0 || r.ReportsPer1000 <= 0 || r.StoreCommandsPer1000 <= 0 ||
		r.ReportBytesPer1000 <= r.ReportsPer1000 || r.RefreshBytes <= 0 || r.Memory.CheckerBytes == nil || *r.Memory.CheckerBytes < 50 {
		t.Errorf("figures are missing: %+v", r)
	}
	if !r.Interrupted && (r.DecisionsPerSecond == nil || *r.DecisionsPerSecond != *r.DecisionsPerSecondPerCore*float64(runtime.GOMAXPROCS(0))) {
		t.Errorf("decisions per second: %v", r.DecisionsPerSecond)
	}
	if peak := slices.Max(r.Timeline.Ours); peak-1 < r.OverWorstWindow-1e-9 {
		t.Errorf("the timeline's peak is %v, the worst window is over by %v", peak, r.OverWorstWindow)
	}
}

// TestAgreesWithTheSimulation: steady load on a live fleet and in virtual time, with the same hits, come
// to the same within 6 % of what was admitted, 20 points of the worst window, 10 points of wrong
// decisions, and 40 % of the number of reports. The live fleet is a real one on a machine that does
// other things too, so the median of three runs counts.
func TestAgreesWithTheSimulation(t *testing.T) {
	if testing.Short() {
		t.Skip("how exact a live fleet is depends on its speed; make test runs this by itself and without the race detector")
	}
	sc := scenarioOf(t, "steady", scenario.Settings{Duration: new(4 * time.Second)})
	var alive, virtual []result.Run
	for seed := range uint64(3) {
		alive = append(alive, live(t, sc, Options{Seed: seed}))
		r, err := sim.Run(context.Background(), sc, sim.Options{Seed: seed, Delay: 200 * time.Microsecond})
		if err != nil {
			t.Fatal(err)
		}
		virtual = append(virtual, r)
	}
	for _, figure := range []struct {
		name     string
		of       func(result.Run) float64
		absolute float64
		relative float64
	}{
		{"hits", func(r result.Run) float64 { return float64(r.Hits) }, 0, 0.03},
		{"admitted", func(r result.Run) float64 { return float64(r.Admitted) }, 0, 0.06},
		{"over_worst_window", func(r result.Run) float64 { return r.OverWorstWindow }, 0.20, 0},
		{"wrong_allow_share", func(r result.Run) float64 { return r.WrongAllowShare }, 0.10, 0},
		{"false_denial_share", func(r result.Run) float64 { return r.FalseDenialShare }, 0.02, 0},
		{"reports_per_1000_hits", func(r result.Run) float64 { return r.ReportsPer1000 }, 0, 0.4},
	} {
		a, v := median(alive, figure.of), median(virtual, figure.of)
		if max(a-v, v-a) > figure.absolute+figure.relative*v {
			t.Errorf("%s: live %v, simulated %v", figure.name, a, v)
		}
	}
}

func median(runs []result.Run, of func(result.Run) float64) float64 {
	var all []float64
	for _, r := range runs {
		all = append(all, of(r))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// TestAlignedStart: a run begins at the phase of the window, by the fleet's time, that the seed or the
// scenario says; and soon.
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

// TestMergedHistograms: percentiles are of all drivers' decisions together, not of their percentiles.
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

// thrice runs a scenario three times. A live fleet is on a machine that does other things too, and a clock that stands still for 100 ms is
// seen in a run of 2 s: the median counts.
func thrice(t *testing.T, sc *scenario.Scenario, o Options) (runs []result.Run) {
	t.Helper()
	for seed := range uint64(3) {
		o.Seed = seed
		runs = append(runs, live(t, sc, o))
	}
	return runs
}

// TestOneChecker: with one checker, which knows all there is to know, what is left is how coarse its
// clock is.
func TestOneChecker(t *testing.T) {
	sc := scenarioOf(t, "steady", scenario.Settings{Checkers: new(1), Duration: new(2 * time.Second)})
	runs := thrice(t, sc, Options{})
	for name, bound := range map[string]struct {
		of   func(result.Run) float64
		most float64
	}{
		"over or under in all": {func(r result.Run) float64 { return max(r.OverTotal, -r.OverTotal) }, 0.03},
		"over, worst window":   {func(r result.Run) float64 { return r.OverWorstWindow }, 0.03},
		"wrongly allowed":      {func(r result.Run) float64 { return r.WrongAllowShare }, 0.01},
	} {
		if got := median(runs, bound.of); got > bound.most {
			t.Errorf("alone, %s: %v, want %v at most", name, got, bound.most)
		}
	}
	for _, r := range runs {
		if r.RefreshLagMS.Samples != 0 {
			t.Errorf("a lag between one checker and itself: %+v", r.RefreshLagMS)
		}
	}
}

// TestTheFleetsClock: hits are counted by the store's time, so that is what they are judged by. By this
// machine's, a fixed window would seem to begin 400 ms late.
func TestTheFleetsClock(t *testing.T) {
	sc := scenarioOf(t, "steady", scenario.Settings{Checkers: new(1), Duration: new(2 * time.Second)})
	sc.Rules[0].Window.Fixed = true
	runs := thrice(t, sc, Options{ahead: 400 * time.Millisecond})
	for name, bound := range map[string]struct {
		of          func(result.Run) float64
		least, most float64
	}{
		"over, worst window": {func(r result.Run) float64 { return r.OverWorstWindow }, -1, 0.05},
		"wrongly allowed":    {func(r result.Run) float64 { return r.WrongAllowShare }, 0, 0.01},
		"falsely denied":     {func(r result.Run) float64 { return r.FalseDenialShare }, 0, 0.05},
		"its clock, in ms":   {func(r result.Run) float64 { return r.ClockOffsetMS }, 390, 410},
	} {
		if got := median(runs, bound.of); got < bound.least || got > bound.most {
			t.Errorf("with a clock that is 400 ms ahead, %s: %v, want %v to %v", name, got, bound.least, bound.most)
		}
	}
}

func TestRedis(t *testing.T) {
	server := serverstest.Redis(t)
	sc := scenarioOf(t, "zipf", scenario.Settings{Duration: new(2 * time.Second)})
	r := live(t, sc, Options{Redis: server.URL()})
	if r.Params.Store != "redis" || r.RedisCallsPer1000 == nil || *r.RedisCallsPer1000 < r.StoreCommandsPer1000 {
		t.Errorf("store %s, %v commands and %v calls per 1,000 hits", r.Params.Store, r.StoreCommandsPer1000, r.RedisCallsPer1000)
	}
	if r.Memory.StoreBytes == nil || *r.Memory.StoreBytes < 10 || *r.Memory.StoreBytes > 1000 {
		t.Errorf("Redis takes %v bytes per key", r.Memory.StoreBytes)
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	if n, err := client.DBSize(context.Background()).Result(); err != nil || n != 0 {
		t.Errorf("%d keys are left behind in somebody's Redis; error %v", n, err)
	}

	r = live(t, scenarioOf(t, "steady", scenario.Settings{Duration: new(time.Second), Aggregators: new(1)}), Options{Redis: Embedded})
	if r.Params.Store != "redis" {
		t.Errorf("store %s", r.Params.Store)
	}
}

func TestNATS(t *testing.T) {
	server := serverstest.NATS(t)
	r := live(t, scenarioOf(t, "hop", scenario.Settings{Duration: new(time.Second)}), Options{NATS: server.URL()})
	if r.RefreshLagMS.Samples == 0 {
		t.Errorf("no lag was measured: %+v", r.RefreshLagMS)
	}
}

func TestDelay(t *testing.T) {
	sc := scenarioOf(t, "steady", scenario.Settings{Duration: new(2 * time.Second)})
	r := live(t, sc, Options{Delay: 60 * time.Millisecond, Jitter: 10 * time.Millisecond})
	if r.Params.DelayMS != 60 || *r.RefreshLagMS.P50 < 120 {
		t.Errorf("with 60 ms each way and %v ms on record the lag is %v ms", r.Params.DelayMS, *r.RefreshLagMS.P50)
	}
}

// TestInterrupted: what had been measured is there, and every hit accounted for.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	sc := scenarioOf(t, "steady", scenario.Settings{Duration: new(time.Hour), Load: new(0.5)})
	r, err := Run(ctx, sc, Options{Progress: func(done, _ time.Duration) {
		if done > 3*time.Second {
			cancel()
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	complete(t, r)
	if !r.Interrupted || r.MeasuredSeconds < 1 || r.MeasuredSeconds > 600 || r.DecisionsPerSecond != nil {
		t.Errorf("interrupted %v after %v s", r.Interrupted, r.MeasuredSeconds)
	}
}

// TestRedisDies: the decisions go on, and are reported; that their hits are not accounted for is an error.
func TestRedisDies(t *testing.T) {
	server := serverstest.Redis(t)
	sc := scenarioOf(t, "steady", scenario.Settings{Duration: new(2 * time.Second)})
	var once sync.Once
	r, err := Run(context.Background(), sc, Options{
		Redis: server.URL(), Hammer: time.Millisecond,
		Progress: func(done, _ time.Duration) {
			if done > 1500*time.Millisecond {
				once.Do(func() {
					if err := server.Kill(); err != nil {
						t.Error(err)
					}
				})
			}
		},
	})
	if err == nil || !strings.Contains(err.Error(), "unreported") || r.Hits < 9000 || r.Admitted == 0 || r.DecisionNS.P99 == nil || r.Conservation.Holds {
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
		"no NATS":    {Options{NATS: "nats://127.0.0.1:1", MeetingTimeout: soon}, "0 of 8 checkers have met an aggregator"},
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

// TestStrictWaits: bursts meet a cold key again and again; who waits for the permits gets more of them than who
// only asks, and every hit is accounted for.
func TestStrictWaits(t *testing.T) {
	sc := scenarioOf(t, "burst", scenario.Settings{
		Duration: new(3 * time.Second), Load: new(5.0), Enforcement: new(rules.Strict),
	})
	asks := live(t, sc, Options{Seed: 1})
	waits := live(t, sc, Options{Seed: 1, Acquire: 200 * time.Millisecond})
	if asks.Admitted >= waits.Admitted || asks.Hits != waits.Hits {
		t.Errorf("%d of %d hits pass without waiting, %d of %d with", asks.Admitted, asks.Hits, waits.Admitted, waits.Hits)
	}
}
