package console

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

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
	conn, err := nats.Connect(server.URL(), nats.SetCustomDialer(away), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1),
		nats.ReconnectWait(20*time.Millisecond))
	must(t, err)
	defer conn.Close()
	d := newDiary(conn, "test")
	stop := daemontest.Background(t, d.read)
	defer stop() // before the connection is closed
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
