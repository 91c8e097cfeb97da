package checker

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/tlsfilestest"
)

// secured is a checker whose listeners all have the same certificate.
type secured struct {
	*daemontest.Daemon
	ca    *tlsfilestest.Authority
	files tlsfilestest.Files
}

// startSecured starts one. The listeners of knowing want a certificate of their clients too.
func startSecured(t *testing.T, knowing ...string) *secured {
	t.Helper()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "by %s", r.Header.Get("X-Forwarded-Proto"))
	}))
	t.Cleanup(upstream.Close)
	s := &secured{ca: tlsfilestest.NewAuthority(t, "authority")}
	s.files = s.ca.Dir("first")
	args := []string{"--rules", writeFile(t, daily(1_000_000)), "--upstream", upstream.URL, "--proxy", "127.0.0.1:0"}
	for _, listener := range []string{"listen", "grpc", "proxy", "admin"} {
		args = append(args, "--"+listener+"-cert", s.files.Cert, "--"+listener+"-key", s.files.Key)
	}
	for _, listener := range knowing {
		args = append(args, "--"+listener+"-client-ca", s.files.CA)
	}
	s.Daemon = startChecker(t, args...)
	return s
}

// client returns a client that speaks HTTP/2 and shows these certificates.
func (s *secured) client(t *testing.T, certs ...tls.Certificate) *http.Client {
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: s.ca.Pool(), Certificates: certs},
		ForceAttemptHTTP2: true,
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func (s *secured) proxyURL() string { return s.Find(`proxy +(https://[^ ,]+),`) }

// dialGRPC returns a connection to the gRPC API, for as long as the test lasts.
func (s *secured) dialGRPC(t *testing.T, config *tls.Config) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(s.Find(`gRPC API +([^ ,]+),`), grpc.WithTransportCredentials(credentials.NewTLS(config)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: daemontest.Patience}))
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// fetch makes one request. An answer that is not 200 is an error too.
func fetch(t *testing.T, client *http.Client, method, url, body string) (*http.Response, string, error) {
	t.Helper()
	response, text, err := daemontest.Fetch(t, client, method, url, body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %d %s", method, url, response.StatusCode, text)
	}
	return response, text, err
}

// TestListenersOverTLS: all listeners speak TLS, HTTP/2 too, and nothing else; the admin API
// answers only those it knows.
func TestListenersOverTLS(t *testing.T) {
	s := startSecured(t, "admin")
	stranger, known := s.client(t), s.client(t, s.ca.Pair("prometheus"))
	for _, test := range []struct {
		what         string
		client       *http.Client
		method, url  string
		body, answer string
	}{
		{"HTTP API", stranger, "POST", apiOf(s.Daemon), kristie, `"allowed":true`},
		{"proxy", stranger, "GET", s.proxyURL(), "", "by https"},
		{"admin", known, "GET", s.Admin() + "/metrics", "", `offpath_files_refused{files="listen",fleet="offpath"} 0`},
		{"expiry", known, "GET", s.Admin() + "/metrics", "", `offpath_files_expiry_timestamp_seconds{files="admin",fleet="offpath"}`},
	} {
		response, text, err := fetch(t, test.client, test.method, test.url, test.body)
		if err != nil || !strings.Contains(text, test.answer) || response.ProtoMajor != 2 {
			t.Errorf("%s: %v; %.200s", test.what, err, text)
			continue
		}
		equal(t, test.what+": whose certificate", response.TLS.PeerCertificates[0].Subject.CommonName, "first")
	}
	// In TLS 1.3 a client may hear why, or not.
	if _, _, err := fetch(t, stranger, "GET", s.Admin()+"/metrics", ""); err == nil {
		t.Error("admin answers a stranger")
	}
	for _, url := range []string{apiOf(s.Daemon), s.proxyURL(), s.Admin() + "/healthz"} {
		plain := "http" + strings.TrimPrefix(url, "https")
		response, _, err := fetch(t, http.DefaultClient, "GET", plain, "")
		if err == nil || response != nil && response.StatusCode != http.StatusBadRequest {
			t.Errorf("%s without TLS: %v", url, err)
		}
	}
	equal(t, "gRPC API", healthOf(t.Context(), s.dialGRPC(t, &tls.Config{RootCAs: s.ca.Pool()}), ""), "SERVING")
	other := &tls.Config{RootCAs: tlsfilestest.NewAuthority(t, "other").Pool()}
	if got := healthOf(t.Context(), s.dialGRPC(t, other), ""); !strings.Contains(got, "unknown authority") {
		t.Errorf("gRPC API, to one who trusts another authority: %s", got)
	}
}

// TestServiceOverTLS: the reverse proxy trusts the service's authority alone, and shows it a
// certificate; when both change, it does so for the new ones.
func TestServiceOverTLS(t *testing.T) {
	first, second := tlsfilestest.NewAuthority(t, "first"), tlsfilestest.NewAuthority(t, "second")
	var now atomic.Pointer[tls.Config]
	becomes := func(ca *tlsfilestest.Authority) {
		now.Store(&tls.Config{
			Certificates: []tls.Certificate{ca.Pair("service")}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.Pool(),
		})
	}
	becomes(first)
	service := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "hello %s", r.TLS.PeerCertificates[0].Subject.CommonName)
	}))
	service.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	service.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return now.Load(), nil }}
	service.StartTLS()
	t.Cleanup(service.Close)

	f := first.Dir("proxy-1")
	d := startChecker(t, "--rules", writeFile(t, daily(15)), "--proxy", "127.0.0.1:0", "--upstream", service.URL,
		"--upstream-ca", f.CA, "--upstream-cert", f.Cert, "--upstream-key", f.Key)
	answers := func(status int, text string) {
		t.Helper()
		d.Await(fmt.Sprint("the proxy answers ", status, " ", text), func() bool {
			got, body := daemontest.Do(t, "GET", proxyOf(d), "")
			return got == status && strings.Contains(body, text)
		})
	}
	answers(200, "hello proxy-1")
	becomes(second)
	service.CloseClientConnections()
	answers(502, "")
	tlsfilestest.Write(t, f.CA, second.PEM())
	second.Renew(f, "proxy-2")
	answers(200, "hello proxy-2")
}

// TestAuthorityTakenBack: clients of an authority that is taken out of the file are out at once,
// also on connections that they have had.
func TestAuthorityTakenBack(t *testing.T) {
	s := startSecured(t, "listen", "grpc")
	web := s.client(t, s.ca.Pair("web"))
	conn := s.dialGRPC(t, &tls.Config{RootCAs: s.ca.Pool(), Certificates: []tls.Certificate{s.ca.Pair("envoy")}})
	answers := map[string]func() bool{
		"HTTP": func() bool { _, _, err := fetch(t, web, "POST", apiOf(s.Daemon), kristie); return err == nil },
		"gRPC": func() bool { return healthOf(t.Context(), conn, "") == "SERVING" },
	}
	for name, ask := range answers {
		equal(t, name, ask(), true)
	}
	tlsfilestest.Write(t, s.files.CA, tlsfilestest.NewAuthority(t, "other").PEM())
	for name, ask := range answers {
		s.Await(name+" is not answered any more", func() bool { return !ask() })
	}
}
