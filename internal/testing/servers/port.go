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

// freePort returns a port that was free a moment ago, as was its cluster bus port. No other process that asks this
// package gets it, or looks whether it is free, until this one ends: a server may be down for a while, and come back, or
// be missed. A stranger may still take it: whoever starts a server on it must be ready to ask again.
func freePort() (int, error) {
	for range 1000 {
		port := lowestPort + rand.IntN(portSpan)
		release, ok := reserve(port, port+busOffset)
		if !ok {
			continue
		}
		if isFree(port) && isFree(port+busOffset) {
			return port, nil
		}
		release()
	}
	return 0, fmt.Errorf("find free port on %s: none of those tried between %d and %d", host, lowestPort, lowestPort+portSpan)
}

// FreeAddress returns an address of 127.0.0.1 to listen on, for a server that this package does not start, but that is to
// be stopped and started again. It is this process's as long as that runs.
func FreeAddress() (string, error) {
	port, err := freePort()
	return address(port), err
}

// reserved are the reservations of this process, which end with it.
var (
	reservedMu sync.Mutex
	reserved   []net.PacketConn
)

// reserve takes ports among the processes that ask this package: by UDP, which none of the servers uses, so that the
// system gives them back whatever becomes of this process.
func reserve(ports ...int) (release func(), ok bool) {
	var taken []net.PacketConn
	release = func() {
		for _, conn := range taken {
			_ = conn.Close() // nothing was sent
		}
	}
	for _, port := range ports {
		conn, err := net.ListenPacket("udp", address(port))
		if err != nil {
			release()
			return nil, false
		}
		taken = append(taken, conn)
	}
	reservedMu.Lock()
	defer reservedMu.Unlock()
	reserved = append(reserved, taken...)
	return release, true
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
