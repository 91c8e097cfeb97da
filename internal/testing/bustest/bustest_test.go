package bustest

import (
	"context"
	"errors"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/offpath-io/offpath/internal/testing/membus"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/events/natsbus"
)

type memory struct{ *membus.Bus }

func (m memory) Checker(_ *testing.T, name string) check.Link { return m.Bus.Checker(name) }
func (m memory) Worker(*testing.T) aggregate.Bus              { return m.Bus.Worker() }
func (memory) Settle(*testing.T)                              {} // it hears at once

func TestMembusKeepsTheContract(t *testing.T) {
	Run(t, func(t *testing.T) Carrier {
		bus := membus.New(membus.Options{Seed: 1})
		t.Cleanup(serve(t, bus.Run))
		return memory{bus}
	})
}

type nats struct {
	url   string
	conns *[]*natsgo.Conn // all ends'
}

func newNATS(url string) nats { return nats{url, new([]*natsgo.Conn)} }

func (n nats) connect(t *testing.T, name string) *natsgo.Conn {
	t.Helper()
	// Times of production are short: a machine that stands still would lose the connection, and
	// with it what was sent.
	conn := must(natsbus.Connect(n.url, name, natsgo.Timeout(time.Minute), natsgo.FlusherTimeout(time.Minute)))(t)
	t.Cleanup(conn.Close)
	*n.conns = append(*n.conns, conn)
	return conn
}

// Settle asks the server, which answers after what it was told before.
func (n nats) Settle(t *testing.T) {
	t.Helper()
	for _, conn := range *n.conns {
		noError(t, conn.FlushTimeout(time.Minute))
	}
}

func (n nats) Checker(t *testing.T, name string) check.Link {
	return must(natsbus.NewChecker(n.connect(t, name), "test", name))(t)
}

func (n nats) Worker(t *testing.T) aggregate.Bus {
	return must(natsbus.NewWorker(n.connect(t, "worker"), "test"))(t)
}

func TestNatsbusKeepsTheContract(t *testing.T) {
	server := serverstest.NATS(t)
	Run(t, func(*testing.T) Carrier { return newNATS(server.URL()) })
}

// TestEndsWaitForTheServer: ends are made and listen before the server is there, sends fail at once
// meanwhile, and everything works when it is back.
func TestEndsWaitForTheServer(t *testing.T) {
	server := serverstest.NATS(t)
	n := newNATS(server.URL())
	server.Stop()
	link := n.Checker(t, "alpha")
	if err := link.Report(0, false, []byte("lost")); err == nil {
		t.Error("a report was taken while nobody was there: it would arrive after its repeats")
	}
	bus := n.Worker(t)
	var got heard
	t.Cleanup(serve(t, func(ctx context.Context) error { return link.Listen(ctx, got.note) }))
	noError(t, server.Restart())
	wait(t, "an alarm arrives", func() bool {
		_ = bus.Alarm(0, []byte("back")) // fails until the worker has connected again
		return got.count(events.KindAlarm) > 0
	})
}

func TestBadNamesAreRefused(t *testing.T) {
	conn := newNATS(serverstest.NATS(t).URL()).connect(t, "test")
	for _, bad := range []string{"", "a.b", "a b", "*", ">", "ä", string(make([]byte, 65))} {
		if _, err := natsbus.NewChecker(conn, bad, "ok"); err == nil {
			t.Errorf("namespace %q was taken", bad)
		}
		if _, err := natsbus.NewWorker(conn, bad); err == nil {
			t.Errorf("worker's namespace %q was taken", bad)
		}
	}
	for _, bad := range []string{"", "a.", ".b", "a.b.c", "a.*", "a b", "*", ">", "ä", string(make([]byte, 65))} {
		if _, err := natsbus.NewChecker(conn, "ok", bad); err == nil {
			t.Errorf("checker name %q was taken", bad)
		}
	}
	if _, err := natsbus.Connect("nats://127.0.0.1:not-a-port", "test"); err == nil {
		t.Error("a malformed URL was taken")
	}
}

// TestMembusEndsComeAndGo does so while messages for them are under way.
func TestMembusEndsComeAndGo(t *testing.T) {
	bus := membus.New(membus.Options{})
	stop := serve(t, bus.Run)
	k, w := bus.Checker("c"), bus.Worker()
	stopSending := serve(t, func(ctx context.Context) error {
		for ctx.Err() == nil {
			if err := errors.Join(w.Alarm(0, []byte("x")), k.Report(0, false, []byte("x")), k.Hello([]byte("x"))); err != nil {
				return err
			}
		}
		return nil
	})
	for range 2000 {
		k.Attach(func(events.Kind, []byte) {})
		w.Attach(func(events.Kind, []byte, func([]byte) error) {})
		k.Attach(nil)
		w.Attach(nil)
	}
	stopSending()
	stop()
}

// must returns the result of a call, unless it has failed: then the test ends.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		noError(t, err)
		return v
	}
}
