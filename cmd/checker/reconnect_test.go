package main

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/offpath-io/offpath/internal/blocks"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
)

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
