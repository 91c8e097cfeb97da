package upstream

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/offpath-io/offpath/internal/testing/tlsfilestest"
)

// patience is time that passes in a test's own time, in no time.
const patience = time.Minute

// memory is a listener in the test's memory.
type memory struct {
	come   chan net.Conn
	closed context.Context
	close  context.CancelFunc
}

func newMemory() *memory {
	m := &memory{come: make(chan net.Conn)}
	m.closed, m.close = context.WithCancel(context.Background())
	return m
}

func (m *memory) Accept() (net.Conn, error) {
	select {
	case conn := <-m.come:
		return conn, nil
	case <-m.closed.Done():
		return nil, net.ErrClosed
	}
}

func (m *memory) Close() error   { m.close(); return nil }
func (m *memory) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

// peer is a connection from this machine.
type peer struct {
	net.Conn
	of *memory
}

func (p peer) RemoteAddr() net.Addr { return p.of.Addr() }

func (m *memory) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case m.come <- peer{server, m}:
		return client, nil
	case <-m.closed.Done():
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// virtual is a proxy before a service, with a network and time of its own.
type virtual struct {
	*testing.T
	proxy *memory
}

// inVirtualTime runs a test of a proxy with these options. What the service serves is of the options' scheme.
func inVirtualTime(t *testing.T, scheme string, tune func(*Options), service http.HandlerFunc, test func(virtual)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &http.Server{Handler: service}
		Tune(s)
		behind := newMemory()
		if scheme == "https" {
			s.TLSConfig = &tls.Config{Certificates: []tls.Certificate{tlsfilestest.NewAuthority(t, "authority").Pair("service")}}
			go func() { _ = s.ServeTLS(behind, "", "") }()
		} else {
			go func() { _ = s.Serve(behind) }()
		}
		t.Cleanup(func() { _ = s.Close() })
		runVirtual(t, scheme, behind, tune, test)
	})
}

// runVirtual does so before a service that is there.
func runVirtual(t *testing.T, scheme string, behind *memory, tune func(*Options), test func(virtual)) {
	t.Helper()
	t.Cleanup(func() { time.Sleep(time.Second) }) // which a server waits after the end of some connections
	o := options(t, scheme+"://service")
	o.Patience, o.Answer, o.dial = patience, patience, behind.dial
	if tune != nil {
		tune(&o)
	}
	proxy := &http.Server{Handler: New(o), ReadHeaderTimeout: o.Patience}
	Tune(proxy)
	v := virtual{t, newMemory()}
	go func() { _ = proxy.Serve(v.proxy) }()
	t.Cleanup(func() { _ = proxy.Close() })
	test(v)
}

// client speaks one version of HTTP.
func (v virtual) client(version int) *http.Client {
	c := client(v, version)
	c.Transport.(*http.Transport).DialContext = v.proxy.dial
	return c
}

// connect returns a connection to the proxy.
func (v virtual) connect() net.Conn {
	v.Helper()
	conn, err := v.proxy.dial(v.Context(), "", "")
	must(v, err)
	v.Cleanup(func() { _ = conn.Close() })
	return conn
}
