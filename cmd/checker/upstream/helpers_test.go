package upstream

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/tlsfilestest"
	"github.com/offpath-io/offpath/pkg/identity/httpidentity"
)

// long is time that no test waits for.
const long = time.Minute

var must = daemontest.Must

func all(next http.Handler) http.Handler { return next }

func deny(http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) })
}

func trusting(t testing.TB, o httpidentity.Options, list ...string) *httpidentity.Builder {
	t.Helper()
	var err error
	if o.TrustedProxies, err = httpidentity.ParseProxies(list...); err != nil {
		t.Fatal(err)
	}
	b, err := httpidentity.NewBuilder(o)
	must(t, err)
	return b
}

// options are those of a proxy that trusts nobody and lets everything pass.
func options(t testing.TB, target string) Options {
	t.Helper()
	u, err := ParseTarget(target)
	must(t, err)
	return Options{
		Target: u, Limit: all, Identity: trusting(t, httpidentity.Options{}), Answer: long, Patience: long,
		Log: slog.New(slog.DiscardHandler), TLS: func() *tls.Config { return unchecked },
	}
}

// start serves the proxy, and returns its URL.
func start(t testing.TB, o Options) string {
	t.Helper()
	s := httptest.NewUnstartedServer(New(o))
	Tune(s.Config)
	s.Config.ReadHeaderTimeout = o.Patience
	s.Start()
	t.Cleanup(s.Close)
	return s.URL
}

// service serves a toy over HTTP/1.1 and HTTP/2 without TLS, or with it, and returns its URL.
func service(t testing.TB, scheme string, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	t.Cleanup(s.Close)
	if scheme == "https" {
		s.EnableHTTP2 = true
		s.StartTLS()
		return s.URL
	}
	Tune(s.Config)
	s.Start()
	return strings.Replace(s.URL, "http://", scheme+"://", 1)
}

// client speaks one version of HTTP.
func client(t testing.TB, version int) *http.Client {
	p := new(http.Protocols)
	p.SetHTTP1(version == 1)
	p.SetUnencryptedHTTP2(version == 2)
	transport := &http.Transport{Protocols: p}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func do(t testing.TB, c *http.Client, r *http.Request) (*http.Response, string) {
	t.Helper()
	response, err := c.Do(r)
	must(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	must(t, err)
	return response, string(body)
}

func request(t testing.TB, method, url string, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
	must(t, err)
	return r
}

// answers fails the test unless a request is answered with a status and a body, if that is not "".
func answers(t testing.TB, c *http.Client, r *http.Request, status int, want string) {
	t.Helper()
	if response, body := do(t, c, r); response.StatusCode != status || want != "" && body != want {
		t.Errorf("%s %s: %s %q, want %d %q", r.Method, r.URL, response.Status, body, status, want)
	}
}

func dial(t testing.TB, address string) net.Conn {
	t.Helper()
	u, err := url.Parse(address)
	must(t, err)
	conn, err := net.Dial("tcp", u.Host)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// unchecked takes every service for what it says that it is.
var unchecked = &tls.Config{InsecureSkipVerify: true}

// patience is time that passes in a test's own time, in no time.
const patience = time.Minute

// virtual is a proxy before a service, with a network and time of its own.
type virtual struct {
	*testing.T
	proxy *daemontest.Pipes
}

// inVirtualTime runs a test of a proxy with these options. What the service serves is of the
// options' scheme.
func inVirtualTime(t *testing.T, scheme string, tune func(*Options), service http.HandlerFunc, test func(virtual)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &http.Server{Handler: service}
		Tune(s)
		behind := daemontest.NewPipes()
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
func runVirtual(t *testing.T, scheme string, behind *daemontest.Pipes, tune func(*Options), test func(virtual)) {
	t.Helper()
	t.Cleanup(func() { time.Sleep(time.Second) }) // which a server waits after the end of some connections
	o := options(t, scheme+"://service")
	o.Patience, o.Answer, o.dial = patience, patience, behind.Dial
	if tune != nil {
		tune(&o)
	}
	proxy := &http.Server{Handler: New(o), ReadHeaderTimeout: o.Patience}
	Tune(proxy)
	v := virtual{t, daemontest.NewPipes()}
	go func() { _ = proxy.Serve(v.proxy) }()
	t.Cleanup(func() { _ = proxy.Close() })
	test(v)
}

// client speaks one version of HTTP.
func (v virtual) client(version int) *http.Client {
	c := client(v, version)
	c.Transport.(*http.Transport).DialContext = v.proxy.Dial
	return c
}

// connect returns a connection to the proxy.
func (v virtual) connect() net.Conn {
	v.Helper()
	conn, err := v.proxy.Dial(v.Context(), "", "")
	must(v, err)
	v.Cleanup(func() { _ = conn.Close() })
	return conn
}
