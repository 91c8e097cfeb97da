package tlsfiles

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/testing/tlsfilestest"
)

// answers reports whether the other side says again what it is told.
func answers(conn net.Conn) bool {
	_ = conn.SetDeadline(time.Now().Add(patience))
	_, err := conn.Write([]byte("x"))
	if err == nil {
		_, err = io.ReadFull(conn, make([]byte, 1))
	}
	return err == nil
}

// TestHangsUpOnStrangers: when an authority is taken out of a server's, the connections of its clients end, and the others go on; and
// connections that have ended are forgotten.
func TestHangsUpOnStrangers(t *testing.T) {
	ca, gone, w := tlsfilestest.NewAuthority(t, "authority"), tlsfilestest.NewAuthority(t, "gone"), newWorld(t)
	f := ca.Dir("server")
	tlsfilestest.Write(t, f.CA, slices.Concat(ca.PEM(), gone.PEM()))
	server, address := w.server(f, f.CA)
	dial := func(of *tlsfilestest.Authority) *tls.Conn {
		conn, err := tls.DialWithDialer(&net.Dialer{Timeout: patience}, "tcp", address,
			&tls.Config{RootCAs: ca.Pool(), Certificates: []tls.Certificate{of.Pair("client")}})
		must(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		_, err = io.ReadFull(conn, make([]byte, len(greeting)))
		must(t, err)
		return conn
	}
	ours, theirs, brief := dial(ca), dial(gone), dial(ca)
	if !answers(ours) || !answers(theirs) || !answers(brief) {
		t.Fatal("a client whose authority is there gets no answer")
	}
	known := func() int {
		server.clients.mu.Lock()
		defer server.clients.mu.Unlock()
		return len(server.clients.open)
	}
	_ = brief.Close()
	w.await("the connection that has ended is forgotten", func() bool { return known() == 2 })
	ca.Renew(f, "another certificate")
	w.await("it is loaded", func() bool { return w.files.States()[0].Loads == 2 })
	if !answers(ours) || !answers(theirs) {
		t.Error("it hangs up although the authorities are the same")
	}
	tlsfilestest.Write(t, f.CA, ca.PEM())
	w.await("it hangs up on the stranger", func() bool { return known() == 1 })
	if answers(theirs) || !answers(ours) {
		t.Error("the stranger is answered, or the other one is not")
	}
}

// TestLateStranger: whose authority goes during the handshake is not let in either.
func TestLateStranger(t *testing.T) {
	ca, gone := tlsfilestest.NewAuthority(t, "authority"), tlsfilestest.NewAuthority(t, "gone")
	now := &tls.Config{ClientCAs: gone.Pool()}
	var all clients
	config := all.watched(&client{clients: &all}, func() *tls.Config { return now })
	shown, err := x509.ParseCertificate(gone.Pair("client").Certificate[0])
	must(t, err)
	state := tls.ConnectionState{PeerCertificates: []*x509.Certificate{shown}}
	if err := config.VerifyConnection(state); err != nil {
		t.Errorf("before: %v", err)
	}
	now = &tls.Config{ClientCAs: ca.Pool()}
	if config.VerifyConnection(state) == nil {
		t.Error("it is let in")
	}
}
