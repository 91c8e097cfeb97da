package torture

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/offpath-io/offpath/internal/testing/membus"
	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
)

const (
	ms     = int64(time.Millisecond)
	second = int64(time.Second)
	never  = int64(1<<63 - 1)

	checkers = 4
	oneWay   = 2 * time.Millisecond // of every message, without faults

	// meeting is how long the fleet has to get to know each other: aggregators listen for 2.5 s
	// before they say how many checkers there are, and checkers ask every 2 s.
	meeting = 5 * second
	// faulty, recovery, calm and silence are the parts of a round.
	faulty   = 20 * second
	recovery = 5 * second
	calm     = 3 * second
	silence  = 5 * second
	// forgetting is after how long a checker has let go of keys that nobody asks for: 35 s, and
	// some more until it looks.
	forgetting = 45 * second
	// lookEvery is how often the judge looks at the fleet.
	lookEvery = 50 * ms

	// As in the loops of production: a checker steps a millisecond after its last step at the
	// earliest, and an aggregator when its first request has waited for so long.
	stepFloor    = ms
	gather       = 2 * ms
	gatherLeases = ms
)

// epoch is the virtual time at which schedules begin, more or less.
var epoch = time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC).UnixNano()

// world is a fleet in virtual time.
type world struct {
	o       Options
	seed    uint64
	rand    *rand.Rand
	start   int64
	now     int64
	due     int64 // when something next happens by itself
	bus     *membus.Bus
	memory  memstore.Memory
	store   *store
	slots   []*slot // of checkers
	crew    []*worker
	plan    []action
	planned int   // actions so far
	soonest int64 // when the first of plan is

	shards    int
	gap       float64 // the mean time between two faults, in ns
	losing    bool    // the store may lose data
	remembers bool    // what aggregators know of it outlives them
	jumpy     bool    // clocks of running checkers may be set
	trusts    bool    // aggregators read the rules themselves
	net       network
	mended    int64 // when the round's faults end
	sides     splits
	rules     ruleBook
	lives     []*life // all checkers that there ever were
	epochs    uint64

	noticedAt []int64 // for each loss of the store, how often one had been noticed before
	tellable  int64   // how many must have been noticed, as checkers could
	// noticedByGone is how many of the store's losses aggregators had noticed that run no more.
	noticedByGone int64

	judge
	traffic
	result Result
}

// action is something that happens at a time that is known beforehand.
type action struct {
	at    int64
	order int
	do    func()
}

func newWorld(o Options, seed uint64) *world {
	w := &world{o: o, seed: seed, rand: rand.New(rand.NewPCG(seed, 0x746f7274757265))}
	w.bus = membus.New(membus.Options{Seed: seed, Faults: membus.Faults{Delay: oneWay}})
	w.start = epoch + w.rand.Int64N(6*3600*second)
	w.now = w.start
	w.remembers = seed%6 != 5
	w.losing, w.jumpy, w.trusts = seed%3 == 2, seed%6 == 4, seed%2 == 0
	w.gap = 0.8e9 * math.Pow(4, -w.rand.Float64()) // from 0.8 s down to 0.2 s
	w.store = newStore(w)
	w.shards = 1 + w.rand.IntN(3)
	w.result.Faults = make(map[string]int64)
	w.rules.init(w)
	w.judge.init(w)
	w.traffic.init(w)
	for i := range 2 + w.rand.IntN(2) {
		w.crew = append(w.crew, &worker{number: i})
		w.startWorker(i, 0)
	}
	for i := range checkers {
		w.slots = append(w.slots, &slot{world: w, number: i})
		w.startChecker(w.slots[i])
	}
	return w
}

// run plays the schedule.
func (w *world) run() {
	w.every(lookEvery, w.look)
	w.advance(w.now + meeting)
	w.ask(w.now + 2*second)
	for range w.o.Rounds {
		w.inject(w.now + faulty)
		w.ask(w.now + faulty)
		w.mend()
		w.ask(w.now + recovery)
		w.recovered()
		before := w.result.StrictHits
		w.ask(w.now + calm)
		w.stillPermits(before)
		w.advance(w.now + silence)
		w.atRest()
	}
	w.advance(w.now + forgetting)
	w.forgotten()
}

// at plans an action.
func (w *world) at(t int64, do func()) {
	w.planned++
	w.plan = append(w.plan, action{max(t, w.now), w.planned, do})
	w.soonest = min(w.soonest, t)
	w.due = min(w.due, t)
}

// every plans one again and again.
func (w *world) every(d int64, do func()) {
	var again func()
	again = func() {
		do()
		w.at(w.now+d, again)
	}
	w.at(w.now, again)
}

// act does what was planned for now, and returns when the next action is.
func (w *world) act() (next int64) {
	if w.now < w.soonest {
		return w.soonest
	}
	for {
		first, next := -1, never
		for i, a := range w.plan {
			if a.at < next || a.at == next && a.order < w.plan[first].order {
				first, next = i, a.at
			}
		}
		if w.soonest = next; next > w.now {
			return next
		}
		do, last := w.plan[first].do, len(w.plan)-1
		w.plan[first] = w.plan[last]
		w.plan = w.plan[:last]
		do()
	}
}

// advance lets everything happen that is due before a time, and moves to it.
func (w *world) advance(until int64) {
	for w.due <= until {
		w.now = max(w.now, w.due)
		w.due = never
		next := w.act()
		w.deliver(&next)
		for _, k := range w.crew {
			next = min(next, w.stepWorker(k))
		}
		for _, s := range w.slots {
			if s.life != nil {
				next = min(next, w.stepChecker(s.life))
			}
		}
		w.deliver(&next)
		w.due = min(w.due, next)
	}
	w.now = until
}

// deliver delivers messages that are due, and brings next forward to the next one.
func (w *world) deliver(next *int64) {
	if t, ok := w.bus.Step(w.now); ok {
		*next = min(*next, t)
	}
}

func drain(inbox []func()) []func() {
	for _, receive := range inbox {
		receive()
	}
	clear(inbox)
	return inbox[:0]
}

// between draws a number.
func (w *world) between(least, most int64) int64 { return least + w.rand.Int64N(most-least+1) }
