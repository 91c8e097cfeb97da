package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/entries"
	"github.com/offpath-io/offpath/pkg/events"
)

var _ check.Link = (*lifeline)(nil)

// lifelineOn has one connection, which the test closes.
func lifelineOn(t *testing.T, conn *nats.Conn) *lifeline {
	t.Helper()
	l, err := newLifeline(func() (*nats.Conn, error) { return conn, nil }, defaultNamespace, "c", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestClosedForGood: a checker whose connection the library gives up for good decides as before, opens another one, and has lost nothing
// and doubled nothing; rules and blocks come by the new one.
func TestClosedForGood(t *testing.T) {
	bus, store := serverstest.JetStream(t), memstore.New()
	inBucket(t, bus.URL())(daily(1000))
	d := start1(t, "--rules", "nats", "--nats", bus.URL(), "--decision-log", "nats")
	loads(t, d, 1)
	makeBlocks(t, bus.URL())
	d.Await("blocks can be read", func() bool { return d.Metric("offpath_blocks_source_up") == "1" })
	asked := 0
	passes := func(n int) {
		t.Helper()
		for range n {
			if status, a := ask(t, d, `{"attributes":{"user":"kristie"}}`); status != 200 {
				t.Fatalf("%d %+v", status, a)
			}
			asked++
		}
	}
	passes(2)
	// Its next hello is longer. Not max_control_line, which ends a connection likewise: the server reads it with a race while it is reloaded.
	if err := bus.Reload(func(o *server.Options) { o.MaxPayload = 1 }); err != nil {
		t.Fatal(err)
	}
	d.Await("the connection is closed", func() bool {
		return strings.Contains(strings.ToLower(d.Stderr()), "closed for good, after: nats: maximum payload violation")
	})
	passes(50)
	if err := bus.Restart(); err != nil { // with the settings of before, which whoever connects is told
		t.Fatal(err)
	}
	d.Await("there is another one", func() bool {
		_, state := d.Get("/readyz")
		return strings.Count(d.Stderr(), `"connected to NATS"`) > 1 && strings.Contains(state, `"nats":"connected"`) &&
			d.Metric("offpath_nats_connected") == "1"
	})
	startWorker(t, bus.URL(), aggregate.Options{Store: store})
	passes(3)
	d.Await("all is counted", func() bool {
		ledger, err := store.Ledger(t.Context())
		return err == nil && ledger["per-user"].Counted == int64(asked) && d.Metric(`offpath_hits_total{outcome="answered",rule="per-user"}`) == fmt.Sprint(asked)
	})
	inBucket(t, bus.URL())(daily(999))
	loads(t, d, 2)
	d.Await("blocks can be read again", func() bool { return d.Metric("offpath_blocks_source_up") == "1" })
	bucket, now := makeBlocks(t, bus.URL()), time.Now()
	if err := bucket.Put(t.Context(), entries.Entry{Rule: "per-user", Key: "kristie", At: now, Until: now.Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	d.Await("the block is there", func() bool {
		status, _ := ask(t, d, `{"attributes":{"user":"kristie"}}`)
		asked += 1 - status/429 // it may pass until then
		return status == 429
	})
	if status := d.Stop(); status != 0 {
		t.Errorf("status %d, stderr:\n%s", status, d.Stderr())
	}
	if ledger, err := store.Ledger(t.Context()); err != nil || ledger["per-user"].Counted != int64(asked) {
		t.Errorf("%d hits, the ledger has %+v, %v", asked, ledger, err)
	}
	if list := entriesIn(t, stored(t, bus.URL())); len(list) != 1 || list[0].Key != "kristie" {
		t.Errorf("the decision log: %+v", list)
	}
}

// makeBlocks makes the bucket of blocks, if it is not there.
func makeBlocks(t *testing.T, url string) *entries.Bucket {
	t.Helper()
	conn, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	bucket, err := entries.New(conn, defaultNamespace, entries.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := bucket.Make(t.Context()); err != nil {
		t.Fatal(err)
	}
	return bucket
}

// TestLongerMessages: what a server takes is asked for again when it was too little.
func TestLongerMessages(t *testing.T) {
	bus := serverstest.NATS(t)
	take := func(bytes int32) {
		t.Helper()
		if err := bus.Reload(func(o *server.Options) { o.MaxPayload = bytes }); err != nil {
			t.Fatal(err)
		}
	}
	take(10)
	open := func() (*nats.Conn, error) {
		return nats.Connect(bus.URL(), nats.MaxReconnects(-1), nats.ReconnectWait(time.Millisecond))
	}
	l, err := newLifeline(open, defaultNamespace, "c", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	l.askAgain = time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.part().Run(ctx) }()
	long := make([]byte, 100)
	if err := l.Report(1, long); !errors.Is(err, nats.ErrMaxPayload) {
		t.Errorf("%v", err)
	}
	take(1000)
	for n := 0; ; n++ {
		err := l.Report(1, long)
		if err == nil {
			break
		}
		if n == 3000 {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	l.close()
}

// ropes opens connections to a server of the test, the second time not.
type ropes struct {
	url    string
	opened []*nats.Conn
	tries  int
}

func (r *ropes) open() (*nats.Conn, error) {
	r.tries++
	if r.tries == 2 {
		return nil, errors.New("no rope")
	}
	conn, err := nats.Connect(r.url)
	r.opened = append(r.opened, conn)
	return conn, err
}

// TestLifeline: each runs with one connection after the other, never with two; messages come by the newest; an error of a connection that is
// not over ends it.
func TestLifeline(t *testing.T) {
	bus := serverstest.NATS(t)
	r := &ropes{url: bus.URL()}
	l, err := newLifeline(r.open, defaultNamespace, "c", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	l.soon, l.late = time.Millisecond, time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- l.part().Run(ctx) }()
	heard := make(chan string, 10)
	go func() {
		ended <- l.Listen(ctx, func(_ events.Kind, payload []byte) { heard <- string(payload) })
	}()
	other, err := nats.Connect(bus.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	arrives := func(text string) {
		t.Helper()
		for range 3000 {
			if err := other.Publish(defaultNamespace+".refresh.v1.c", []byte(text)); err != nil {
				t.Fatal(err)
			}
			select {
			case got := <-heard:
				if got == text {
					return
				}
			case <-time.After(10 * time.Millisecond):
			}
		}
		t.Fatalf("%q is not heard", text)
	}
	arrives("by the first")
	first := l.conn()
	first.Close()
	arrives("by the second")
	if l.conn() == first || r.tries != 3 {
		t.Errorf("the same connection, or %d tries, want 3", r.tries)
	}
	if err := l.Hello([]byte("hello")); err != nil {
		t.Error(err)
	}
	wrong := errors.New("wrong")
	if err := l.each(ctx, func(context.Context, *strand) error { return wrong }); !errors.Is(err, wrong) {
		t.Errorf("%v", err)
	}
	stop()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	l.close()
	for i, conn := range r.opened {
		if !conn.IsClosed() {
			t.Errorf("connection %d is open", i)
		}
	}
}
