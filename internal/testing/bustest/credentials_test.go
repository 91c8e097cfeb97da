package bustest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	natsgo "github.com/nats-io/nats.go"

	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/events/natsbus"
)

// TestNobodySpeaksForAnother: a worker takes what a checker says in its own name, and answers only
// to that.
func TestNobodySpeaksForAnother(t *testing.T) {
	n := newNATS(serverstest.NATS(t).URL())
	mine, yours := events.NewEpoch("mine"), events.NewEpoch("yours")
	body := func(epoch uint64) []byte {
		return must(events.Append(nil, &events.Hello{Epoch: epoch, Sent: 1}))(t)
	}
	me, you := natsbus.CheckerName("mine", mine), natsbus.CheckerName("yours", yours)
	mineSays, yoursSays := string(body(mine)), string(body(yours))
	report, refresh := "test.report.v1.0."+me, "test.refresh.v1."+me
	forged := fmt.Sprintf("mine.%x", yours)

	var got heard
	worker, conn := n.Worker(t), n.connect(t, "publisher")
	shards := slices.Repeat([]bool{true}, 4)
	noError(t, worker.Attend(shards, shards))
	t.Cleanup(serve(t, func(ctx context.Context) error {
		return worker.Serve(ctx, func(kind events.Kind, data []byte, _ func([]byte) error) { got.note(kind, data) })
	}))
	rounds := 0
	sayReady := func() (heard func() bool) { // on all subjects
		rounds++
		text := fmt.Sprintf("ready %d.", rounds)
		for subject, answer := range map[string]string{
			"report.v1.0": "refresh", "report.v1.3": "refresh", "report.v1.2-owner": "refresh",
			"lease.v1.0": "grant", "lease.v1.3": "grant", "lease.v1.2-owner": "grant", "hello.v1": "welcome",
		} {
			publish(t, conn, "test."+subject+".ready", "test."+answer+".v1.ready", text)
		}
		return func() bool { return got.starting(text) == 8 } // the hello twice
	}
	var ready []func() bool
	wait(t, "the worker listens to everything", func() bool {
		ready = append(ready, sayReady())
		return slices.ContainsFunc(ready, func(heard func() bool) bool { return heard() })
	})
	for _, tt := range []struct {
		why                  string
		subject, reply, body string
		want                 int // how often it is handed over
	}{
		{"a report of my own", report, refresh, mineSays, 1},
		{"a lease request of my own", "test.lease.v1.3." + me, "test.grant.v1." + me, mineSays, 1},
		{"a hello of my own, to answer and to note", "test.hello.v1." + me, "test.welcome.v1." + me, mineSays, 2},
		{"one of before there were credentials", "test.report.v1.0.abc", "test.refresh.v1.abc", "anything", 1},
		{"with another's epoch within", report, refresh, yoursSays, 0},
		{"the same, with it in the subject too", "test.report.v1.0." + forged, "test.refresh.v1." + forged, yoursSays, 0},
		{"a hello with another's epoch", "test.hello.v1." + me, "test.welcome.v1." + me, yoursSays, 0},
		{"a lease request with another's epoch", "test.lease.v1.0." + me, "test.grant.v1." + me, yoursSays, 0},
		{"no epoch", report, refresh, "", 0},
		{"answered to another", report, "test.refresh.v1." + you, mineSays, 0},
		{"answered to everybody", report, "test.alarm.v1.0", mineSays, 0},
		{"answered with a write", "test.hello.v1." + me, "$KV.test-rules.rules", mineSays, 0},
		{"answered as only the server may", report, "_R_.abc.def", mineSays, 0},
		{"not answered", report, "", mineSays, 0},
		{"answered by what answers something else", report, "test.welcome.v1." + me, mineSays, 0},
		{"three tokens", report + ".x", refresh + ".x", mineSays, 0},
		{"to the owner", "test.report.v1.2-owner." + me, refresh, mineSays, 1},
		{"to the owner, with another's epoch", "test.report.v1.2-owner." + me, refresh, yoursSays, 0},
		{"to the owner, answered by a write", "test.lease.v1.2-owner." + me, "$KV.test-rules.rules", mineSays, 0},
		{"no shard", "test.report.v1.0", "test.refresh.v1.0", mineSays, 0},
	} {
		before := got.besides("ready ")
		publish(t, conn, tt.subject, tt.reply, tt.body)
		// Each subscription hands over one message after the other, so what comes after says that
		// it has been there.
		wait(t, "it has heard what was said before", sayReady())
		if n := got.besides("ready ") - before; n != tt.want {
			t.Errorf("%s: handed over %d times, want %d", tt.why, n, tt.want)
		}
	}
}

// starting is how many messages have come whose text begins so.
func (h *heard) starting(prefix string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for m, times := range h.all {
		if strings.HasPrefix(m.text, prefix) {
			n += times
		}
	}
	return n
}

// publish returns once the server has the message.
func publish(t *testing.T, conn *natsgo.Conn, subject, reply, body string) {
	t.Helper()
	m := &natsgo.Msg{Subject: subject, Reply: reply, Data: []byte(body)}
	noError(t, errors.Join(conn.PublishMsg(m), conn.Flush()))
}

// besides is how many messages have come whose text begins otherwise.
func (h *heard) besides(prefix string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for m, times := range h.all {
		if !strings.HasPrefix(m.text, prefix) {
			n += times
		}
	}
	return n
}
