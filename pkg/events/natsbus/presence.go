package natsbus

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

var errAway = errors.New("not connected to NATS")

// presence says whether there is a connection. While the library makes one it keeps the lock that
// every send needs, for as long as a server that does not answer may take: seconds.
type presence struct{ away atomic.Bool }

// watch returns the presence of a connection, and keeps it up to date until that is closed for good.
// A connection is away while the library makes it.
func watch(conn *nats.Conn) *presence {
	p, known := &presence{}, make(chan struct{})
	p.away.Store(true)
	go func() {
		changes := conn.StatusChanged(nats.CONNECTED, nats.RECONNECTING, nats.DISCONNECTED, nats.CLOSED)
		now := conn.Status()
		p.away.Store(now != nats.CONNECTED)
		close(known)
		p.follow(now, changes, conn.Status)
	}()
	select {
	case <-known:
	case <-time.After(answersWithin):
	}
	return p
}

// answersWithin is how long the library takes at most to tell a status, unless it is connecting.
const answersWithin = 100 * time.Millisecond

// check returns an error if the connection is known to be lost: a send might wait.
func (p *presence) check() error {
	if p.away.Load() {
		return errAway
	}
	return nil
}

// follow follows the changes of a connection's status, which must have a buffer. It asks for the
// status as rarely as it can: while a connection is made there is no answer.
func (p *presence) follow(status nats.Status, changes <-chan nats.Status, ask func() nats.Status) {
	for status != nats.CLOSED {
		p.away.Store(status != nats.CONNECTED)
		status = <-changes
		if len(changes) < cap(changes)-1 {
			continue
		}
		// It was full. The library drops what it cannot deliver, so this may not be the last one.
		p.away.Store(true)
		for len(changes) > 0 {
			<-changes
		}
		status = ask()
	}
	p.away.Store(false) // the library says it from now on, and says why
}
