package servers

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// host is where every server of this package listens.
const host = "127.0.0.1"

// Ports are drawn from below the ephemeral range (32768 and up on Linux), and so are the cluster
// bus ports above them. A port that the system had chosen would be an ephemeral one: while the
// server is down for a restart, any outgoing connection of this machine may be given it as its own
// port, even a client's that tries to reach this very server.
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

// freePort returns a port that was free a moment ago, as was its cluster bus port. Until this
// process ends, no other process that uses this package is given either port, or listens there to
// see whether it is free: a server may be down for a while, and come back. A process that does not
// use this package may still take it, so callers that start a server on it must be ready to ask
// again.
func freePort() (int, error) {
	for range 1000 {
		if port := lowestPort + rand.IntN(portSpan); reserve(port) {
			return port, nil
		}
	}
	return 0, fmt.Errorf("find free port on %s: none of those tried between %d and %d", host, lowestPort, lowestPort+portSpan)
}

// onFreePort starts something on a free port, or on another one if somebody took that first.
func onFreePort[T any](start func(port int) (T, error)) (started T, err error) {
	for range portAttempts {
		var port int
		if port, err = freePort(); err != nil {
			return started, err
		}
		if started, err = start(port); !errors.Is(err, errPortTaken) {
			return started, err
		}
	}
	return started, err
}

// FreeAddress returns an address of 127.0.0.1 for a server that this package does not start, and
// that can be stopped and started again there. It is reserved until this process ends.
func FreeAddress() (string, error) {
	port, err := freePort()
	return address(port), err
}

// reserved are the reservations of this process: UDP sockets, as the servers use TCP only. The
// system closes them when the process ends, however it ends.
var (
	reservedMu sync.Mutex
	reserved   []net.PacketConn
)

// reserve reserves a port and its cluster bus port, if both are free.
func reserve(port int) bool {
	var held []net.PacketConn
	for _, p := range []int{port, port + busOffset} {
		if conn, err := net.ListenPacket("udp", address(p)); err == nil {
			held = append(held, conn)
		}
	}
	if len(held) < 2 || !isFree(port) || !isFree(port+busOffset) {
		for _, conn := range held {
			_ = conn.Close() // nothing was sent
		}
		return false
	}
	reservedMu.Lock()
	defer reservedMu.Unlock()
	reserved = append(reserved, held...)
	return true
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
