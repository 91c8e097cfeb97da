package link

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
)

// peer is one end of a connection through a link. It fails the test if something takes too long.
type peer struct {
	*net.TCPConn
	t *testing.T
}

func (p peer) send(text string) {
	p.t.Helper()
	_, err := p.Write([]byte(text))
	daemontest.Must(p.t, err)
}

func (p peer) receives(want string) {
	p.t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(p, got); err != nil || string(got) != want {
		p.t.Fatalf("received %q, %v, want %q", got, err, want)
	}
}

// receivesNothing gives a link that works time to show that it does.
func (p peer) receivesNothing() {
	p.t.Helper()
	_ = p.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := p.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		p.t.Fatalf("received %d bytes, %v", n, err)
	}
	_ = p.SetReadDeadline(time.Now().Add(daemontest.Patience))
}

func (p peer) endsWith(want error) {
	p.t.Helper()
	if _, err := p.Read(make([]byte, 1)); !errors.Is(err, want) {
		p.t.Fatalf("ended with %v, want %v", err, want)
	}
}

func newPeer(t *testing.T, c net.Conn, err error) peer {
	t.Helper()
	daemontest.Must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(daemontest.Patience))
	return peer{c.(*net.TCPConn), t}
}

// stage is a link to a target that the test plays.
type stage struct {
	*Link
	t      *testing.T
	target *net.TCPListener
}

func newStage(t *testing.T) stage {
	t.Helper()
	target, err := net.Listen("tcp", "127.0.0.1:0")
	daemontest.Must(t, err)
	t.Cleanup(func() { _ = target.Close() })
	return stage{listen(t, target.Addr().String()), t, target.(*net.TCPListener)}
}

func listen(t *testing.T, target string) *Link {
	t.Helper()
	l, err := Listen(target)
	daemontest.Must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func dial(t *testing.T, l *Link) peer {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr())
	return newPeer(t, c, err)
}

func (s stage) accept() peer {
	s.t.Helper()
	_ = s.target.SetDeadline(time.Now().Add(daemontest.Patience))
	c, err := s.target.Accept()
	return newPeer(s.t, c, err)
}

// connect returns both ends of a connection that has carried bytes both ways.
func (s stage) connect() (client, server peer) {
	s.t.Helper()
	client, server = dial(s.t, s.Link), s.accept()
	client.send("hello")
	server.receives("hello")
	server.send("welcome")
	client.receives("welcome")
	return client, server
}

func TestBytesPassUnchangedAndInOrder(t *testing.T) {
	s := newStage(t)
	s.Set(Faults{Delay: time.Millisecond, Jitter: 5 * time.Millisecond, Loss: 0.01})
	client, server := dial(t, s.Link), s.accept()
	for _, way := range []struct{ from, to peer }{{client, server}, {server, client}} {
		sent := make([]byte, 3<<20)
		_, _ = rand.NewChaCha8([32]byte{1}).Read(sent)
		go func() {
			for rest := sent; len(rest) > 0; {
				n := min(len(rest), 1+rand.IntN(10_000))
				if _, err := way.from.Write(rest[:n]); err != nil {
					t.Error(err)
				}
				rest = rest[n:]
			}
			_ = way.from.CloseWrite() // the other way stays open
		}()
		got, err := io.ReadAll(way.to)
		if err != nil || !bytes.Equal(got, sent) {
			t.Fatalf("%d bytes of %d arrived, or others: %v", len(got), len(sent), err)
		}
	}
}

func TestADelayIsAtLeastThat(t *testing.T) {
	s := newStage(t)
	client, server := s.connect()
	const delay = 30 * time.Millisecond
	s.Set(Faults{Delay: delay})
	start := time.Now()
	client.send("ping")
	server.receives("ping")
	server.send("pong")
	client.receives("pong")
	if took := time.Since(start); took < 2*delay {
		t.Errorf("there and back took %v", took)
	}
	if got := s.Faults(); got != (Faults{Delay: delay}) {
		t.Errorf("faults are %+v", got)
	}
}

func TestSetWakesWhatWaits(t *testing.T) {
	for _, faults := range []Faults{{Delay: time.Hour}, {Rate: 1}, {HoldTo: true}} {
		s := newStage(t)
		client, server := s.connect()
		s.Set(faults)
		text := strings.Repeat("late ", 100)
		client.send(text)
		time.Sleep(10 * time.Millisecond) // time to fall asleep
		s.Set(Faults{})
		server.receives(text)
	}
}

func TestAPartitionHoldsBytesUntilItEnds(t *testing.T) {
	s := newStage(t)
	client, server := s.connect()
	for _, row := range []struct {
		faults   Faults
		to, from bool // whether bytes pass
	}{
		{Faults{HoldTo: true}, false, true},
		{Faults{HoldFrom: true}, true, false},
		{Faults{HoldTo: true, HoldFrom: true}, false, false},
	} {
		for _, way := range []struct {
			from, to peer
			passes   bool
		}{{client, server, row.to}, {server, client, row.from}} {
			s.Set(row.faults)
			way.from.send("abc")
			if !way.passes {
				way.to.receivesNothing()
				s.Set(Faults{})
			}
			way.to.receives("abc")
		}
	}
}

func TestAPartitionHoldsTheEndOfAStream(t *testing.T) {
	s := newStage(t)
	client, server := s.connect()
	s.Set(Faults{HoldTo: true})
	client.send("bye")
	daemontest.Must(t, client.CloseWrite())
	server.receivesNothing()
	server.send("still here") // half closed
	client.receives("still here")
	s.Set(Faults{})
	server.receives("bye")
	server.endsWith(io.EOF)
	server.send("bye, too")
	daemontest.Must(t, server.Close())
	client.receives("bye, too")
	client.endsWith(io.EOF)
}

func TestAPartitionHoldsNewConnections(t *testing.T) {
	s := newStage(t)
	s.Set(Faults{HoldTo: true})
	client := dial(t, s.Link)
	client.send("hello")
	_ = s.target.SetDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := s.target.Accept(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the target has a connection: %v", err)
	}
	s.Set(Faults{HoldFrom: true})
	server := s.accept()
	server.receives("hello")
	server.send("welcome")
	client.receivesNothing()
	s.Set(Faults{})
	client.receives("welcome")
}

// What a sender can send during a partition is bounded; what it has sent arrives.
func TestAPartitionBoundsMemory(t *testing.T) {
	s := newStage(t)
	client, server := s.connect()
	s.Set(Faults{HoldTo: true})
	_ = client.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
	const kernel = 64 << 20 // more than Linux buffers
	sent, err := client.Write(make([]byte, kernel+2<<20))
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("sent %d bytes, %v", sent, err)
	}
	daemontest.Must(t, client.CloseWrite())
	s.Set(Faults{})
	if n, err := io.Copy(io.Discard, server); n != int64(sent) || err != nil {
		t.Errorf("%d bytes of %d arrived, %v", n, sent, err)
	}
}

func TestCutResetsBothSides(t *testing.T) {
	for _, faults := range []Faults{{}, {Delay: time.Hour}, {HoldTo: true, HoldFrom: true}} {
		s := newStage(t)
		client1, server1 := s.connect()
		client2, server2 := s.connect()
		s.Set(faults)
		if faults != (Faults{}) {
			client1.send("lost")
		}
		if n := s.Cut(); n != 2 {
			t.Errorf("%d connections cut, want 2", n)
		}
		for _, p := range []peer{client1, server1, client2, server2} {
			p.endsWith(syscall.ECONNRESET)
		}
		s.Set(Faults{})
		s.connect()
	}
}

func TestAResetIsPassedOn(t *testing.T) {
	s := newStage(t)
	for _, way := range []string{"to", "from"} {
		client, server := s.connect()
		dead, left := client, server
		if way == "from" {
			dead, left = server, client
		}
		dead.send("last words")
		s.Set(Faults{HoldTo: true, HoldFrom: true})
		abort(dead.TCPConn)
		s.Set(Faults{})
		left.receives("last words")
		left.endsWith(syscall.ECONNRESET)
	}
}

// An end that is closed without reading on resets the other, as soon as that sends to it.
func TestAFailedWriteIsPassedOn(t *testing.T) {
	s := newStage(t)
	client, server := s.connect()
	daemontest.Must(t, client.Close())
	server.endsWith(io.EOF)
	daemontest.Eventually(t, "the target is reset", func() bool {
		_, err := server.Write([]byte("anybody?"))
		return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
	})
	daemontest.Eventually(t, "the link has forgotten it", func() bool { return s.open() == 0 })
}

func (s stage) open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// isReset opens a connection and expects that it is reset at once.
func isReset(t *testing.T, l *Link) {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr())
	if errors.Is(err, syscall.ECONNRESET) {
		return // faster than Dial
	}
	newPeer(t, c, err).endsWith(syscall.ECONNRESET)
}

func TestRefuseResetsNewConnectionsOnly(t *testing.T) {
	s := newStage(t)
	client, server := s.connect()
	s.Set(Faults{Refuse: true})
	isReset(t, s.Link)
	client.send("ping")
	server.receives("ping")
	s.Set(Faults{})
	s.connect()
}

func TestATargetThatIsDown(t *testing.T) {
	s := newStage(t)
	address := s.target.Addr().String()
	daemontest.Must(t, s.target.Close())
	isReset(t, s.Link)

	s.Set(Faults{HoldFrom: true})
	client := dial(t, s.Link)
	client.receivesNothing() // a partition hides it
	s.Set(Faults{})
	client.endsWith(syscall.ECONNRESET)

	s.Set(Faults{HoldTo: true})
	client = dial(t, s.Link)
	again, err := net.Listen("tcp", address)
	daemontest.Must(t, err)
	defer again.Close()
	s.target = again.(*net.TCPListener)
	s.Set(Faults{})
	client.send("hello")
	s.accept().receives("hello")
}

func TestCloseEndsEverything(t *testing.T) {
	s := newStage(t)
	client, server := s.connect()
	s.Set(Faults{Delay: time.Hour})
	client.send("never")
	s.Set(Faults{HoldTo: true, HoldFrom: true})
	waiting := dial(t, s.Link)
	daemontest.Eventually(t, "the link has both", func() bool { return s.open() == 2 })
	daemontest.Must(t, s.Close())
	if n := s.open(); n != 0 {
		t.Errorf("%d connections are open", n)
	}
	for _, p := range []peer{client, server, waiting} {
		p.endsWith(syscall.ECONNRESET)
	}
	if _, err := net.Dial("tcp", s.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a new connection: %v", err)
	}
	if err := s.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a second Close: %v", err)
	}
	// Close waits until their work is done; the runtime takes a moment more.
	daemontest.Until(t, "the link has no goroutine", func() string {
		stacks := make([]byte, 1<<20)
		for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
			if strings.Contains(stack, "link.(*Link)") || strings.Contains(stack, "link.relay") {
				return stack
			}
		}
		return ""
	})
}

func TestListenErrors(t *testing.T) {
	if _, err := Listen("nowhere"); err == nil {
		t.Error("a target without a port")
	}
	l := listen(t, "127.0.0.1:1")
	port := l.listener.Addr().(*net.TCPAddr).Port
	if _, err := ListenOn(port, "127.0.0.1:1"); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a port that is taken: %v", err)
	}
	daemontest.Must(t, l.Close())
	again, err := ListenOn(port, "127.0.0.1:1")
	daemontest.Must(t, err)
	daemontest.Must(t, again.Close())
}
