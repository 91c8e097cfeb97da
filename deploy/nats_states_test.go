package deploy_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/offpath-io/offpath/internal/testing/deploytest"
	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
	"github.com/offpath-io/offpath/pkg/aggregate/natsmemory"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/events/natsbus"
)

// TestAStolenCredentialMovesNoGeneration: whoever has a checker's credential may claim that Redis
// has lost data, in reports, in lease requests and in the bucket where aggregators remember how far
// its shards had got. All totals stay, and permits go on being granted, also by an aggregator that
// starts afterwards. That the bucket is no empty promise: a loss while there is no aggregator is
// found out by it.
func TestAStolenCredentialMovesNoGeneration(t *testing.T) {
	n := deploytest.NATS(t)
	store, log := memstore.New(), new(strings.Builder)
	stop := startAggregator(t, n, store, log)
	thief, victim := newAsker(t, n, "checker-1"), newAsker(t, n, "checker-2")
	before := victim.report(nil)
	forged := uint64(time.Now().Add(23 * time.Hour).UnixMicro())
	claim := protowire.AppendVarint(protowire.AppendTag(nil, 5, protowire.VarintType), forged)
	claim = protowire.AppendVarint(protowire.AppendTag(claim, 6, protowire.VarintType), 5)
	for range 2 { // the second time, to an aggregator that has started since
		thief.report(claim)
		thief.lease(claim)
		value := fmt.Appendf(nil, `{"shards":[[%d,5]]}`, forged)
		must(t, thief.conn.Publish("$KV.offpath-states.shards", value))
		_ = thief.conn.PublishRequest("$JS.API.STREAM.INFO.KV_offpath-rules", "$KV.offpath-states.shards", nil)
		_ = thief.conn.Flush()
		stop()
		stop = startAggregator(t, n, store, log)
		after, grant := victim.report(nil), victim.lease(nil)
		if after.GetGeneration() != before.GetGeneration() || after.GetTotal()[0] <= before.GetTotal()[0] || grant.GetGranted()[0] != 2 {
			t.Errorf("%v,\n%v, before it was\n%v", after, grant, before)
		}
	}
	stop()
	if strings.Contains(log.String(), "lost data") || strings.Contains(log.String(), "not kept") {
		t.Error(log)
	}
	store.Lose()
	stop = startAggregator(t, n, store, log)
	grant := victim.lease(nil)
	stop()
	if !strings.Contains(log.String(), "lost data") || grant.GetGranted()[0] != 0 {
		t.Errorf("a true loss: %v\n%s", grant, log)
	}
}

// startAggregator starts one with the aggregators' credential; stop ends it.
func startAggregator(t *testing.T, n *deploytest.NATSServer, store storage.Store, log *strings.Builder) (stop func()) {
	t.Helper()
	conn := connectAs(t, n, "aggregator")
	bus, err := natsbus.NewWorker(conn, "offpath")
	must(t, err)
	memory, err := natsmemory.New(conn, "offpath")
	must(t, err)
	worker, err := aggregate.New(aggregate.Options{Store: store, Bus: bus, Memory: memory, Shards: 1, Log: slog.New(slog.NewTextHandler(log, nil))})
	must(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	return func() {
		cancel()
		must(t, <-ended)
		conn.Close()
	}
}

// asker says what a checker says, by hand.
type asker struct {
	t        *testing.T
	conn     *nats.Conn
	name     string
	epoch    uint64
	sequence uint64
	newest   int64 // bucket, an hour long
}

func newAsker(t *testing.T, n *deploytest.NATSServer, name string) *asker {
	return &asker{t: t, conn: connectAs(t, n, name), name: name, epoch: events.NewEpoch(name), newest: time.Now().Unix() / 3600}
}

func (a *asker) rule(name string) *events.Rule {
	return &events.Rule{Name: name, WindowMs: 3_600_000, Buckets: 1, Limit: 100, Newest: a.newest}
}

// report reports one hit more of one key, with what is beyond the format, and returns the answer.
func (a *asker) report(more []byte) *events.Refresh {
	a.t.Helper()
	a.sequence++
	m := &events.Report{Epoch: a.epoch, Shards: 1, Sequence: a.sequence, Hits: &events.Table{Rules: []*events.Rule{a.rule("async")}}}
	m.Hits.AddKey(0, "k")
	m.Hits.AddCell(0, 1)
	answer, err := events.DecodeRefresh(a.ask("report", m, more))
	must(a.t, err)
	return answer
}

// lease asks for two permits of one key more, likewise.
func (a *asker) lease(more []byte) *events.Grant {
	a.t.Helper()
	a.sequence++
	m := &events.LeaseRequest{Epoch: a.epoch, Shards: 1, Sequence: a.sequence, Keys: &events.Table{Rules: []*events.Rule{a.rule("strict")}}}
	m.AddKey(0, fmt.Sprint("k", a.sequence), 0, 0, 2)
	answer, err := events.DecodeGrant(a.ask("lease", m, more))
	must(a.t, err)
	return answer
}

// ask sends a message again and again until it is answered: an aggregator that starts subscribes
// after a while.
func (a *asker) ask(kind string, m events.Message, more []byte) []byte {
	a.t.Helper()
	body, err := events.Append(nil, m)
	must(a.t, err)
	subject := fmt.Sprintf("offpath.%s.v1.0.%s.%x", kind, a.name, a.epoch)
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		answer, err := a.conn.Request(subject, append(body, more...), time.Second)
		if err == nil {
			return answer.Data
		}
		time.Sleep(10 * time.Millisecond)
	}
	a.t.Fatalf("nobody answers on %s", subject)
	return nil
}
