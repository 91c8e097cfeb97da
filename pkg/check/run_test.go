package check

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/offpath-io/offpath/internal/testing/membus"
	"github.com/offpath-io/offpath/pkg/events"
)

// runner is a checker whose Run is at work, in a bubble.
type runner struct {
	*Checker
	t     *testing.T
	stop  context.CancelFunc
	ended chan error
}

func run(t *testing.T, c *Checker) *runner {
	ctx, stop := context.WithCancel(context.Background())
	r := &runner{c, t, stop, make(chan error, 1)}
	go func() { r.ended <- c.Run(ctx) }()
	return r
}

// end stops it, and returns how long that took, by the bubble's time.
func (r *runner) end(want error) time.Duration {
	r.t.Helper()
	begin := time.Now()
	r.stop()
	if err := <-r.ended; !errors.Is(err, want) {
		r.t.Errorf("Run ended by %v, want %v", err, want)
	}
	return time.Since(begin)
}

// onBus is a checker on a bus with this delay, and an aggregator that answers every report by its
// own hits.
func onBus(t *testing.T, delay time.Duration, f func(c *Checker, l *Limiter)) {
	synctest.Test(t, func(t *testing.T) {
		bus := membus.New(membus.Options{Faults: membus.Faults{Delay: delay}})
		answering(t, bus)
		c := newChecker(t, Options{Link: bus.Checker("c"), MaxIdleKeys: -1}, rule("r", 1000, time.Hour, 1))
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- bus.Run(ctx) }()
		f(c, limiter(t, c, "r"))
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

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
			err = e.Report(0, false, payload)
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

// TestRunReportsAndDrains: hits are reported within a flush, and what is left when Run is to end is
// delivered.
func TestRunReportsAndDrains(t *testing.T) {
	onBus(t, 5*time.Millisecond, func(c *Checker, l *Limiter) {
		l.Check("k", 1) // before anything runs
		r := run(t, c)
		time.Sleep(200 * time.Millisecond) // the bubble's time
		s := c.Stats()
		expect(t, s.Rules[0].Answered == 1 && s.Freshness == Fresh && s.Shards == 2, "200 ms on: %+v", s)
		for range 100 {
			l.Check("k", 1)
			time.Sleep(time.Millisecond)
		}
		l.Check("k", 7)
		r.end(nil)
		s = c.Stats()
		expect(t, s.Rules[0].Charged == 108 && s.Rules[0].Answered == 108 && s.Unreported() == 0, "after the end: %+v", s)
		d := l.Check("k", 1)
		expect(t, d.Allowed && d.Remaining == 891, "a check after the end: %+v", d)
	})
}

// TestRunEndsUnderTraffic that goes on.
func TestRunEndsUnderTraffic(t *testing.T) {
	onBus(t, 2*time.Millisecond, func(c *Checker, l *Limiter) {
		r := run(t, c)
		time.Sleep(time.Second)
		stop := meanwhile(1, func(int) {
			l.Check("k", 1)
			time.Sleep(time.Millisecond)
		})
		took := r.end(nil)
		expect(t, took <= time.Second, "took %v", took)
		stop()
	})
}

// TestRunEndsWithoutANetwork after the time for draining, and returns that hits are unreported.
func TestRunEndsWithoutANetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChecker(t, Options{Link: new(tape), MaxIdleKeys: -1}, rule("r", 1000, time.Hour, 1))
		r := run(t, c)
		time.Sleep(time.Second)
		for range 3 {
			limiter(t, c, "r").Check("k", 1)
		}
		equal(t, r.end(ErrUnreported), 5*time.Second, "time to drain")
		equal(t, c.Stats().Unreported(), 3, "hits unreported")
	})
}

func TestRunWithoutHitsEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, o := range []Options{{}, {Link: new(tape), MaxIdleKeys: -1}} {
			r := run(t, newChecker(t, o, rule("r", 1000, time.Hour, 1)))
			time.Sleep(time.Second)
			equal(t, r.end(nil), 0, "time to end with link %v", o.Link)
		}
	})
}

type deafLink struct{ tape }

var errDeaf = errors.New("cannot listen")

func (*deafLink) Listen(context.Context, func(events.Kind, []byte)) error { return errDeaf }

func TestRunFailsIfTheLinkCannotListen(t *testing.T) {
	c := newChecker(t, Options{Link: new(deafLink), MaxIdleKeys: -1}, rule("r", 1000, time.Hour, 1))
	err := c.Run(context.Background())
	expect(t, errors.Is(err, errDeaf), "got %v", err)
	decided(t, limiter(t, c, "r").Check("k", 1), true, "a check all the same")
}

// TestRunWithoutALink keeps the clock, and lets empty counters go.
func TestRunWithoutALink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l := checkerAndLimiter(t, Options{}, rule("r", 2, time.Second, 1))
		r := run(t, c)
		time.Sleep(time.Millisecond)
		for i, want := range []bool{true, true, false} {
			equal(t, l.Check("k", 1).Allowed, want, "hit %d", i)
		}
		time.Sleep(2 * time.Second)
		expect(t, l.Check("k", 1).Allowed, "two windows later the key is still blocked")
		time.Sleep(time.Minute)
		s := c.Stats()
		expect(t, s.LiveKeys == 0 && s.Rules[0].Charged == 3 && s.Rules[0].Pending == 0, "a minute later: %+v", s)
		r.end(nil)
	})
}

// TestIdleCacheGoesDuringChecks that use it.
func TestIdleCacheGoesDuringChecks(t *testing.T) {
	o := Options{Link: new(tape), MaxLiveKeys: 4, MaxIdleKeys: 100, DrainTimeout: time.Millisecond}
	c, l := checkerAndLimiter(t, o, rule("r", 10, time.Hour, 1))
	var checks atomic.Int64
	stop := meanwhile(2, func(g int) { l.Check(fmt.Sprint(g, checks.Add(1)%100), 1) })
	for range 20 {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := c.Run(ctx); err != nil && !errors.Is(err, ErrUnreported) {
			t.Error(err)
		}
	}
	stop()
}

// TestDrainWaitsForLateHits, whose report holds no keys.
func TestDrainWaitsForLateHits(t *testing.T) {
	f := newFleet(t, Options{}, rule("r", 1000, time.Second, 1))
	atTime(noon, limiter(t, f.Checker, "r")).Check("k", 3)
	now := noon + 4*second
	d := f.reporter.BeginShutdown()
	for range 3 {
		require(t, !d.Done(now), "done, but nothing is answered: %+v", f.Stats().Rules[0])
	}
	r := f.last()
	require(t, len(r.Late) == 1 && r.Late[0] == 3 && r.Hits.Keys() == 0, "reported %v", r)
	f.answerRows(now)
	s := f.Stats()
	expect(t, d.Done(now) && s.Unreported() == 0, "not done: %+v", s)
}

func TestBadOptionsAreRefused(t *testing.T) {
	set := parse(t, "rules: [{name: r, key: [user], limit: 1/second}]")
	for _, o := range []Options{
		{FlushEvery: time.Microsecond}, {Tuning: tuning{FlushFloor: time.Microsecond}}, {HelloEvery: time.Millisecond},
		{FlushEvery: 10 * time.Millisecond, Tuning: tuning{FlushFloor: 11 * time.Millisecond}},
		{MaxLiveKeys: -1}, {Tuning: tuning{ReportKeys: -1}}, {Tuning: tuning{ReportKeys: 1 << 20}}, {Tuning: tuning{ReportTimeout: 1}}, {DrainTimeout: -1},
		{StaleAfter: -1}, {StaleAfter: time.Second}, {StaleAfter: 21 * time.Second},
		{ShareAfter: 5 * time.Second}, {ShareAfter: 11 * time.Minute}, {OutageAfter: 19 * time.Second}, {ExpectCheckers: -1}, {QuietFor: -1},
	} {
		o.Rules = set
		_, err := New(o)
		expect(t, err != nil, "accepted: %+v", o)
	}
	_, err := New(Options{})
	expect(t, err != nil, "accepted: no rules")
	_, ok := ofYAML(t, Options{}, "rules: [{name: r, key: [user], limit: 1/second}]").Limiter("other")
	expect(t, !ok, "found a limiter for a rule that is not there")
}
