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

// freePort returns a port that was free a moment ago, as was its cluster bus port. Another process may still take it:
// whoever starts a server on it must be ready to ask again.
func freePort() (int, error) {
	for range 1000 {
		port := lowestPort + rand.IntN(portSpan)
		if isFree(port) && isFree(port+busOffset) {
			return port, nil
		}
	}
	return 0, fmt.Errorf("find free port on %s: none of those tried between %d and %d", host, lowestPort, lowestPort+portSpan)
}

func isFree(port int) bool {
	listener, err := net.Listen("tcp", address(port))
	if err != nil {
		return false
	}
	return listener.Close() == nil
}

func address(port int) string {
	return net.JoinHostPort(host, strconv.Itoa(port))
}
