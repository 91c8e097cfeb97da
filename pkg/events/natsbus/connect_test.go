package natsbus_test

import (
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/pkg/events/natsbus"
)

// A process that was frozen while it wrote finds the deadline of that write passed. A connection
// with TLS then fails all writes, while it can still be read.
func TestAFailedWriteConnectsAgain(t *testing.T) {
	dialer := &brittle{}
	conn, err := natsbus.Connect(serverstest.NATS(t).URL(), "test", nats.SetCustomDialer(dialer),
		nats.PingInterval(time.Hour)) // else unanswered pings would show it, too: after 10 s
	must(t, err)
	t.Cleanup(conn.Close)
	for !conn.IsConnected() {
		time.Sleep(time.Millisecond)
	}
	dialer.broken.Store(true)
	again := conn.StatusChanged(nats.RECONNECTING)
	must(t, conn.Publish("test", nil))
	select {
	case <-again:
	case <-time.After(time.Minute):
		t.Fatal("the connection is kept, on which nothing can be sent")
	}
}

// brittle makes connections that fail all writes once it is broken.
type brittle struct{ broken atomic.Bool }

func (b *brittle) Dial(network, address string) (net.Conn, error) {
	conn, err := net.Dial(network, address)
	return &brittleConn{conn, b}, err
}

type brittleConn struct {
	net.Conn
	dialer *brittle
}

func (c *brittleConn) Write(p []byte) (int, error) {
	if c.dialer.broken.Load() {
		return 0, os.ErrDeadlineExceeded
	}
	return c.Conn.Write(p)
}
