package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/offpath-io/offpath/internal/status"
	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
)

// An aggregator that starts before NATS does, or was away from it, shows who did what meanwhile.
func TestDiaryCatchesUp(t *testing.T) {
	server := serverstest.JetStream(t)
	write := func(what string) {
		t.Helper()
		conn := serverstest.Connect(t, server.URL())
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		// In a zone of its own, as records of another machine are.
		r := Record{At: time.Now().In(time.FixedZone("", 4500)), What: what, Rule: "r", Key: "k", Until: time.Now()}
		must(t, WriteRecord(ctx, conn, "test", r))
	}
	write("before it connects")
	away := &gate{}
	conn := serverstest.Connect(t, server.URL(), nats.SetCustomDialer(away), nats.RetryOnFailedConnect(true))
	d := newDiary(conn, "test")
	daemontest.Background(t, d.read)
	await := func(wanted ...string) {
		t.Helper()
		daemontest.Eventually(t, fmt.Sprintf("it shows %q", wanted), func() bool {
			return slices.EqualFunc(d.latest(), wanted, func(r Record, what string) bool { return r.What == what })
		})
	}
	if d.catchUp(t.Context()); len(d.latest()) != 0 {
		t.Fatal("it has connected")
	}
	away.open.Store(true)
	await("before it connects")
	away.open.Store(false)
	must(t, conn.ForceReconnect())
	write("while it was away")
	away.open.Store(true)
	await("while it was away", "before it connects")
	write("while it listens")
	await("while it listens", "while it was away", "before it connects")
	d.catchUp(t.Context())
	await("while it listens", "while it was away", "before it connects")
}

// gate lets connections through while it is open.
type gate struct {
	net.Dialer
	open atomic.Bool
}

func (g *gate) Dial(network, address string) (net.Conn, error) {
	if !g.open.Load() {
		return nil, errors.New("the gate is closed")
	}
	return g.Dialer.Dial(network, address)
}

// An answer that NATS does not take would not be sent, and look like no answer: a view is made
// shorter, and of anything else the reason is told.
func TestAnswersFit(t *testing.T) {
	v := View{Heard: Heard{Checkers: 5000, Blocks: 9000}}
	for i := range most {
		v.Checkers = append(v.Checkers, CheckerView{Part: status.Part{Name: fmt.Sprint(i), Host: strings.Repeat("h", status.MaxText)}})
		v.Blocks = append(v.Blocks, BlockView{Key: status.Text(strings.Repeat("\x01", 512))})
	}
	const limit = 100_000
	data, err := encodeAnswer(v, nil, limit)
	if err != nil || len(data) > limit || len(data) < limit/4 {
		t.Fatalf("%d bytes, %v", len(data), err)
	}
	var a Answer
	var got View
	must(t, errors.Join(json.Unmarshal(data, &a), json.Unmarshal(a.Value, &got)))
	if got.Heard != v.Heard || len(got.Checkers) == 0 || len(got.Blocks) == 0 || got.Checkers[0].Name != "0" {
		t.Errorf("%d checkers and %d blocks of %+v", len(got.Checkers), len(got.Blocks), got.Heard)
	}
	if _, err := encodeAnswer([]string{strings.Repeat("x", limit)}, nil, limit); err == nil || !strings.Contains(err.Error(), "100000") {
		t.Errorf("%v", err)
	}
	if _, err := encodeAnswer(View{Namespace: strings.Repeat("x", limit)}, nil, limit); err == nil {
		t.Error("a view that cannot be made shorter")
	}
	data, err = encodeAnswer(KeyView{Count: 3}, fmt.Errorf("%w: full", ErrUnwritten), limit)
	if err != nil || !strings.Contains(string(data), `"count":3`) || !strings.Contains(string(data), "not written to the audit log: full") {
		t.Errorf("done, but not written: %s, %v", data, err)
	}
}
