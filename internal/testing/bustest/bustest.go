// Package bustest is the contract of a carrier of events, as a test suite that every carrier runs:
// whoever embeds a checker or an aggregator relies on nothing else.
package bustest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/events"
)

// Carrier makes ends of one and the same bus, which is at work already.
type Carrier interface {
	Checker(t *testing.T, name string) check.Link
	Worker(t *testing.T) aggregate.Bus
	// Settle returns once the bus has heard what its ends have told it: who listens to what.
	Settle(t *testing.T)
}

// Run runs the suite; start makes a new bus for each part of it.
func Run(t *testing.T, start func(t *testing.T) Carrier) {
	for name, test := range map[string]func(*testing.T, Carrier){
		"reports go to one worker, answers to their checker": func(t *testing.T, c Carrier) {
			testRequests(t, c, events.KindReport, events.KindRefresh, report)
		},
		"lease requests likewise": func(t *testing.T, c Carrier) {
			testRequests(t, c, events.KindLease, events.KindGrant, lease)
		},
		"hellos go to all workers, one answers": testHellos,
		"alarms go to all checkers":             testAlarms,
		"a stopped worker gets nothing":         testStop,
		"an owner gets what is meant for it":    testOwners,
		"all hear what a worker tells":          testTell,
		"a worker gets what it attends to":      testAttend,
	} {
		t.Run(name, func(t *testing.T) { test(t, start(t)) })
	}
}

func report(link check.Link, shard uint32, payload []byte) error {
	return link.Report(shard, false, payload)
}
func lease(link check.Link, shard uint32, payload []byte) error {
	return link.Lease(shard, false, payload)
}

// all are as many shards as the tests use.
var all = []bool{true, true, true}

func testRequests(t *testing.T, c Carrier, request, answer events.Kind, send func(check.Link, uint32, []byte) error) {
	workers := []*worker{newWorker(t, c), newWorker(t, c)}
	checkers := []*checker{newChecker(t, c, "alpha"), newChecker(t, c, "beta")}
	const requests = 200
	for i := range requests {
		for _, k := range checkers {
			payload := fmt.Appendf(nil, "%s %d", k.name, i)
			noError(t, send(k.link, uint32(i%3), payload))
			clear(payload) // the link keeps no hold of it
		}
	}
	for _, k := range checkers {
		wait(t, k.name+" got its answers", func() bool { return k.count(answer) >= requests })
		for i := range requests {
			want := fmt.Sprintf("re: %s %d", k.name, i)
			if n := k.times(answer, want); n != 1 {
				t.Fatalf("%s got %q %d times", k.name, want, n)
			}
		}
	}
	sum := 0
	for i, w := range workers {
		n := w.count(request)
		if n == 0 {
			t.Errorf("worker %d had no share", i)
		}
		sum += n
	}
	if sum != 2*requests {
		t.Errorf("the workers had %d requests, want %d", sum, 2*requests)
	}
}

func testHellos(t *testing.T, c Carrier) {
	workers := []*worker{newWorker(t, c), newWorker(t, c), newWorker(t, c)}
	alpha, beta := newChecker(t, c, "alpha"), newChecker(t, c, "beta")
	noError(t, alpha.link.Hello([]byte("hello")))
	wait(t, "alpha was answered", func() bool { return alpha.times(events.KindWelcome, "re: hello") == 1 })
	for i, w := range workers {
		wait(t, fmt.Sprint("worker ", i, " has heard"), func() bool { return w.count(events.KindHello) > 0 })
	}
	if n := beta.count(events.KindWelcome); n != 0 {
		t.Errorf("beta got %d of alpha's answers", n)
	}
}

func testAlarms(t *testing.T, c Carrier) {
	w := newWorker(t, c)
	checkers := []*checker{newChecker(t, c, "alpha"), newChecker(t, c, "beta"), newChecker(t, c, "gamma")}
	for shard := range uint32(5) {
		noError(t, w.bus.Alarm(shard, fmt.Appendf(nil, "alarm %d", shard)))
	}
	for _, k := range checkers {
		for shard := range 5 {
			text := fmt.Sprint("alarm ", shard)
			wait(t, k.name+" got "+text, func() bool { return k.times(events.KindAlarm, text) == 1 })
		}
	}
}

// testOwners: requests for the owner of a shard go to every worker that owns it, whichever others
// there are, and nowhere if none does.
func testOwners(t *testing.T, c Carrier) {
	workers := []*worker{newWorker(t, c), newWorker(t, c), newWorker(t, c)}
	alpha := newChecker(t, c, "alpha")
	kinds := []events.Kind{events.KindReport, events.KindLease}
	own := func(w *worker, owned ...bool) { noError(t, w.bus.Attend(all, owned)) }
	sent := 0
	send := func() (text string) {
		t.Helper()
		sent++
		text = fmt.Sprint("for the owner ", sent)
		noError(t, errors.Join(alpha.link.Report(1, true, []byte(text)), alpha.link.Lease(1, true, []byte(text))))
		return text
	}
	// settle sends until as many workers as that get a message, and then some more.
	settle := func(why string, owners ...int) {
		t.Helper()
		arrived := func(text string) bool {
			for i, w := range workers {
				for _, kind := range kinds {
					if want := slices.Contains(owners, i); (w.times(kind, text) == 1) != want {
						return false
					}
				}
			}
			return true
		}
		wait(t, why, func() bool {
			unheard := alpha.count(events.KindUnheard) // it may be told while send returns
			text := send()
			if len(owners) == 0 {
				wait(t, why+": nobody is there", func() bool { return alpha.count(events.KindUnheard) > unheard })
				return arrived(text)
			}
			for deadline := time.Now().Add(time.Second); !arrived(text) && time.Now().Before(deadline); {
				time.Sleep(time.Millisecond)
			}
			return arrived(text)
		})
	}
	settle("none owns the shard")
	own(workers[0], false, true, false)
	settle("one owns it", 0)
	own(workers[2], true, true)
	settle("two believe that they do", 0, 2)
	own(workers[0], true, false, true)
	settle("it has changed hands", 2)
	workers[2].stop()
	settle("the owner is gone")
}

// testTell: what a worker tells all, each hears, itself included, and no checker does.
func testTell(t *testing.T, c Carrier) {
	workers := []*worker{newWorker(t, c), newWorker(t, c)}
	alpha := newChecker(t, c, "alpha")
	for i, w := range workers {
		text := fmt.Sprint("from ", i)
		noError(t, w.bus.Tell([]byte(text)))
		for _, other := range workers {
			wait(t, text, func() bool { return other.times(events.KindMember, text) == 1 })
		}
	}
	if n := alpha.count(events.KindMember); n != 0 {
		t.Errorf("a checker heard %d of them", n)
	}
}

// testAttend: who does not attend to a shard gets none of its requests, nor hellos to answer if it
// attends to none.
func testAttend(t *testing.T, c Carrier) {
	one, other := newWorker(t, c), newWorker(t, c)
	alpha := newChecker(t, c, "alpha")
	sent := 0
	// share is how many of 20 reports each gets. What is on its way to a worker that leaves may be
	// lost.
	share := func(shard uint32) (ours, others int) {
		sent++
		text := fmt.Sprint("report ", sent)
		for range 20 {
			noError(t, report(alpha.link, shard, []byte(text)))
		}
		for deadline := time.Now().Add(time.Second); ours+others < 20 && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
			ours, others = one.times(events.KindReport, text), other.times(events.KindReport, text)
		}
		return ours, others
	}
	for _, step := range []struct {
		why    string
		attend []bool
		others []uint32 // shards
		ours   []uint32
	}{
		{"it leaves a shard", []bool{true, false, true}, []uint32{1}, []uint32{0, 2}},
		{"it leaves all", []bool{false, false, false}, []uint32{0, 1, 2}, nil},
		{"it comes back", all, nil, []uint32{0, 1, 2}},
	} {
		noError(t, one.bus.Attend(step.attend, nil))
		c.Settle(t)
		for _, shard := range step.others {
			wait(t, step.why, func() bool {
				_, others := share(shard)
				return others == 20
			})
		}
		for _, shard := range step.ours {
			wait(t, step.why, func() bool {
				ours, _ := share(shard)
				return ours > 0
			})
		}
		wait(t, step.why+": hellos", func() bool {
			sent++
			hello := fmt.Sprint("hello ", sent)
			noError(t, alpha.link.Hello([]byte(hello)))
			wait(t, "a hello is answered", func() bool { return alpha.times(events.KindWelcome, "re: "+hello) == 1 })
			wait(t, "and heard", func() bool { return one.times(events.KindHello, hello) > 0 })
			return len(step.ours) > 0 || one.times(events.KindHello, hello) == 1 // and not to answer
		})
	}
}

func testStop(t *testing.T, c Carrier) {
	first, second := newWorker(t, c), newWorker(t, c)
	alpha := newChecker(t, c, "alpha")
	first.stop()
	c.Settle(t) // a stop does not wait for it for longer than a second
	before := first.count(events.KindReport)
	for i := range 50 {
		noError(t, report(alpha.link, 0, fmt.Append(nil, i)))
	}
	wait(t, "the other worker took all", func() bool { return second.count(events.KindReport) == 50 })
	if n := first.count(events.KindReport); n != before {
		t.Errorf("the stopped worker got %d reports", n-before)
	}
}

// heard is what came in at one end.
type heard struct {
	mu  sync.Mutex
	all map[message]int // how often
}

type message struct {
	kind events.Kind
	text string
}

func (h *heard) note(kind events.Kind, payload []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all == nil {
		h.all = make(map[message]int)
	}
	h.all[message{kind, string(payload)}]++
}

func (h *heard) count(kind events.Kind) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for m, times := range h.all {
		if m.kind == kind {
			n += times
		}
	}
	return n
}

func (h *heard) times(kind events.Kind, text string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.all[message{kind, text}]
}

type checker struct {
	heard
	name string
	link check.Link
}

func newChecker(t *testing.T, c Carrier, name string) *checker {
	k := &checker{name: name, link: c.Checker(t, name)}
	stop := serve(t, func(ctx context.Context) error { return k.link.Listen(ctx, k.note) })
	t.Cleanup(stop)
	// Alarms are broadcast, and what an end hears last: it listens to everything once it hears one.
	probe := c.Worker(t)
	wait(t, name+" listens", func() bool {
		if err := probe.Alarm(0, []byte("probe")); err != nil {
			t.Error(err)
		}
		return k.times(events.KindAlarm, "probe") > 0
	})
	return k
}

type worker struct {
	heard
	bus   aggregate.Bus
	asked atomic.Bool // a hello was its own to answer
	stop  func()
}

func newWorker(t *testing.T, c Carrier) *worker {
	w := &worker{bus: c.Worker(t)}
	noError(t, w.bus.Attend(all, nil))
	w.stop = serve(t, func(ctx context.Context) error {
		return w.bus.Serve(ctx, func(kind events.Kind, payload []byte, reply func([]byte) error) {
			w.note(kind, payload)
			if reply == nil {
				return
			}
			if kind == events.KindHello {
				w.asked.Store(true)
			}
			if err := reply(append([]byte("re: "), payload...)); err != nil {
				t.Error(err)
			}
		})
	})
	t.Cleanup(w.stop)
	// What it takes last are hellos to answer. Which of several workers gets one is open, so there
	// are as many as it takes.
	probe := c.Checker(t, "probe")
	wait(t, "the worker serves", func() bool {
		if err := probe.Hello([]byte("probe")); err != nil {
			t.Error(err)
		}
		return w.asked.Load() && w.times(events.KindHello, "probe") > 0
	})
	return w
}

// serve runs f until the function it returns is called, which waits for its end.
func serve(t *testing.T, f func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	var once sync.Once
	return func() {
		once.Do(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// wait polls until a condition holds. The deadline is for tests that hang.
func wait(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); <-ticker.C {
		if holds() {
			return
		}
	}
	t.Fatalf("waited in vain: %s", what)
}

// noError ends the test if there is an error.
func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
