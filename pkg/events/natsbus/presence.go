package natsbus

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

var errAway = errors.New("not connected to NATS")

// presence says whether there is a connection. While the library makes one it keeps the lock that
// every send needs, for as long as a server that does not answer may take: seconds.
type presence struct{ away atomic.Bool }

// check returns an error if the connection is known to be lost: a send might wait.
func (p *presence) check() error {
	if p.away.Load() {
		return errAway
	}
	return nil
}

// follow follows a connection until ctx is done.
func (p *presence) follow(ctx context.Context, conn *nats.Conn) {
	changes := conn.StatusChanged(nats.CONNECTED, nats.RECONNECTING, nats.DISCONNECTED, nats.CLOSED)
	defer conn.RemoveStatusListener(changes)
	look := time.NewTicker(time.Second)
	defer look.Stop()
	p.away.Store(!conn.IsConnected())
	for {
		select {
		case <-ctx.Done():
			p.away.Store(false) // the library says it from now on
			return
		case status := <-changes:
			p.away.Store(status != nats.CONNECTED)
		case <-look.C: // the library drops changes that it cannot deliver
			p.away.Store(!conn.IsConnected())
		}
	}
}
