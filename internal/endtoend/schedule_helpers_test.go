package endtoend

import (
	"fmt"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/testing/membus"
	"github.com/offpath-io/offpath/pkg/events"
)

// Random schedules: one fleet per seed, through random traffic and accidents on a random bad
// network.

// seeds returns how many seeds a test plays: a few in the quick suite, more in the long one.
func seeds(quick, all uint64) uint64 {
	if testing.Short() {
		return quick
	}
	return all
}

// seen counts what the schedules of a test came across.
type seen map[string]int64

// all fails the test if something that the schedules are for has never happened.
func (s seen) all(t *testing.T) {
	t.Helper()
	t.Logf("%v", map[string]int64(s))
	for what, n := range s {
		expect(t, n != 0, "the schedules were too tame: nothing %s", what)
	}
}

func (s seen) note(what string, happened bool) {
	if happened {
		s[what]++
	}
}

// sum adds what only some tests are for.
func (s seen) sum(what string, n int64) {
	if n > 0 {
		s[what] += n
	}
}

// passed fails the test if less than one in so many requests passed.
func (s seen) passed(t *testing.T, oneIn int64) {
	t.Helper()
	expect(t, s["admitted"] >= s["asked"]/oneIn, "%d hits of %d requests passed: too few", s["admitted"], s["asked"])
}

// add takes in what became of a fleet's hits.
func (s seen) add(w *world) {
	s["asked"] += w.asked
	s["admitted"] += w.admitted
	s.sum("agreed", w.agreed)
	for _, c := range w.checkers {
		s["repeated reports"] += c.Stats().ReportsRepeated
		s.sum("repeated leases", c.Stats().LeasesRepeated)
	}
}

// pace is how often something happens in a schedule.
type pace struct {
	calm int           // one step in so many has an accident, perhaps
	step time.Duration // the longest one
	rare int           // one step in so many is followed by a long pause
	long time.Duration // the longest pause, which is longer than some windows
	// outage is for how long a node of the store is down at once, perhaps.
	outage time.Duration
}

var (
	rough = pace{1, 30 * time.Millisecond, 60, 4 * time.Second, 3 * time.Minute}
	mild  = pace{4, 30 * time.Millisecond, 60, 4 * time.Second, 3 * time.Minute}
)

// play takes random steps.
func (w *world) play(steps int, p pace, step func()) {
	for range steps {
		if w.rand.IntN(p.calm) == 0 {
			w.accident(p.outage)
		}
		step()
		w.pass(p.step)
		if w.rand.IntN(p.rare) == 0 {
			w.pass(p.long)
		}
	}
}

// end mends all faults, and holds the ledger against what was admitted. Then everybody has what he
// can know; then repeats of long ago arrive, and must change nothing.
func (w *world) end(then ...func()) {
	w.t.Helper()
	w.mend()
	w.conserved()
	for _, f := range then {
		f()
	}
	w.outlast()
	w.conserved()
}

// accident perhaps lets one happen, or ends one. That of a node may take as long as outage, all of
// it without a hit.
func (w *world) accident(outage time.Duration) {
	switch w.rand.IntN(40) {
	case 0:
		w.killWorker(w.rand.IntN(len(w.workers)))
	case 1: // the write arrives, the answer does not, and then the worker dies
		w.store.mode = storeCutOff
	case 2:
		w.store.mode = storeDown
	case 3, 4, 14, 15, 16:
		if w.store.mode == storeCutOff {
			w.killWorker(w.rand.IntN(len(w.workers)))
		}
		w.store.mode, w.store.dead = storeWorks, nil
	case 5:
		from, to := w.ways()
		w.bus.CutWays(w.anyone().name, from, to)
	case 6:
		from, to := w.ways()
		w.bus.CutWays("", from, to)
	case 7, 8, 9, 17, 18:
		w.connect()
	case 10:
		from, to := w.ways()
		w.anyWorker().cut = cut{from, to, w.rand.IntN(2) == 0}
		w.pass(2 * time.Second) // until others believe to own its shards
	case 19:
		w.connectWorkers()
	case 11:
		w.anyWorker().paused = w.now + w.rand.Int64N(int64(3*time.Second))
	case 12:
		w.store.mode = storeHangs
	case 13: // a node dies, for minutes perhaps, and all workers are replaced
		w.store.dead = map[uint32]bool{uint32(w.rand.IntN(w.shards)): true}
		for i := range w.workers {
			w.killWorker(i)
		}
		if w.rand.IntN(5) == 0 {
			w.pass(outage)
		}
	}
}

// ways are those in which a link is cut: one, or both.
func (w *world) ways() (from, to bool) {
	n := 1 + w.rand.IntN(3)
	return n != 1, n != 2
}

// counts are the messages whose loss, repeat and delay must not change any count. Hellos are not
// among them, so that all clocks agree and the truth is exact.
var counts = []events.Kind{events.KindReport, events.KindRefresh, events.KindAlarm}

// faultsOf makes a bad network for those messages.
func faultsOf(seed uint64) membus.Faults {
	pick := func(n, of uint64) float64 { return float64(seed/n%of) / float64(of) }
	return membus.Faults{
		Lose:         pick(3, 5) * 0.6,
		Repeat:       pick(5, 4) * 0.8,
		RepeatWithin: time.Second + time.Duration(pick(7, 3)*float64(4*time.Minute)),
		Delay:        time.Duration(pick(2, 3) * 15 * float64(time.Millisecond)),
		Jitter:       time.Duration(pick(11, 4) * 200 * float64(time.Millisecond)),
		Only:         counts,
	}
}

// faultsOfAll makes a bad network for all messages, in most cases one that permits arrive over in
// time.
func faultsOfAll(seed uint64) membus.Faults {
	f := faultsOf(seed)
	f.Only = nil
	if seed%5 < 3 {
		f.Lose, f.Jitter = f.Lose/8, f.Jitter/16
	}
	return f
}

func (w *world) anyone() *checker { return w.checkers[w.rand.IntN(len(w.checkers))] }

func (w *world) anyWorker() *worker { return w.workers[w.rand.IntN(len(w.workers))] }

func (w *world) key(of int) string { return fmt.Sprint("k", w.rand.IntN(of)) }

// cost is mostly 1.
func (w *world) cost() int64 {
	if w.rand.IntN(5) == 0 {
		return 1 + w.rand.Int64N(4)
	}
	return 1
}

func (w *world) randomHit() {
	w.asked++
	w.hit(w.anyone(), testRules[w.rand.IntN(len(testRules))].Name, w.key(4), w.cost())
}
