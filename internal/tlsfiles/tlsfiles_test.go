package tlsfiles

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/filewatch"
	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/tlsfilestest"
)

// world is files under watch.
type world struct {
	t     *testing.T
	files *Files
	log   daemontest.Buffer
}

var must = daemontest.Must

func newWorld(t *testing.T) *world {
	w := &world{t: t}
	w.files = New(slog.New(slog.NewTextHandler(&w.log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	w.files.options = filewatch.Options{Settle: 5 * time.Millisecond, Poll: time.Hour, MaxSize: maxSize} // events alone
	return w
}

// run begins to watch.
func (w *world) run() { daemontest.Background(w.t, w.files.Run) }

func (w *world) await(what string, holds func() bool) {
	w.t.Helper()
	daemontest.Until(w.t, what, func() string {
		if holds() {
			return ""
		}
		return fmt.Sprintf("states %+v; log:\n%s", w.files.States(), &w.log)
	})
}

// greeting is what a server says first.
const greeting = "hello"

// serve accepts TLS connections, greets, and says again what it hears.
func serve(t *testing.T, server *ServerTLS) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	listener = tls.NewListener(server.Listener(listener), server.Config)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.WriteString(conn, greeting) // with the handshake before it
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			}()
		}
	}()
	return listener.Addr().String()
}

// shown connects, and returns the name in the server's certificate.
func shown(address string, config *tls.Config) (name string, err error) {
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: daemontest.Patience}, "tcp", address, config)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	// In TLS 1.3 a client hears only now whether its certificate is good.
	if _, err := io.ReadFull(conn, make([]byte, len(greeting))); err != nil {
		return "", err
	}
	return conn.ConnectionState().PeerCertificates[0].Subject.CommonName, nil
}

// server opens one with files of an authority, and says where; known are whom it knows, "" for
// everybody.
func (w *world) server(f tlsfilestest.Files, known string) (server *ServerTLS, address string) {
	w.t.Helper()
	server, err := w.files.Server("listen", Paths{Authorities: known, Cert: f.Cert, Key: f.Key})
	must(w.t, err)
	w.run()
	return server, serve(w.t, server)
}

func write(t *testing.T, path, content string) string {
	t.Helper()
	must(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// TestRotation: a server shows the newest good certificate, and whoever is refused in between
// leaves the old one in force.
func TestRotation(t *testing.T) {
	ca, w := tlsfilestest.NewAuthority(t, "authority"), newWorld(t)
	f := ca.Dir("first")
	_, address := w.server(f, "")
	client := &tls.Config{RootCAs: ca.Pool()}
	shows := func(want string) func() bool {
		return func() bool {
			name, err := shown(address, client)
			if err != nil {
				t.Fatalf("a handshake: %v", err)
			}
			return name == want
		}
	}
	state := func() State { return w.files.States()[0] }
	if !shows("first")() {
		t.Error("the first certificate is not shown")
	}
	ca.Renew(f, "second")
	w.await("the second is shown", shows("second"))
	// It is shown a moment before it is told of, and what was between the two files is trouble.
	w.await("and told of", func() bool { s := state(); return s.Loads == 2 && s.Trouble == nil })

	const secret = "CANARY-in-a-broken-file"
	write(t, f.Cert, secret)
	w.await("nonsense is refused, and the log names the file", func() bool {
		return state().Trouble != nil && strings.Contains(w.log.String(), f.Cert)
	})
	for _, what := range []string{state().Trouble.Error(), w.log.String()} {
		if strings.Contains(what, secret) || !strings.Contains(what, f.Cert) {
			t.Errorf("it tells what is in the file, or not which: %s", what)
		}
	}
	if s := state(); s.Refusals == 0 || !shows("second")() {
		t.Errorf("%+v, and the second is not shown", s)
	}
	must(t, os.Remove(f.Cert))
	w.await("a file that is gone is trouble", func() bool { s := state(); return s.Trouble != nil && os.IsNotExist(s.Trouble) })
	ca.Renew(f, "third")
	w.await("the third is shown", shows("third"))
	w.await("all is well", func() bool { return state().Trouble == nil })
}

// TestKubernetes: certificate and key are links through a link to a directory, which is swapped:
// nobody ever sees halves.
func TestKubernetes(t *testing.T) {
	ca, w, mount := tlsfilestest.NewAuthority(t, "authority"), newWorld(t), t.TempDir()
	publish := func(name string) {
		dir := filepath.Join(mount, ".."+name)
		must(t, os.Mkdir(dir, 0o700))
		cert, key := ca.Issue(name)
		write(t, filepath.Join(dir, "tls.crt"), string(cert))
		write(t, filepath.Join(dir, "tls.key"), string(key))
		must(t, os.Symlink(".."+name, filepath.Join(mount, "..data_tmp")))
		old, _ := os.Readlink(filepath.Join(mount, "..data"))
		must(t, os.Rename(filepath.Join(mount, "..data_tmp"), filepath.Join(mount, "..data")))
		if old != "" {
			must(t, os.RemoveAll(filepath.Join(mount, old)))
		}
	}
	publish("first")
	p := Paths{Cert: filepath.Join(mount, "tls.crt"), Key: filepath.Join(mount, "tls.key")}
	for _, path := range []string{p.Cert, p.Key} {
		must(t, os.Symlink(filepath.Join("..data", filepath.Base(path)), path))
	}
	_, address := w.server(tlsfilestest.Files{Cert: p.Cert, Key: p.Key}, "")
	for _, name := range []string{"second", "third", "fourth"} {
		publish(name)
		w.await(name+" is shown", func() bool {
			got, err := shown(address, &tls.Config{RootCAs: ca.Pool()})
			return err == nil && got == name
		})
	}
	if s := w.files.States()[0]; s.Refusals != 0 || s.Trouble != nil {
		t.Errorf("a swap was seen half done: %+v", s)
	}
}

// TestClientAuthorities: only clients of the authority get in; when that changes, those of the old
// one do not, not even by taking up a session that they have had.
func TestClientAuthorities(t *testing.T) {
	ca, other, w := tlsfilestest.NewAuthority(t, "authority"), tlsfilestest.NewAuthority(t, "other"), newWorld(t)
	f := ca.Dir("server")
	_, address := w.server(f, f.CA)
	with := func(certs ...tls.Certificate) *tls.Config {
		return &tls.Config{RootCAs: ca.Pool(), Certificates: certs, ClientSessionCache: tls.NewLRUClientSessionCache(1)}
	}
	gets := func(in bool, c *tls.Config) func() bool {
		return func() bool { _, err := shown(address, c); return (err == nil) == in }
	}
	ours, theirs := with(ca.Pair("client")), with(other.Pair("client"))
	for why, good := range map[string]bool{
		"without a certificate": gets(false, with())(), "of another authority": gets(false, theirs)(),
		"of ours": gets(true, ours)(), "of ours again": gets(true, ours)(),
	} {
		if !good {
			t.Errorf("a client %s", why)
		}
	}
	tlsfilestest.Write(t, f.CA, other.PEM())
	w.await("the other authority's get in", gets(true, theirs))
	if !gets(false, ours)() {
		t.Error("a client of the authority that is gone gets in")
	}
}

func TestOldVersionsAreRefused(t *testing.T) {
	ca, w := tlsfilestest.NewAuthority(t, "authority"), newWorld(t)
	f := ca.Dir("server")
	client, err := w.files.Client("nats", Paths{Authorities: f.CA})
	must(t, err)
	server, address := w.server(f, "")
	for version, want := range map[uint16]bool{tls.VersionTLS10: false, tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		_, err := shown(address, &tls.Config{RootCAs: ca.Pool(), MinVersion: version, MaxVersion: version})
		if (err == nil) != want {
			t.Errorf("%s: %v", tls.VersionName(version), err)
		}
	}
	if client().MinVersion != tls.VersionTLS12 || server.Config.MinVersion != tls.VersionTLS12 {
		t.Errorf("a client may speak %s", tls.VersionName(client().MinVersion))
	}
}

// answers reports whether the other side says again what it is told.
func answers(conn net.Conn) bool {
	_ = conn.SetDeadline(time.Now().Add(daemontest.Patience))
	_, err := conn.Write([]byte("x"))
	if err == nil {
		_, err = io.ReadFull(conn, make([]byte, 1))
	}
	return err == nil
}

// TestHangsUpOnStrangers: when an authority is taken out of a server's, the connections of its
// clients end, and the others go on; and connections that have ended are forgotten.
func TestHangsUpOnStrangers(t *testing.T) {
	ca, gone, w := tlsfilestest.NewAuthority(t, "authority"), tlsfilestest.NewAuthority(t, "gone"), newWorld(t)
	f := ca.Dir("server")
	tlsfilestest.Write(t, f.CA, slices.Concat(ca.PEM(), gone.PEM()))
	server, address := w.server(f, f.CA)
	dial := func(of *tlsfilestest.Authority) *tls.Conn {
		conn, err := tls.DialWithDialer(&net.Dialer{Timeout: daemontest.Patience}, "tcp", address,
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

// closing is a connection that says when it is about to be closed.
type closing struct {
	net.Conn
	now func()
}

func (c closing) Close() error {
	c.now()
	return nil
}

// TestForgottenOnceClosed: whoever sees that a connection is forgotten may rely on its end.
func TestForgottenOnceClosed(t *testing.T) {
	var all clients
	known := func() int {
		all.mu.Lock()
		defer all.mu.Unlock()
		return len(all.open)
	}
	during := -1
	c := &client{Conn: closing{now: func() { during = known() }}, clients: &all}
	all.add(c, nil)
	must(t, c.Close())
	if after := known(); during != 1 || after != 0 {
		t.Errorf("%d are known as it is closed, %d after that", during, after)
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
