package main

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/offpath-io/offpath/cmd/internal/daemon"
	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
	"github.com/offpath-io/offpath/pkg/events/natsbus"
)

// TestNotReadyOnceItLeaves, although it could work.
func TestNotReadyOnceItLeaves(t *testing.T) {
	conn, err := nats.Connect(serverstest.NATS(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	bus, err := natsbus.NewWorker(conn, defaultNamespace)
	if err != nil {
		t.Fatal(err)
	}
	worker, err := aggregate.New(aggregate.Options{Store: memstore.New(), Bus: bus})
	if err != nil {
		t.Fatal(err)
	}
	worker.Step(t.Context(), time.Now().UnixNano())
	leaving := daemon.NewLeaving(0)
	ask := readiness(worker, conn, leaving)
	if ready, detail := ask(); !ready {
		t.Fatalf("before: %+v", detail)
	}
	told, stop := context.WithCancel(t.Context())
	stop()
	if err := leaving.Part(slog.New(slog.DiscardHandler)).Run(told); err != nil {
		t.Fatal(err)
	}
	if ready, detail := ask(); ready || !detail.(state).Leaving {
		t.Errorf("after: %v, %+v", ready, detail)
	}
}

// TestClosedForGood: an aggregator whose connection the library gives up for good ends, so that it is started again with another one: it
// would count nothing for ever.
func TestClosedForGood(t *testing.T) {
	nats := serverstest.NATS(t)
	d := daemontest.Start(t, run, "--nats", nats.URL(), "--redis", serverstest.Redis(t).URL(), "--admin", "127.0.0.1:0")
	d.Await("it is ready", isReady(d))
	if err := nats.Reload(func(o *server.Options) { o.MaxPayload = 1 }); err != nil { // what it tells next is longer
		t.Fatal(err)
	}
	if status := d.Wait(); status != 1 || !strings.Contains(d.Stderr(), "closed for good, after: nats: Maximum Payload Violation") {
		t.Errorf("status %d, stderr:\n%s", status, d.Stderr())
	}
}
