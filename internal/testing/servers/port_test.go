package servers

import (
	"errors"
	"net"
	"testing"
)

func TestFreePortStaysBelowEphemeralPorts(t *testing.T) {
	for range 50 {
		port, err := freePort()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range []int{port, port + busOffset} {
			if p < lowestPort || p >= 32768 {
				t.Errorf("port %d is outside of %d to 32767", p, lowestPort)
			}
			listener, err := net.Listen("tcp", address(p))
			if err != nil {
				t.Errorf("port %d is not free: %v", p, err)
				continue
			}
			listener.Close()
		}
	}
}

func startBoth(t *testing.T) (*NATS, *Redis) {
	t.Helper()
	n, err1 := StartNATS(NATSOptions{})
	r, err2 := StartRedis(t.Context(), RedisOptions{})
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(n.Stop(), r.Stop()) })
	return n, r
}

// A server that is down for a while finds its ports again: no other process is given them, or
// listens there to see whether they are free.
func TestPortStaysTheServersWhileItIsDown(t *testing.T) {
	n, r := startBoth(t)
	if err := errors.Join(n.Stop(), r.Kill()); err != nil {
		t.Fatal(err)
	}
	for _, port := range []int{n.options.Port, r.port} {
		for _, p := range []int{port, port + busOffset} {
			if reserve(p) {
				t.Errorf("port %d is given away while its server is down", p)
			}
		}
	}
}

// A paused server is stopped as gently as any other: it hears the request.
func TestRedisPausedCanBeStopped(t *testing.T) {
	_, r := startBoth(t)
	proc := r.proc
	if err := errors.Join(r.Pause(), r.Stop()); err != nil {
		t.Fatal(err)
	}
	if state := proc.cmd.ProcessState; !state.Exited() {
		t.Errorf("it was killed: %v", state)
	}
	if err := r.Pause(); err == nil {
		t.Error("Pause of a stopped server succeeds")
	}
}

func TestNATSSaysThatThePortIsTaken(t *testing.T) {
	n, _ := startBoth(t)
	if _, err := StartNATS(NATSOptions{Port: n.options.Port}); !errors.Is(err, errPortTaken) {
		t.Errorf("two servers on one port: %v", err)
	}
}
