package servers

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// host is where every server of this package listens.
const host = "127.0.0.1"

// Ports are drawn from below the ephemeral range (32768 and up on Linux), and so are the cluster bus ports above them.
// A port that the system had chosen would be an ephemeral one: while the server is down for a restart, any outgoing
// connection of this machine may be given it as its own port, even a client's that tries to reach this very server.
const (
	lowestPort = 10000
	portSpan   = 12000
	// busOffset is Redis's: a cluster node's bus listens this far above its port.
	busOffset = 10000
)

// portAttempts bounds how often a start is tried again because another process took the port first.
const portAttempts = 10

// errPortTaken says that another process listens on the port.
var errPortTaken = errors.New("port taken")

// port is one that this package gives to nobody else, in no process of this machine, while it is
// held: also while the server on it is down, when another test's server would otherwise be started
// there, and be taken for this one.
//
// It is held by a socket of UDP, which no server here uses: TCP's port stays free for the server
// itself, and the system lets go of the socket when the process ends, however that ends. One that
// is not reachable any more is let go of, too.
type port struct {
	number int
	held   net.PacketConn
}

// freePort returns a port that was free a moment ago, as was its cluster bus port. A process
// without this package may still take it: whoever starts a server on it must be ready to ask again.
func freePort() (*port, error) {
	for range 1000 {
		if p := hold(lowestPort + rand.IntN(portSpan)); p != nil {
			if isFree(p.number) && isFree(p.number+busOffset) {
				return p, nil
			}
			p.release()
		}
	}
	return nil, fmt.Errorf("find free port on %s: none of those tried between %d and %d", host, lowestPort, lowestPort+portSpan)
}

// hold returns the port of this number, nil if it is held already.
func hold(number int) *port {
	held, err := net.ListenPacket("udp", address(number))
	if err != nil {
		return nil
	}
	return &port{number, held}
}

func (p *port) release() { _ = p.held.Close() }

func isFree(number int) bool {
	listener, err := net.Listen("tcp", address(number))
	if err != nil {
		return false
	}
	return listener.Close() == nil
}

func address(number int) string {
	return net.JoinHostPort(host, strconv.Itoa(number))
}
