package natsbus_test

import (
	"net"
	"os"
	"runtime/debug"
	"sync"
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
	_ = conn.Publish("test", nil) // it may be noticed before
	select {
	case <-again:
	case <-time.After(time.Minute):
		t.Fatal("the connection is kept, on which nothing can be sent")
	}
}

// A server that takes connections, and then says nothing, holds up nobody who sends.
func TestSendsDoNotWaitForAServerThatIsSilent(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	dialer := &brittle{}
	conn, err := natsbus.Connect(serverstest.NATS(t).URL(), "test", nats.SetCustomDialer(dialer), nats.Timeout(time.Hour))
	must(t, err)
	checker, err := natsbus.NewChecker(conn, "test", "alpha")
	must(t, err)
	worker, err := natsbus.NewWorker(conn, "test")
	must(t, err)
	t.Cleanup(func() {
		_ = silent.Close()
		dialer.broken.Store(true) // ends the wait for the silent server
		dialer.close()
		conn.Close()
	})
	for !conn.IsConnected() {
		time.Sleep(time.Millisecond)
	}
	dialer.to.Store(new(silent.Addr().String()))
	dialer.close()
	for dialer.dials.Load() < 2 {
		time.Sleep(time.Millisecond)
	}
	var late *natsbus.Checker
	made := make(chan error, 1)
	go func() {
		var err error
		late, err = natsbus.NewChecker(conn, "test", "late")
		made <- err
	}()
	select {
	case err := <-made:
		must(t, err)
	case <-time.After(time.Minute):
		t.Fatal("a new sender waits for the server")
	}
	for name, send := range map[string]func() error{
		"late":   func() error { return late.Hello([]byte("hello")) },
		"hello":  func() error { return checker.Hello([]byte("hello")) },
		"report": func() error { return checker.Report(0, true, []byte("report")) },
		"alarm":  func() error { return worker.Alarm(0, []byte("alarm")) },
		"tell":   func() error { return worker.Tell([]byte("member")) },
	} {
		// One that begins before the loss is noticed may wait.
		sent, patience := make(chan error, 10_000), time.After(time.Minute)
		for done := false; !done; {
			go func() { sent <- send() }()
			select {
			case err := <-sent:
				if done = true; err == nil {
					t.Errorf("%s: no error without a connection", name)
				}
			case <-time.After(10 * time.Millisecond):
			case <-patience:
				t.Fatalf("%s waits for the server", name)
			}
		}
	}
}

// A handshake that fails leaves no connection open.
func TestRefusedConnectionsAreClosed(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // which would close them, too
	refusing, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer refusing.Close()
	closed := make(chan bool, 3)
	go func() {
		for range cap(closed) {
			peer, err := refusing.Accept()
			if err != nil {
				return
			}
			go func() {
				defer peer.Close()
				_, _ = peer.Write([]byte("-ERR 'not now'\r\n"))
				_, err := peer.Read(make([]byte, 1)) // nothing more comes
				closed <- err != nil
			}()
		}
	}()
	conn, err := natsbus.Connect("nats://"+refusing.Addr().String(), "test", nats.ReconnectWait(time.Millisecond),
		nats.ReconnectJitter(0, 0))
	must(t, err)
	defer conn.Close()
	for range cap(closed) - 1 { // the last one may still be in use
		select {
		case is := <-closed:
			if !is {
				t.Error("it says more")
			}
		case <-time.After(time.Minute):
			t.Fatal("a connection that was refused is still open")
		}
	}
}

// brittle makes connections that fail all writes once it is broken.
type brittle struct {
	broken atomic.Bool
	to     atomic.Pointer[string] // where connections lead, if that is set
	dials  atomic.Int64

	mu   sync.Mutex
	last net.Conn
}

func (b *brittle) Dial(network, address string) (net.Conn, error) {
	b.dials.Add(1)
	if to := b.to.Load(); to != nil {
		address = *to
	}
	conn, err := net.Dial(network, address)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last = conn
	return &brittleConn{conn, b}, nil
}

// close closes the last connection.
func (b *brittle) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.last != nil {
		_ = b.last.Close()
	}
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
