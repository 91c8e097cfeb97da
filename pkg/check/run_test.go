package check

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/offpath-io/offpath/internal/testing/membus"
	"github.com/offpath-io/offpath/pkg/events"
)

// answering attaches a worker to a bus that answers every report by its own hits.
func answering(t *testing.T, bus *membus.Bus) {
	bus.Worker().Attach(func(kind events.Kind, payload []byte, reply func([]byte) error) {
		if reply == nil {
			return
		}
		e := new(echo)
		var err error
		if kind == events.KindHello {
			err = e.Hello(payload)
		} else {
			err = e.Report(0, payload)
		}
		if err != nil {
			t.Error(err)
			return
		}
		if err := reply(e.answers[0].payload); err != nil {
			t.Error(err)
		}
	})
}

// TestRun runs a checker in a bubble's virtual time: it reports within a flush, and when it is told
// to stop it delivers what is left.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := membus.New(membus.Options{Faults: membus.Faults{Delay: 5 * time.Millisecond}})
		answering(t, bus)
		c := newChecker(t, Options{Link: bus.Checker("c"), MaxIdleKeys: -1}, rule("r", 1000, time.Hour, 1))
		l := limiter(t, c, "r")
		l.Check("k", 1) // before anything runs

		running, stop := context.WithCancel(context.Background())
		busRunning, stopBus := context.WithCancel(context.Background())
		ended, busEnded := make(chan error, 1), make(chan error, 1)
		go func() { busEnded <- bus.Run(busRunning) }()
		go func() { ended <- c.Run(running) }()

		time.Sleep(200 * time.Millisecond) // the bubble's time
		if s := c.Stats(); s.Rules[0].Answered != 1 || s.Freshness != Fresh || s.Shards != 2 {
			t.Errorf("200 ms on: %+v", s)
		}
		for range 100 {
			l.Check("k", 1)
			time.Sleep(time.Millisecond)
		}
		l.Check("k", 7)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if s := c.Stats(); s.Rules[0].Charged != 108 || s.Rules[0].Answered != 108 || s.Unreported() != 0 {
			t.Errorf("after the end: %+v", s)
		}
		if d := l.Check("k", 1); !d.Allowed || d.Remaining != 891 {
			t.Errorf("a check after the end: %+v", d)
		}
		stopBus()
		if err := <-busEnded; err != nil {
			t.Error(err)
		}
	})
}

// TestRunEndsWithoutANetwork: what cannot be delivered is said, once the time for it is up.
func TestRunEndsWithoutANetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChecker(t, Options{Link: new(tape), MaxIdleKeys: -1}, rule("r", 1000, time.Hour, 1))
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		time.Sleep(time.Second)
		for range 3 {
			limiter(t, c, "r").Check("k", 1)
		}
		begin := time.Now()
		stop()
		if err := <-ended; !errors.Is(err, ErrUnreported) {
			t.Errorf("got %v, want ErrUnreported", err)
		}
		if took := time.Since(begin); took != 5*time.Second {
			t.Errorf("took %v, want the drain's 5 s", took)
		}
		if got := c.Stats().Unreported(); got != 3 {
			t.Errorf("%d hits unreported, want 3", got)
		}
	})
}

// TestRunWithoutHitsEndsAtOnce: nothing to deliver, nobody to wait for.
func TestRunWithoutHitsEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, o := range []Options{{}, {Link: new(tape), MaxIdleKeys: -1}} {
			c := newChecker(t, o, rule("r", 1000, time.Hour, 1))
			ctx, stop := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			go func() { ended <- c.Run(ctx) }()
			time.Sleep(time.Second)
			begin := time.Now()
			stop()
			if err := <-ended; err != nil || time.Since(begin) != 0 {
				t.Errorf("link %v: %v after %v", o.Link, err, time.Since(begin))
			}
		}
	})
}

type deafLink struct{ tape }

var errDeaf = errors.New("cannot listen")

func (*deafLink) Listen(context.Context, func(events.Kind, []byte)) error { return errDeaf }

func TestRunFailsIfTheLinkCannotListen(t *testing.T) {
	c := newChecker(t, Options{Link: new(deafLink)}, rule("r", 1000, time.Hour, 1))
	if err := c.Run(context.Background()); !errors.Is(err, errDeaf) {
		t.Errorf("got %v", err)
	}
	if d := limiter(t, c, "r").Check("k", 1); !d.Allowed {
		t.Errorf("a check all the same: %+v", d)
	}
}

// TestLocalRun: a checker without a link keeps the clock and lets empty cells go.
func TestLocalRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChecker(t, Options{}, rule("r", 2, time.Second, 1))
		l := limiter(t, c, "r")
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		time.Sleep(time.Millisecond)
		for i, want := range []bool{true, true, false} {
			if got := l.Check("k", 1).Allowed; got != want {
				t.Errorf("hit %d: %v", i, got)
			}
		}
		time.Sleep(2 * time.Second)
		if !l.Check("k", 1).Allowed {
			t.Error("two windows later the key is still blocked")
		}
		time.Sleep(time.Minute)
		if s := c.Stats(); s.LiveKeys != 0 || s.Rules[0].Charged != 3 || s.Rules[0].Pending != 0 {
			t.Errorf("a minute later: %+v", s)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestDrainUnderTraffic: traffic that goes on does not keep Run from ending.
func TestDrainUnderTraffic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := membus.New(membus.Options{Faults: membus.Faults{Delay: 2 * time.Millisecond}})
		answering(t, bus)
		c := newChecker(t, Options{Link: bus.Checker("c"), MaxIdleKeys: -1}, rule("r", 1e6, time.Hour, 1))
		l := limiter(t, c, "r")
		ctx, stop := context.WithCancel(context.Background())
		busRunning, stopBus := context.WithCancel(context.Background())
		ended, busEnded := make(chan error, 1), make(chan error, 1)
		go func() { busEnded <- bus.Run(busRunning) }()
		go func() { ended <- c.Run(ctx) }()
		time.Sleep(time.Second)
		begin := time.Now()
		stop()
		for {
			l.Check("k", 1)
			time.Sleep(time.Millisecond)
			select {
			case err := <-ended:
				if took := time.Since(begin); err != nil || took > time.Second {
					t.Errorf("%v after %v", err, took)
				}
				stopBus()
				<-busEnded
				return
			default:
			}
		}
	})
}

// TestChecksWhileRunEnds: the idle cache goes away under the feet of checks that use it.
func TestChecksWhileRunEnds(t *testing.T) {
	r := rule("r", 10, time.Hour, 1)
	c := newChecker(t, Options{Link: new(tape), MaxLiveKeys: 4, MaxIdleKeys: 100, DrainTimeout: time.Millisecond}, r)
	l := limiter(t, c, "r")
	stop := make(chan struct{})
	var checking sync.WaitGroup
	for g := range 2 {
		checking.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
					l.Check(fmt.Sprint(g, i%100), 1)
				}
			}
		})
	}
	for range 20 {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := c.Run(ctx); err != nil && !errors.Is(err, ErrUnreported) {
			t.Error(err)
		}
	}
	close(stop)
	checking.Wait()
}

// TestDrainWaitsForLateHits: a report of late hits only holds no keys, and is waited for all the same.
func TestDrainWaitsForLateHits(t *testing.T) {
	f := newFleet(t, Options{}, rule("r", 1000, time.Second, 1))
	limiter(t, f.Checker, "r").CheckAt(noon, "k", 3)
	now := noon + 4*second
	d := drain{behind: &f.behind}
	for range 3 {
		if d.done(now) {
			t.Fatalf("done, but nothing is answered: %+v", f.Stats().Rules[0])
		}
	}
	r := f.last()
	if len(r.Late) != 1 || r.Late[0] != 3 || r.Hits.Keys() != 0 {
		t.Fatalf("reported %v", r)
	}
	f.receive(now, events.KindRefresh, &events.Refresh{Epoch: r.Epoch, Sequence: r.Sequence, Generation: 1})
	if s := f.Stats(); !d.done(now) || s.Unreported() != 0 {
		t.Errorf("not done: %+v", s)
	}
}
