package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/offpath-io/offpath/cmd/internal/daemon"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
)

// TestNotReadyOnceItLeaves, although it could work.
func TestNotReadyOnceItLeaves(t *testing.T) {
	conn := serverstest.Connect(t, serverstest.NATS(t).URL())
	worker := newTestWorker(t)
	worker.Step(t.Context(), time.Now().UnixNano())
	leaving := daemon.NewLeaving(0)
	ask := (&process{worker: worker, conn: conn, leaving: leaving}).readiness
	if ready, detail := ask(); !ready {
		t.Fatalf("before: %+v", detail)
	}
	told, stop := context.WithCancel(t.Context())
	stop()
	must(t, leaving.Part(quiet).Run(told))
	if ready, detail := ask(); ready || !detail.(state).Leaving {
		t.Errorf("after: %v, %+v", ready, detail)
	}
}

// TestClosedForGood: an aggregator whose connection the library gives up for good ends, so that it
// is started again with another one: it would count nothing for ever.
func TestClosedForGood(t *testing.T) {
	nats := serverstest.NATS(t)
	d := startAggregator(t, nats, serverstest.Redis(t))
	d.Await("it is ready", isReady(d))
	must(t, nats.Reload(func(o *server.Options) { o.MaxPayload = 1 })) // what it tells next is longer
	if status := d.Wait(); status != 1 || !strings.Contains(d.Stderr(), "closed for good, after: nats: Maximum Payload Violation") {
		t.Errorf("status %d, stderr:\n%s", status, d.Stderr())
	}
}
