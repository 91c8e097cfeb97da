package redisstore

import (
	"crypto/tls"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/offpath-io/offpath/internal/testing/tlsfilestest"
)

func TestURLs(t *testing.T) {
	const one, cluster, sentinel = "one", "cluster", "sentinel"
	for _, tt := range []struct {
		url, client, addrs, user, password, master string
		db                                         int
		tls                                        bool
	}{
		{url: "redis://localhost", client: one, addrs: "localhost:6379"},
		{url: "redis://10.0.0.1:7000/3", client: one, addrs: "10.0.0.1:7000", db: 3},
		{url: "redis://[::1]:7000/", client: one, addrs: "[::1]:7000"},
		{url: "redis://:s%40cret@h:1", client: one, addrs: "h:1", password: "s@cret"},
		{url: "rediss://joe:s%2Fecret@h", client: one, addrs: "h:6379", user: "joe", password: "s/ecret", tls: true},
		{url: "redis://a:1,b:2,c", client: cluster, addrs: "a:1 b:2 c:6379"},
		{url: "redis://joe:pw@a:1,redis://joe:pw@b:2", client: cluster, addrs: "a:1 b:2", user: "joe", password: "pw"},
		{url: "rediss://a:1,b:2", client: cluster, addrs: "a:1 b:2", tls: true},
		{url: "redis://a:1?master_name=m", client: sentinel, addrs: "a:1", master: "m"},
		{url: "redis://s1:26379,s2:26379/2?master_name=m", client: sentinel, addrs: "s1:26379 s2:26379", master: "m", db: 2},
	} {
		o := Options{URL: tt.url, TLS: &tls.Config{ServerName: "redis.example"}}
		got, err := parse(o)
		if err != nil {
			t.Errorf("%s: %v", tt.url, err)
			continue
		}
		if strings.Join(got.Addrs, " ") != tt.addrs || got.Username != tt.user || got.Password != tt.password ||
			got.MasterName != tt.master || got.DB != tt.db || (got.TLSConfig != nil) != tt.tls {
			t.Errorf("%s: %v, %q, %q, %q, %d", tt.url, got.Addrs, got.Username, got.Password, got.MasterName, got.DB)
		}
		client, config := cluster, got.TLSConfig
		if c, ok := openImpatient(t, o).Client().(*redis.Client); ok {
			client, config = one, c.Options().TLSConfig
			if c.Options().Addr == "FailoverClient" {
				client = sentinel
			}
		}
		if client != tt.client || tt.tls && config.ServerName != "redis.example" {
			t.Errorf("%s: the client is for %s, TLS by %v", tt.url, client, config)
		}
	}
}

// Each connection has TLS as it is to be then, where the URL wants TLS, and the credentials of
// then.
func TestConnectionsAskForTLSAndCredentials(t *testing.T) {
	fresh := func() *tls.Config { return new(tls.Config) }
	who := func() (string, string) { return "joe", "pw" }
	for url, secure := range map[string]bool{"redis://h": false, "rediss://h": true, "rediss://a:1,b:2": true} {
		got, err := parse(Options{URL: url, NewTLS: fresh, Credentials: who})
		if err != nil || (got.Dialer != nil) != secure {
			t.Errorf("%s: a dialer of our own: %v, want %v; %v", url, got.Dialer != nil, secure, err)
			continue
		}
		if user, password := got.CredentialsProvider(); user != "joe" || password != "pw" {
			t.Errorf("%s: %q, %q", url, user, password)
		}
	}
	if got, err := parse(Options{URL: "rediss://joe:pw@h"}); err != nil || got.Dialer == nil || got.CredentialsProvider != nil {
		t.Errorf("with nothing to ask: %v, %v", got, err)
	}
}

func TestWrongURLsKeepTheirSecrets(t *testing.T) {
	for _, url := range []string{
		"", "localhost:6379", "localhost", "http://secret@h", "redis://", "redis://:secret", "redis:secret",
		"redis://:se#secret@h", "redis://:se/secret@h", "redis://u:12/secret@h", "redis://u:12?secret@h", "redis://u:secret%zz@h",
		"redis://h:1/secret", "redis://h:1/-1", "redis://h:1?secret=1", "redis://a:1,b:2/1", "redis://a:1,", "redis://h:99999999",
		"unix:///secret", "redis://a:1,secret:x",
	} {
		_, err := Open(Options{URL: url})
		if err == nil {
			t.Errorf("%q: no error", url)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", url, err)
		}
	}
	if _, err := Open(Options{URL: "redis://h", Namespace: "a{b}"}); err == nil {
		t.Error("a namespace with braces: no error")
	}
}

func TestServersThatAreRefused(t *testing.T) {
	for _, tt := range []struct {
		info    string
		cluster bool
		want    string // in the error; "" for none
	}{
		{"# Server\r\nredis_version:7.0.15\r\ncluster_enabled:0\r\n", false, ""},
		{"# Server\r\nredis_version:8.2.1\r\ncluster_enabled:1\r\n", true, ""},
		{"redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.0.0\r\n", false, ""},
		{"redis_version:6.2.14\r\n", false, "Redis 6.2.14"},
		{"redis_version:255.255.255\r\n", false, ""},
		{"redis_version:7.0.0\r\nmaxmemory:1000\r\nmaxmemory_policy:noeviction\r\n", false, ""},
		{"redis_version:7.0.0\r\nmaxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n", false, ""},
		{"redis_version:7.0.0\r\nmaxmemory:1000\r\nmaxmemory_policy:volatile-lru\r\n", false, "noeviction"},
		{"", false, "7.0 or newer"},
		{"redis_version:7.0.0\r\ncluster_enabled:1\r\n", false, "several"},
	} {
		err := checkInfo(tt.info, tt.cluster)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %v", tt.info, err)
		}
	}
}

// A server that refuses a client's certificate, or misses one, says so and closes; who writes only
// then gets a reset, and what the server said.
func TestWritesSayWhyTheServerHasGone(t *testing.T) {
	authority, other := tlsfilestest.NewAuthority(t, "the server's"), tlsfilestest.NewAuthority(t, "another")
	pair := other.Pair("client")
	shows := &tls.Config{
		RootCAs:              authority.Pool(),
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil },
	}
	for name, test := range map[string]struct {
		options Options
		want    string
	}{
		"another authority's, from files that may change": {Options{NewTLS: func() *tls.Config { return shows }}, "unknown certificate authority"},
		"another authority's":                             {Options{TLS: shows}, "unknown certificate authority"},
		"none":                                            {Options{TLS: &tls.Config{RootCAs: authority.Pool()}}, "certificate required"},
	} {
		t.Run(name, func(t *testing.T) {
			address := refuse(t, authority)
			test.options.URL = "rediss://" + address
			o := must(parse(test.options))(t)
			// A handshake has a second, which a machine that stands still takes for itself.
			var conn net.Conn
			var err error
			try(func() bool { conn, err = o.Dialer(t.Context(), "tcp", address); return err == nil })
			noError(t, err)
			defer conn.Close()
			try(func() bool { // the first ones may come before the reset
				time.Sleep(time.Millisecond)
				_, err = conn.Write([]byte("HELLO"))
				return err != nil
			})
			if err == nil || !strings.Contains(err.Error(), "reset") || !strings.Contains(err.Error(), test.want) {
				t.Errorf("a write ended with: %v", err)
			}
		})
	}
}

// refuse is a server that wants certificates of the authority, refuses each client, and resets its
// connection.
func refuse(t *testing.T, authority *tlsfilestest.Authority) (address string) {
	t.Helper()
	listener := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = listener.Close() })
	wants := &tls.Config{
		Certificates: []tls.Certificate{authority.Pair("server")},
		ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: authority.Pool(),
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_ = tls.Server(conn, wants).Handshake()
			_ = conn.(*net.TCPConn).SetLinger(0) // closing is a reset then
			_ = conn.Close()
		}
	}()
	return listener.Addr().String()
}
