package peers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/offpath-io/offpath/internal/testing/membus"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

const ruleName = "bench"

func (q quota) rules() (*rules.Set, error) {
	return rules.NewSet(rules.Rule{
		Name: ruleName, Key: []string{"user"}, Limit: q.limit,
		Window: window.Shape{Length: q.window, Buckets: 1},
	})
}

// newOffpath is a checker with its reporter at work, and nobody real behind it. What it was shown
// beforehand is reported before anything is measured.
func newOffpath(t testing.TB, q quota) *subject {
	t.Helper()
	c, stop, err := newReporting(q, 0)
	must(t, err)
	s := checkerSubject(c)
	s.settle, s.close = answered(c), func(admitted int64) error { return errors.Join(stop(), charged(c, admitted)) }
	return s
}

// newIdleOffpath is a checker whose reporter does nothing for an hour but tick.
func newIdleOffpath(t testing.TB, q quota) *subject {
	t.Helper()
	c, stop, err := newReporting(q, time.Hour)
	must(t, err)
	s := checkerSubject(c)
	s.close = func(admitted int64) error { return errors.Join(stop(), charged(c, admitted)) }
	return s
}

// newReporting is a checker that reports so often, by default if it is 0. It does not deliver what
// is pending in the end, which with a million keys would take longer than the row.
func newReporting(q quota, every time.Duration) (c *check.Checker, stop func() error, err error) {
	set, err := q.rules()
	if err != nil {
		return nil, nil, err
	}
	bus := membus.New(membus.Options{Faults: membus.Faults{Delay: time.Millisecond}})
	answerReports(bus)
	c, err = check.New(check.Options{
		Rules: set, Link: bus.Checker("bench"), MaxLiveKeys: 2 * inProcess.keys, FlushEvery: every, DrainTimeout: time.Millisecond,
	})
	if err != nil {
		return nil, nil, err
	}
	stopBus, stopChecker := background(bus.Run), background(c.Run)
	return c, func() error {
		err := stopChecker()
		if errors.Is(err, check.ErrUnreported) {
			err = nil
		}
		return errors.Join(err, stopBus())
	}, nil
}

// checkerSubject is not inlined, for then the compiler would not inline what its functions call, as
// it does elsewhere.
//
//go:noinline
func checkerSubject(c *check.Checker) *subject {
	limiter, _ := c.Limiter(ruleName)
	return &subject{
		decide:  func(key string) (bool, error) { return limiter.Check(key, 1).Allowed, nil },
		reports: func() (int64, error) { return c.Stats().ReportsAnswered, nil },
	}
}

// answered waits until an aggregator has answered for every hit that was admitted.
func answered(c *check.Checker) func(admitted int64) error {
	return func(admitted int64) error {
		return until("all hits are reported and answered", func() bool { return c.Stats().Rules[0].Answered == admitted })
	}
}

// charged is an error unless a checker that has stopped charged every hit that it admitted to a
// key.
func charged(c *check.Checker, admitted int64) error {
	if r := c.Stats().Rules[0]; r.Charged != admitted || r.Overflow+r.Lost != 0 {
		return fmt.Errorf("%d hits were admitted, but the checker says %+v", admitted, r)
	}
	return nil
}

// background runs f until the function it returns is called, which waits for its end.
func background(f func(context.Context) error) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	return sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
}

// answerReports attaches a worker that answers every report at once with its own hits as totals:
// the cheapest aggregator there can be, since a real one's work is not the checker's.
func answerReports(bus *membus.Bus) {
	bus.Worker().Attach(func(kind events.Kind, payload []byte, reply func([]byte) error) {
		if reply == nil {
			return
		}
		if kind == events.KindHello {
			m, err := events.DecodeHello(payload)
			if err != nil {
				panic(err)
			}
			answer(reply, &events.Welcome{Epoch: m.Epoch, Sent: m.Sent, Shards: 1, Time: time.Now().UnixNano(), Checkers: 1})
			return
		}
		m, err := events.DecodeReport(payload)
		if err != nil {
			panic(err)
		}
		answer(reply, &events.Refresh{
			Epoch: m.Epoch, Shard: m.Shard, Sequence: m.Sequence, Generation: 1, Version: m.Sequence,
			KeyCells: m.Hits.KeyCells, Age: m.Hits.Age, Total: m.Hits.Value,
		})
	})
}

func answer(reply func([]byte) error, m proto.Message) {
	payload, err := events.Append(nil, m)
	if err == nil {
		err = reply(payload)
	}
	if err != nil {
		panic(err)
	}
}
