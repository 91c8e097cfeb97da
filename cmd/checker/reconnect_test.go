package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/offpath-io/offpath/internal/blocks"
	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/events"
)

var _ check.Link = (*lifeline)(nil)

func lifelineFrom(t *testing.T, open func() (*nats.Conn, error)) *lifeline {
	t.Helper()
	l, err := newLifeline(open, defaultNamespace, "c", quietLog)
	must(t, err)
	l.soon, l.late, l.askAgain = time.Millisecond, time.Millisecond, time.Millisecond
	return l
}

// lifelineOn has one connection, which the test closes.
func lifelineOn(t *testing.T, conn *nats.Conn) *lifeline {
	t.Helper()
	return lifelineFrom(t, func() (*nats.Conn, error) { return conn, nil })
}

// TestConnectionClosedForGood: a checker whose connection the library gives up for good decides as before, opens another one, and
// has lost nothing and doubled nothing; rules and blocks come by the new one.
func TestConnectionClosedForGood(t *testing.T) {
	bus, store := serverstest.JetStream(t), memstore.New()
	change, bucket := inBucket(t, bus.URL()), makeBlocks(t, bus.URL())
	change(daily(1000))
	d := startChecker(t, "--rules", "nats", "--nats", bus.URL(), "--decision-log", "nats")
	loads(d, 1)
	d.AwaitMetric("offpath_blocks_source_up", "1")
	asked := 0
	pass := func(n int) {
		t.Helper()
		for range n {
			asks(t, d, kristie, 200)
			asked++
		}
	}
	isCounted := func() bool {
		ledger, err := store.Ledger(t.Context())
		return err == nil && ledger["per-user"].Counted == int64(asked)
	}
	pass(2)
	// Its next hello is longer. Not max_control_line, which ends a connection likewise: nats-server has a race there when it is
	// reloaded.
	must(t, bus.Reload(func(o *server.Options) { o.MaxPayload = 1 }))
	d.Await("the connection is closed", func() bool {
		return strings.Contains(strings.ToLower(d.Stderr()), "closed for good, after: nats: maximum payload violation")
	})
	pass(50)
	must(t, bus.Restart()) // with the settings of before, which whoever connects is told
	d.Await("there is another one", func() bool {
		_, state := d.Get("/readyz")
		return strings.Count(d.Stderr(), `"connected to NATS"`) > 1 && strings.Contains(state, `"nats":"connected"`) &&
			d.Metric("offpath_nats_connected") == "1"
	})
	startWorker(t, bus.URL(), aggregate.Options{Store: store})
	pass(3)
	awaitAnswered(d, "per-user", asked)
	d.Await("all is counted", isCounted)
	change(daily(999))
	loads(d, 2)
	d.AwaitMetric("offpath_blocks_source_up", "1")
	block := blocks.Block{Rule: "per-user", Key: "kristie", At: time.Now(), Until: time.Now().Add(time.Hour)}
	must(t, bucket.Put(t.Context(), block))
	d.Await("the block is there", func() bool {
		status, _ := ask(t, d, kristie)
		asked += 1 - status/429 // it may pass until then
		return status == 429
	})
	d.MustStop()
	if !isCounted() {
		ledger, err := store.Ledger(t.Context())
		t.Errorf("%d hits, the ledger has %+v, %v", asked, ledger, err)
	}
	if list := entriesIn(t, stored(t, bus.URL())); len(list) != 1 || list[0].Key != "kristie" {
		t.Errorf("the decision log: %+v", list)
	}
}

// makeBlocks makes the bucket of blocks.
func makeBlocks(t *testing.T, url string) *blocks.Bucket {
	t.Helper()
	bucket, err := blocks.New(serverstest.Connect(t, url), defaultNamespace, blocks.Options{})
	must(t, err)
	must(t, bucket.Make(t.Context()))
	return bucket
}

// TestLongerMessages: what a server takes is asked for again when it was too little.
func TestLongerMessages(t *testing.T) {
	bus := serverstest.NATS(t)
	take := func(bytes int32) {
		t.Helper()
		must(t, bus.Reload(func(o *server.Options) { o.MaxPayload = bytes }))
	}
	take(10)
	l := lifelineFrom(t, func() (*nats.Conn, error) {
		return nats.Connect(bus.URL(), nats.MaxReconnects(-1), nats.ReconnectWait(time.Millisecond))
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.part().Run(ctx) }()
	long := make([]byte, 100)
	if err := l.Report(1, 0, long); !errors.Is(err, nats.ErrMaxPayload) {
		t.Errorf("%v", err)
	}
	take(1000)
	daemontest.Eventually(t, "it is sent", func() bool { return l.Report(1, 0, long) == nil })
	stop()
	must(t, <-ended)
	l.close()
}

// TestOneConnectionAfterTheOther: there are never two; messages come by the newest; an error of a connection that is not over
// ends what runs with it.
func TestOneConnectionAfterTheOther(t *testing.T) {
	bus := serverstest.NATS(t)
	var opened []*nats.Conn
	tries := 0
	l := lifelineFrom(t, func() (*nats.Conn, error) {
		if tries++; tries == 2 {
			return nil, errors.New("no connection this time")
		}
		conn, err := nats.Connect(bus.URL())
		opened = append(opened, conn)
		return conn, err
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- l.part().Run(ctx) }()
	heard := make(chan string, 100)
	go func() {
		ended <- l.Listen(ctx, func(_ events.Kind, payload []byte) { heard <- string(payload) })
	}()
	other := serverstest.Connect(t, bus.URL())
	arrives := func(text string) {
		t.Helper()
		daemontest.Eventually(t, text+" is heard", func() bool {
			must(t, other.Publish(defaultNamespace+".refresh.v1.c", []byte(text)))
			select {
			case got := <-heard:
				return got == text
			case <-time.After(10 * time.Millisecond):
				return false
			}
		})
	}
	arrives("by the first")
	first := l.conn()
	first.Close()
	arrives("by the second")
	if l.conn() == first || tries != 3 {
		t.Errorf("the same connection, or %d tries, want 3", tries)
	}
	must(t, l.Hello([]byte("hello")))
	wrong := errors.New("wrong")
	if err := l.each(ctx, func(context.Context, *strand) error { return wrong }); !errors.Is(err, wrong) {
		t.Errorf("%v", err)
	}
	stop()
	for range 2 {
		must(t, <-ended)
	}
	l.close()
	for i, conn := range opened {
		if !conn.IsClosed() {
			t.Errorf("connection %d is open", i)
		}
	}
}
