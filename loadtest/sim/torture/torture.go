// Package torture plays random schedules of faults on a fleet in virtual time, and checks what must
// hold: no hit is lost or counted twice without a cause that has a name, strict limits are never
// exceeded, other limits within their documented bounds, and the fleet recovers by itself.
//
// A *seed* decides a whole schedule: the size of the fleet, its traffic, and which faults come
// when. A schedule has *rounds*: faults for 20 s, a few seconds to recover, some traffic without
// faults, and silence; then the fleet is at *rest* and the books are checked. Checkers and
// aggregators are those of production, stepped by hand; store and network are in memory. The same
// seed gives the same result, whatever else runs.
//
// A *life* is a checker or an aggregator from its start until it is killed or leaves. A *slot* is
// the place of one checker or aggregator, which has one life after the other.
package torture

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

// Options say which schedules are played.
type Options struct {
	// Seed is the first seed, and Seeds how many are played, one after the other; at least 1.
	Seed  uint64
	Seeds int
	// Rounds of each schedule, default 3.
	Rounds int
	// Progress, if not nil, is called after each seed, from one goroutine at a time, with how many
	// are done.
	Progress func(done, all int)
	// Log, if not nil, is called with each fault as it happens: when, since the schedule's
	// beginning, and for how long it is meant to last. It is for runs of one seed.
	Log func(at, lasts time.Duration, fault string)

	mutation mutation // of tests
}

// mutation is a defect that a test plants, to see that it is found.
type mutation int

const (
	sound          mutation = iota
	forgetsMarks            // the store forgets which reports it has counted
	countsTwice             // an aggregator adds each twentieth batch twice
	strictAsAsync           // strict rules are enforced as others
	limitsDoubled           // checkers decide by twice the limit
	losesSilently           // the store answers each twentieth batch without adding it
	hidesLosses             // the store's versions never show that it has lost anything
	grantsNothing           // the store grants no permits
	deafToAlarms            // checkers hear no totals
	neverRecovers           // network faults do not end
	breaksDown              // a checker panics
	wrongFleetTime          // one checker's hellos are answered with a wrong time
)

// Result is what was played, and what did not hold.
type Result struct {
	// Seeds played, from First on; fewer than asked for if the run was interrupted.
	Seeds int    `json:"seeds"`
	First uint64 `json:"first_seed"`
	// Faults that happened, by kind, and in all.
	Faults    map[string]int64 `json:"faults"`
	AllFaults int64            `json:"all_faults"`
	// Requests asked and hits admitted, and what became of those that are in no count now.
	Requests int64 `json:"requests"`
	Admitted int64 `json:"admitted"`
	// StrictHits are those of the admitted that strict rules let pass. StrictJudged are those of
	// them that were held against the limit: the store had not lost data that it had acknowledged,
	// no machine that was suspended had passed some without knowing, and the slice of time was
	// known.
	StrictHits   int64 `json:"strict_hits"`
	StrictJudged int64 `json:"strict_judged_hits"`
	// StrictSeeds are those in which every hit of a strict rule was judged.
	StrictSeeds int   `json:"strict_seeds"`
	Late        int64 `json:"late"`
	Refused     int64 `json:"refused"`
	LostByKills int64 `json:"lost_by_kills"`
	LostByStore int64 `json:"lost_by_store"`
	GivenUp     int64 `json:"given_up"`
	// Calm hits passed without a fault lately, under the tight bound; CalmOver is the most that a
	// limit was exceeded by them, as a share of it. Slow are those of the calm hits at whose time a
	// checker still reported less often, since answers to it had been slow; SlowOver is of these.
	Calm     int64   `json:"calm_hits"`
	CalmOver float64 `json:"calm_over"`
	Slow     int64   `json:"slow_hits"`
	SlowOver float64 `json:"slow_over"`
	// TimeSteps is how often the fleet's time may have stepped with the store's clock.
	TimeSteps int64 `json:"time_steps"`
	// TimeMoves is how often it has moved with that by less than an aggregator knew it to.
	TimeMoves int64 `json:"time_moves"`
	// VirtualSeconds is how long all schedules were.
	VirtualSeconds float64     `json:"virtual_seconds"`
	Violations     []Violation `json:"violations"`
}

// Violation is something that must not have happened.
type Violation struct {
	Seed uint64 `json:"seed"`
	// At is when it was noticed, in virtual seconds since the schedule's beginning.
	At float64 `json:"at"`
	// Invariant is which one it violates, and Figures what was seen.
	Invariant string `json:"invariant"`
	Figures   string `json:"figures"`
	// Command repeats it.
	Command string `json:"command"`
}

// String is one line.
func (v Violation) String() string {
	return fmt.Sprintf("seed %d, %.3f s in: %s: %s", v.Seed, v.At, v.Invariant, v.Figures)
}

// add adds the result of a later seed.
func (r *Result) add(o Result) {
	if r.Faults == nil {
		r.Faults = make(map[string]int64)
	}
	for _, name := range kinds() {
		r.Faults[name] += o.Faults[name]
		r.AllFaults += o.Faults[name]
	}
	r.Seeds += o.Seeds
	r.Requests += o.Requests
	r.Admitted += o.Admitted
	r.StrictHits += o.StrictHits
	r.StrictJudged += o.StrictJudged
	r.StrictSeeds += o.StrictSeeds
	r.Late += o.Late
	r.Refused += o.Refused
	r.LostByKills += o.LostByKills
	r.LostByStore += o.LostByStore
	r.GivenUp += o.GivenUp
	r.Calm += o.Calm
	r.Slow += o.Slow
	r.SlowOver = max(r.SlowOver, o.SlowOver)
	r.TimeSteps += o.TimeSteps
	r.TimeMoves += o.TimeMoves
	r.CalmOver = max(r.CalmOver, o.CalmOver)
	r.VirtualSeconds += o.VirtualSeconds
	r.Violations = append(r.Violations, o.Violations...)
}

// Run plays seeds on all cores, and adds up their results in order. If ctx is done before the end,
// the result is of the seeds that were finished without a gap.
func Run(ctx context.Context, o Options) Result {
	o.Seeds = max(o.Seeds, 1)
	if o.Rounds == 0 {
		o.Rounds = 3
	}
	var (
		mu      sync.Mutex
		next    int
		done    int
		results = make([]*Result, o.Seeds)
		running sync.WaitGroup
	)
	for range min(runtime.GOMAXPROCS(0), o.Seeds) {
		running.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				if i >= o.Seeds || ctx.Err() != nil {
					return
				}
				r := play(o, o.Seed+uint64(i))
				mu.Lock()
				results[i] = &r
				done++
				if o.Progress != nil {
					o.Progress(done, o.Seeds)
				}
				mu.Unlock()
			}
		})
	}
	running.Wait()
	sum := Result{First: o.Seed, Violations: []Violation{}}
	for _, r := range results {
		if r == nil {
			break
		}
		sum.add(*r)
	}
	return sum
}

// play plays one seed. A panic is a violation like any other.
func play(o Options, seed uint64) (r Result) {
	w := newWorld(o, seed)
	defer func() {
		if p := recover(); p != nil {
			w.violate("no panic", "%v\n%s", p, debug.Stack())
		}
		r = w.result
		r.Seeds, r.VirtualSeconds = 1, time.Duration(w.now-w.start).Seconds()
		if r.StrictJudged == r.StrictHits {
			r.StrictSeeds = 1
		}
	}()
	w.run()
	return r
}
