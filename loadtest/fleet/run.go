package fleet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/offpath-io/offpath/loadtest/result"
	"github.com/offpath-io/offpath/loadtest/scenario"
	"github.com/offpath-io/offpath/loadtest/score"
	"github.com/offpath-io/offpath/loadtest/tap"
	"github.com/offpath-io/offpath/pkg/check"
)

// MostHits is the most hits of a live run: they are all drawn beforehand, at about 100 bytes each.
const MostHits = 10_000_000

// Run runs the scenario, which must be valid. If ctx is done before the end, the result is of what
// had been until then. An error beside a result that has hits says what fell apart meanwhile: the
// decisions were made all the same, but they are not all accounted for.
func Run(ctx context.Context, sc *scenario.Scenario, o Options) (result.Run, error) {
	traffic := scenario.New(sc, o.Seed)
	traces := score.NewTraces(sc, traffic)
	var p *plan
	if sc.Hits() <= 1.1*MostHits { // about; the rest is not worth drawing
		p = newPlan(sc, traffic, MostHits)
	}
	if p == nil {
		return result.Run{}, fmt.Errorf("more than %d hits: too many for a live run, but not for a simulation", MostHits)
	}
	o = o.withDefaults()
	f, err := start(ctx, sc, o, traces)
	if err != nil {
		return result.Run{}, err
	}
	defer f.end()
	r := &run{fleet: f, scenario: sc, plan: p}
	return r.run(ctx, traces)
}

// run is one run of a fleet.
type run struct {
	*fleet
	scenario *scenario.Scenario
	plan     *plan
	start    int64 // own time of the start of the warm-up
	from, to int64 // the measured part
	drivers  []*driver

	mu       sync.Mutex
	spent    [2]tap.Cost // at the beginning and the end of the measured part
	empty    *usage      // of Redis before the first hit; nil if it does not tell, or is not used
	used     [2]*usage
	measured [2]bool
}

func (r *run) run(ctx context.Context, traces []*tap.Trace) (result.Run, error) {
	r.start = r.alignedStart(ownTime())
	r.from = r.start + int64(r.scenario.Warmup)
	r.to = r.from + int64(r.scenario.Duration)
	offset := r.offset.Load()
	s := score.New(r.scenario, r.plan.traffic, r.start+offset)
	s.StartTraces(traces)
	clock := clockCost()
	r.empty = r.store.usage(ctx)
	r.drive(ctx)
	end, interrupted := min(ownTime(), r.to), ctx.Err() != nil
	var decisions, admitted int64
	var took time.Duration
	cores := runtime.GOMAXPROCS(0)
	if !interrupted && r.o.Hammer > 0 {
		decisions, admitted, took = hammer(ctx, r.checkers, r.plan, cores, r.o.Hammer)
	}
	r.drain()

	all := r.merged()
	for _, d := range all {
		s.Hit(d.at+offset, d.hit, d.allowed)
	}
	run := s.Run(end + offset)
	run.ClockOffsetMS = float64(offset) / 1e6
	run.Mode, run.Interrupted = result.Live, interrupted
	run.Params.Seed, run.Params.Store = r.o.Seed, r.store.kind()
	run.Params.DelayMS, run.Params.JitterMS = float64(r.o.Delay)/1e6, float64(r.o.Jitter)/1e6
	r.times(&run, clock)
	if decisions > 0 && took > 0 {
		run.DecisionsPerSecond = new(float64(decisions) / took.Seconds())
		run.DecisionsPerSecondPerCore = new(*run.DecisionsPerSecond / float64(cores))
		run.FullSpeedAdmittedShare = new(float64(admitted) / float64(decisions))
	}
	r.costs(&run)
	run.Memory.StoreBytes = r.storeMemory(all, end)
	run.RefreshLagMS = s.Lag(traces, end+offset)
	run.Memory.CheckerBytes = checkerMemory(r.scenario, r.plan)
	var err error
	run.Conservation, err = r.conservation(s.Admitted() + admitted)
	return run, errors.Join(r.failure(), err)
}

// longestWait is how long a run may wait for its phase.
const longestWait = time.Minute

// alignedStart returns when the warm-up begins: at a phase of the longest window, by the fleet's
// time, that the scenario or the seed has chosen. A window that is longer than the wait that one
// can ask of anybody is met as it comes.
func (r *run) alignedStart(now int64) int64 {
	soon := now + int64(100*time.Millisecond)
	length := r.scenario.Longest()
	if length > longestWait {
		return soon
	}
	phase := rand.New(rand.NewPCG(r.o.Seed, 0x6c697665)).Int64N(int64(length))
	if r.scenario.Phase != nil {
		phase = int64(*r.scenario.Phase)
	}
	soon += r.offset.Load()
	edge := soon - soon%int64(length)
	if edge+phase < soon {
		edge += int64(length)
	}
	return edge + phase - r.offset.Load()
}

// drive asks for all hits, takes stock at both ends of the measured part, and tells of the
// progress.
func (r *run) drive(ctx context.Context) {
	var driving, watching sync.WaitGroup
	for i, c := range r.checkers {
		d := newDriver(c, r.plan, i, r.start, r.from, r.to)
		d.acquire, d.newPause = r.o.Acquire, r.o.newPause
		r.drivers = append(r.drivers, d)
		driving.Go(func() { d.run(ctx) })
	}
	over, done := context.WithCancel(ctx)
	watching.Go(func() { r.watch(over) })
	for i, at := range []int64{r.from, r.to} {
		watching.Go(func() {
			if sleepUntil(over, at) {
				r.takeStock(i)
			}
		})
	}
	driving.Wait()
	sleepUntil(ctx, r.to)
	if ctx.Err() == nil {
		r.takeStock(1)
	}
	done()
	watching.Wait()
	if !r.measured[1] {
		r.takeStock(1)
	}
}

// sleepUntil waits until an own time; it returns false if ctx was done before.
func sleepUntil(ctx context.Context, at int64) bool {
	timer := time.NewTimer(time.Duration(at - ownTime()))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// takeStock notes what counting has cost until now; the first word counts.
func (r *run) takeStock(i int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.measured[i] {
		return
	}
	r.measured[i] = true
	r.spent[i] = r.cost()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	r.used[i] = r.store.usage(ctx)
}

// watch reports progress until ctx is done.
func (r *run) watch(ctx context.Context) {
	if r.o.Progress == nil {
		return
	}
	all := time.Duration(r.to - r.start)
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			r.o.Progress(min(max(time.Duration(ownTime()-r.start), 0), all), all)
		case <-ctx.Done():
			return
		}
	}
}

// merged returns all drivers' hits in order of time.
func (r *run) merged() []decided {
	var all []decided
	for _, d := range r.drivers {
		all = append(all, d.decided...)
	}
	slices.SortStableFunc(all, func(a, b decided) int { return int(min(max(a.at-b.at, -1), 1)) })
	return all
}

// times merges the drivers' distributions.
func (r *run) times(run *result.Run, clock float64) {
	took := hdrhistogram.New(1, longestDecision, 3)
	late := hdrhistogram.New(1, longestLateness, 3)
	for _, d := range r.drivers {
		took.Merge(d.took)
		late.Merge(d.late)
		run.PlannedHits += d.planned
		run.MissedHits += d.missed
	}
	if run.MeasuredSeconds > 0 {
		run.OfferedRate = float64(run.PlannedHits) / run.MeasuredSeconds
	}
	if took.TotalCount() > 0 {
		run.DecisionNS, run.ClockNS, run.LateMS = score.Latency(took), &clock, score.Lateness(late)
	}
}

func (r *run) costs(run *result.Run) {
	if !r.measured[0] {
		return // it was stopped before there was anything to measure
	}
	score.Cost(run, r.spent[1].Sub(r.spent[0]))
	if !sameLives(r.used[0], r.used[1]) || run.Hits == 0 {
		return
	}
	run.RedisCallsPer1000 = new(float64(r.used[1].calls-r.used[0].calls) * 1000 / float64(run.Hits))
}

// conservation looks for every admitted hit. The fleet has been drained.
func (r *run) conservation(admitted int64) (result.Conservation, error) {
	var stats []check.Stats
	for _, c := range r.checkers {
		stats = append(stats, c.Stats())
	}
	ctx, cancel := context.WithTimeout(context.Background(), ledgerTimeout)
	defer cancel()
	ledger, err := r.store.ledger(ctx)
	if err != nil {
		return result.Conservation{Admitted: admitted}, fmt.Errorf("read the ledger: %w", err)
	}
	return score.Conservation(admitted, stats, ledger), nil
}

const ledgerTimeout = 10 * time.Second
