package fleet

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/offpath-io/offpath/loadtest/pace"
	"github.com/offpath-io/offpath/loadtest/scenario"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/rules"
)

// plan is all hits of a run, each checker's by itself, drawn beforehand so that drawing costs
// nothing while the run is on.
type plan struct {
	traffic *scenario.Traffic
	hits    [][]scenario.Hit // by checker, in order of time
	texts   []string         // by key
	rules   []int            // by key
}

// newPlan returns nil if there are more hits than that.
func newPlan(sc *scenario.Scenario, traffic *scenario.Traffic, most int) *plan {
	p := &plan{traffic: traffic, hits: make([][]scenario.Hit, sc.Checkers)}
	for {
		h, ok := traffic.Next()
		if !ok {
			return p
		}
		if most--; most < 0 {
			return nil
		}
		p.hits[h.Checker] = append(p.hits[h.Checker], h)
		for int(h.Key) >= len(p.texts) {
			p.texts, p.rules = append(p.texts, ""), append(p.rules, 0)
		}
		p.texts[h.Key], p.rules[h.Key] = traffic.Text(h.Key), traffic.Rule(h.Key)
	}
}

// decided is one hit's outcome.
type decided struct {
	at      int64 // just before the decision; under strict enforcement just after, as it may have waited
	hit     scenario.Hit
	allowed bool
}

// driver asks one checker, hit by hit.
type driver struct {
	checker *checker
	plan    *plan
	hits    []scenario.Hit
	start   int64 // own time of the start of the warm-up
	from    int64 // and of the measured part
	to      int64
	acquire time.Duration // how long strict hits wait

	newPause func() pace.Pauser

	mu      sync.Mutex // for everything below: hits that wait are decided later
	waiting sync.WaitGroup
	decided []decided
	planned int64                   // hits that were due in the measured part
	missed  int64                   // those of them that were asked after it
	took    *hdrhistogram.Histogram // ns, of the measured part
	late    *hdrhistogram.Histogram
}

// Longest times that the histograms tell apart from longer ones.
const (
	longestDecision = int64(10 * time.Second)
	longestLateness = int64(10 * time.Minute)
)

func newDriver(c *checker, p *plan, number int, start, from, to int64) *driver {
	return &driver{
		checker: c, plan: p, hits: p.hits[number], start: start, from: from, to: to,
		decided: make([]decided, 0, len(p.hits[number])),
		took:    hdrhistogram.New(1, longestDecision, 3),
		late:    hdrhistogram.New(1, longestLateness, 3),

		newPause: pace.New,
	}
}

// run asks for every hit at its time, or as soon after it as it can: hits that are overdue are
// asked for one after the other, none is left out.
func (d *driver) run(ctx context.Context) {
	fine := d.newPause()
	defer fine.Close()
	defer d.waiting.Wait()
	for i, h := range d.hits {
		due := d.start + h.At
		if wait := due - ownTime(); wait > 0 {
			if !pace.Until(ctx, time.Now().Add(time.Duration(wait)), fine) {
				return
			}
		} else if i%256 == 0 && ctx.Err() != nil {
			return
		}
		d.ask(ctx, h, due)
	}
}

func (d *driver) ask(ctx context.Context, h scenario.Hit, due int64) {
	limiter, text := d.checker.Limiters[d.plan.rules[h.Key]], d.plan.texts[h.Key]
	strict := limiter.Rule().Enforcement == rules.Strict
	begin := ownTime()
	allowed := limiter.Check(text, int64(h.Cost)).Allowed
	end := ownTime()
	switch {
	case !strict:
		d.note(decided{begin, h, allowed}, due, begin, end)
	case allowed || d.acquire == 0:
		d.note(decided{end, h, allowed}, due, begin, end)
	default:
		d.waiting.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, d.acquire)
			defer cancel()
			// The error says no more than the decision.
			r, _ := d.checker.Wait(ctx, check.Request{Limiter: limiter, Key: text, Cost: int64(h.Cost)})
			end := ownTime()
			d.note(decided{end, h, r.Allowed}, due, begin, end)
		})
	}
}

// note takes down a decision on a hit that was due, and was asked for from begin to end.
func (d *driver) note(one decided, due, begin, end int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.decided = append(d.decided, one)
	if due >= d.from {
		d.planned += int64(one.hit.Cost)
		if begin >= d.to {
			d.missed += int64(one.hit.Cost)
		}
	}
	if begin >= d.from && begin < d.to {
		_ = d.took.RecordValue(min(max(end-begin, 1), longestDecision)) // within its bounds
		_ = d.late.RecordValue(min(max(begin-due, 1), longestLateness))
	}
}

// clockCost returns the median time between two readings of the clock with nothing between them.
func clockCost() float64 {
	h := hdrhistogram.New(1, longestDecision, 3)
	for range 20_000 {
		begin := ownTime()
		_ = h.RecordValue(min(max(ownTime()-begin, 1), longestDecision))
	}
	return float64(h.ValueAtQuantile(50))
}

// hammer asks as fast as all cores can, for a time, for the plan's hits over and over, each at its
// checker and of cost 1. It returns how many decisions there were, and how many hits were admitted.
func hammer(ctx context.Context, checkers []*checker, p *plan, cores int, length time.Duration) (decisions, admitted int64, took time.Duration) {
	var asked, passed atomic.Int64
	var stopped atomic.Bool
	begin := ownTime()
	timer := time.AfterFunc(length, func() { stopped.Store(true) })
	defer timer.Stop()
	defer context.AfterFunc(ctx, func() { stopped.Store(true) })()
	var running sync.WaitGroup
	for core := range cores {
		running.Go(func() {
			n, yes := p.hammer(checkers, core, cores, &stopped)
			asked.Add(n)
			passed.Add(yes)
		})
	}
	running.Wait()
	return asked.Load(), passed.Load(), time.Duration(ownTime() - begin)
}

// hammer is one core's part: its share of the checkers, or, if there are fewer than cores, all of
// them.
func (p *plan) hammer(checkers []*checker, core, cores int, stopped *atomic.Bool) (asked, passed int64) {
	if len(checkers) < cores {
		core, cores = 0, 1
	}
	for {
		begun := asked
		for number := core; number < len(checkers); number += cores {
			limiters := checkers[number].Limiters
			for i, h := range p.hits[number] {
				if i%64 == 0 && stopped.Load() {
					return asked, passed
				}
				asked++
				if limiters[p.rules[h.Key]].Check(p.texts[h.Key], 1).Allowed {
					passed++
				}
			}
		}
		if asked == begun { // no hits for this core's checkers
			return asked, passed
		}
	}
}
