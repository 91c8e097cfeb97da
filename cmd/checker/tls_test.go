package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/tlsfilestest"
)

// secured is a checker whose doors all have the same certificate; the admin door wants one of its clients too.
type secured struct {
	*daemontest.Daemon
	ca    *tlsfilestest.Authority
	files tlsfilestest.Files
}

func startSecured(t *testing.T) *secured {
	t.Helper()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "by %s", r.Header.Get("X-Forwarded-Proto"))
	}))
	t.Cleanup(upstream.Close)
	s := &secured{ca: tlsfilestest.NewAuthority(t, "authority")}
	s.files = s.ca.Dir("first")
	args := []string{
		"--rules", writeFile(t, "rules: [{name: per-user, key: [user], limit: 1000000/day}]"),
		"--upstream", upstream.URL, "--proxy", "127.0.0.1:0", "--admin-client-ca", s.files.CA,
	}
	for _, door := range []string{"listen", "grpc", "proxy", "admin"} {
		args = append(args, "--"+door+"-cert", s.files.Cert, "--"+door+"-key", s.files.Key)
	}
	s.Daemon = start1(t, args...)
	return s
}

// client returns an HTTP client, which shows these certificates; it makes a connection for each request if it is fresh.
func (s *secured) client(t *testing.T, fresh bool, certs ...tls.Certificate) *http.Client {
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: s.ca.Pool(), Certificates: certs}, ForceAttemptHTTP2: true, DisableKeepAlives: fresh,
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func (s *secured) proxyURL() string { return s.Find(`proxy +(https://[^ ,]+),`) }

// askHealth asks the gRPC door on a connection of its own.
func (s *secured) askHealth(t *testing.T, config *tls.Config) (err error) {
	conn, err := grpc.NewClient(s.Find(`gRPC door +([^ ,]+),`), grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = grpc_health_v1.NewHealthClient(conn).Check(t.Context(), new(grpc_health_v1.HealthCheckRequest))
	return err
}

// fetch makes one request. An answer that is not 200 is an error too.
func fetch(client *http.Client, method, url, body string) (response *http.Response, text string, err error) {
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return nil, "", err
	}
	response, err = client.Do(r)
	if err != nil {
		return nil, "", err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %d %s", method, url, response.StatusCode, data)
	}
	return response, string(data), err
}

// TestDoorsOverTLS: all doors speak TLS, HTTP/2 too, and nothing else; the admin door answers only those it knows.
func TestDoorsOverTLS(t *testing.T) {
	s := startSecured(t)
	door := s.Find(`HTTP door +(https://\S+)`)
	stranger, known := s.client(t, false), s.client(t, false, s.ca.Pair("prometheus"))
	for _, test := range []struct {
		what         string
		client       *http.Client
		method, url  string
		body, answer string
	}{
		{"HTTP door", stranger, "POST", door, kristie, `"allowed":true`},
		{"proxy", stranger, "GET", s.proxyURL(), "", "by https"},
		{"admin", known, "GET", s.Admin() + "/metrics", "", `offpath_files_refused{files="listen"} 0`},
		{"expiry", known, "GET", s.Admin() + "/metrics", "", `offpath_files_expiry_timestamp_seconds{files="admin"}`},
	} {
		response, text, err := fetch(test.client, test.method, test.url, test.body)
		if err != nil || !strings.Contains(text, test.answer) || response.ProtoMajor != 2 {
			t.Errorf("%s: %v; %.200s", test.what, err, text)
			continue
		}
		if name := response.TLS.PeerCertificates[0].Subject.CommonName; name != "first" {
			t.Errorf("%s: the certificate is that of %s", test.what, name)
		}
	}
	if _, _, err := fetch(stranger, "GET", s.Admin()+"/metrics", ""); err == nil { // in TLS 1.3 a client may hear why, or not
		t.Error("admin answers a stranger")
	}
	for _, url := range []string{door, s.proxyURL(), s.Admin() + "/healthz"} {
		plain := "http" + strings.TrimPrefix(url, "https")
		if response, _, err := fetch(http.DefaultClient, "GET", plain, ""); err == nil || response != nil && response.StatusCode != http.StatusBadRequest {
			t.Errorf("%s without TLS: %v", url, err)
		}
	}
	if err := s.askHealth(t, &tls.Config{RootCAs: s.ca.Pool()}); err != nil {
		t.Errorf("gRPC door: %v", err)
	}
	other := tlsfilestest.NewAuthority(t, "other")
	if err := s.askHealth(t, &tls.Config{RootCAs: other.Pool()}); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("gRPC door, to one who trusts another authority: %v", err)
	}
}

// TestRotationUnderLoad: certificates change three times, with nonsense in between, and no request fails, on old connections or new.
func TestRotationUnderLoad(t *testing.T) {
	s := startSecured(t)
	door := s.Find(`HTTP door +(https://\S+)`)
	admin := s.client(t, true, s.ca.Pair("prometheus"))
	asks := []func() error{
		func() error { return s.askHealth(t, &tls.Config{RootCAs: s.ca.Pool()}) },
		func() error { _, _, err := fetch(admin, "GET", s.Admin()+"/readyz", ""); return err },
	}
	for _, fresh := range []bool{true, false} {
		client := s.client(t, fresh)
		asks = append(asks,
			func() error { _, _, err := fetch(client, "POST", door, kristie); return err },
			func() error { _, _, err := fetch(client, "GET", s.proxyURL(), ""); return err },
		)
	}
	var done atomic.Bool
	var load sync.WaitGroup
	counts := make([]atomic.Int64, len(asks))
	for i, ask := range asks {
		load.Go(func() {
			for !done.Load() {
				if err := ask(); err != nil {
					t.Errorf("a request failed: %v", err)
					return
				}
				counts[i].Add(1)
			}
		})
	}
	defer load.Wait()
	defer done.Store(true)

	metrics := func() string {
		_, text, err := fetch(admin, "GET", s.Admin()+"/metrics", "")
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	everywhere := func(line string) func() bool {
		return func() bool {
			text := metrics()
			for _, door := range []string{"listen", "grpc", "proxy", "admin"} {
				if !strings.Contains(text, fmt.Sprintf(line, door)) {
					return false
				}
			}
			return true
		}
	}
	for _, name := range []string{"second", "third", "fourth"} {
		tlsfilestest.Write(t, s.files.Key, []byte("nonsense"))
		s.Await("nonsense is refused", everywhere("offpath_files_refused{files=%q} 1\n"))
		before := make([]int64, len(counts))
		for i := range counts {
			before[i] = counts[i].Load()
		}
		s.ca.Renew(s.files, name)
		s.Await("the new ones are in force", everywhere("offpath_files_refused{files=%q} 0\n"))
		s.Await(name+" is shown", func() bool {
			response, _, err := fetch(s.client(t, true), "POST", door, kristie)
			if err != nil {
				t.Fatal(err)
			}
			return response.TLS.PeerCertificates[0].Subject.CommonName == name
		})
		s.Await("there was load", func() bool {
			for i := range counts {
				if counts[i].Load() == before[i] && !t.Failed() {
					return false
				}
			}
			return true
		})
	}
	if !strings.Contains(s.Stderr(), "new files are refused") || !strings.Contains(s.Stderr(), "new files are in force") {
		t.Errorf("it does not say so:\n%s", s.Stderr())
	}
}

func TestTLSUsageErrors(t *testing.T) {
	const upstream = "--upstream http://a "
	for args, want := range map[string]string{
		"--listen-cert c":                        "--listen-cert and --listen-key need each other",
		"--grpc-key k":                           "--grpc-cert and --grpc-key need each other",
		"--admin-client-ca c":                    "--admin-client-ca needs --admin-cert",
		"--proxy-cert c --proxy-key k":           "--proxy-cert: there is no proxy",
		"--grpc none --grpc-cert c --grpc-key k": "--grpc-cert: there is no gRPC door",
		upstream + "--proxy-client-ca c":         "--proxy-client-ca needs --proxy-cert",
		"--upstream http://a --upstream-ca c":    "no certificates without TLS",
		"--upstream https://a --upstream-key k":  "--upstream-cert and --upstream-key need each other",
		"--nats-ca c":                            "need --nats URL too",
		"--rules r --nats a --nats-cert c":       "--nats-cert and --nats-key need each other",
		"--rules r --nats u:p@a --nats-creds c":  "want one of them",
		"--rules r --nats a --nats-user u":       "need each other",
	} {
		status, stdout, stderr := daemontest.Run(t, run, nil, strings.Fields(args)...)
		if status != 2 || !strings.Contains(stderr, want) || stdout != "" {
			t.Errorf("%s: status %d, want 2 and %q\nstdout %q\nstderr %q", args, status, want, stdout, stderr)
		}
	}
	ca := tlsfilestest.NewAuthority(t, "authority")
	f, other := ca.Dir("a"), ca.Dir("b")
	for args, want := range map[string]string{
		"--listen-cert none --listen-key " + f.Key:             "--listen-cert, --listen-key, --listen-client-ca: open none",
		"--admin-cert " + f.Cert + " --admin-key " + other.Key: "does not match",
	} {
		status, stdout, stderr := daemontest.Run(t, run, nil, append(strings.Fields(args), anywhere...)...)
		if status != 1 || !strings.Contains(stderr, want) || stdout != "" {
			t.Errorf("%s: status %d, want 1 and %q\nstdout %q\nstderr %q", args, status, want, stdout, stderr)
		}
	}
}

// TestServiceOverTLS: the reverse proxy trusts the service's authority alone, and shows it a certificate; when both change, it does so
// for the new ones.
func TestServiceOverTLS(t *testing.T) {
	first, second := tlsfilestest.NewAuthority(t, "first"), tlsfilestest.NewAuthority(t, "second")
	var now atomic.Pointer[tls.Config]
	configOf := func(ca *tlsfilestest.Authority) *tls.Config {
		return &tls.Config{Certificates: []tls.Certificate{ca.Pair("service")}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.Pool()}
	}
	now.Store(configOf(first))
	service := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "hello %s", r.TLS.PeerCertificates[0].Subject.CommonName)
	}))
	service.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	service.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return now.Load(), nil }}
	service.StartTLS()
	t.Cleanup(service.Close)

	f := first.Dir("proxy-1")
	d := start1(t, "--rules", writeFile(t, slowRules), "--proxy", "127.0.0.1:0", "--upstream", service.URL,
		"--upstream-ca", f.CA, "--upstream-cert", f.Cert, "--upstream-key", f.Key)
	proxy := d.Find(`proxy +(http://[^ ,]+),`)
	says := func(status int, text string) func() bool {
		return func() bool {
			got, body := daemontest.Do(t, "GET", proxy, "")
			return got == status && strings.Contains(body, text)
		}
	}
	if !says(200, "hello proxy-1")() {
		t.Errorf("it does not get through: %s", d.Stderr())
	}
	now.Store(configOf(second))
	service.CloseClientConnections()
	d.Await("the service is another", says(502, ""))
	tlsfilestest.Write(t, f.CA, second.PEM())
	second.Renew(f, "proxy-2")
	d.Await("it gets through again", says(200, "hello proxy-2"))
}

// TestAuthorityTakenBack: clients of an authority that is taken out of the file are out at once, also on connections that they have had.
func TestAuthorityTakenBack(t *testing.T) {
	ca, other := tlsfilestest.NewAuthority(t, "authority"), tlsfilestest.NewAuthority(t, "other")
	f := ca.Dir("door")
	args := []string{"--rules", writeFile(t, slowRules)}
	for _, door := range []string{"listen", "grpc"} {
		args = append(args, "--"+door+"-cert", f.Cert, "--"+door+"-key", f.Key, "--"+door+"-client-ca", f.CA)
	}
	s := &secured{Daemon: start1(t, args...), ca: ca}
	web := s.client(t, false, ca.Pair("web"))
	conn, err := grpc.NewClient(s.Find(`gRPC door +([^ ,]+),`),
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: ca.Pool(), Certificates: []tls.Certificate{ca.Pair("envoy")}})))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	asks := map[string]func() error{
		"HTTP": func() error { _, _, err := fetch(web, "POST", s.Find(`HTTP door +(https://\S+)`), kristie); return err },
		"gRPC": func() error {
			_, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), new(grpc_health_v1.HealthCheckRequest))
			return err
		},
	}
	for name, ask := range asks {
		if err := ask(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	tlsfilestest.Write(t, f.CA, other.PEM())
	for name, ask := range asks {
		s.Await(name+" is not answered any more", func() bool { return ask() != nil })
	}
}
