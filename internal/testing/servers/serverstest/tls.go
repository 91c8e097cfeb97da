package serverstest

import (
	"crypto/tls"
	"fmt"
	"net"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/offpath-io/offpath/internal/testing/servers"
	"github.com/offpath-io/offpath/internal/testing/tlsfilestest"
)

// SecureRedis is a Redis with a port for TLS, at which it wants to see certificates, beside the
// plain one that it is managed by.
type SecureRedis struct {
	Port int // of TLS, once Show has been called

	t     testing.TB
	admin *redis.Client
}

// StartSecureRedis starts one. It has no port for TLS until Show is called.
func StartSecureRedis(t testing.TB) *SecureRedis {
	t.Helper()
	r := &SecureRedis{t: t, admin: redis.NewClient(&redis.Options{Addr: Redis(t).Addr()})}
	t.Cleanup(func() { _ = r.admin.Close() })
	return r
}

// Show makes Redis show a certificate of this authority, and trust it alone for its clients';
// connections that are there go on.
func (r *SecureRedis) Show(ca *tlsfilestest.Authority) {
	r.t.Helper()
	f := ca.Dir("redis")
	r.Do("CONFIG", "SET", "tls-cert-file", f.Cert, "tls-key-file", f.Key, "tls-ca-cert-file", f.CA)
	for r.Port == 0 {
		listener := must(net.Listen("tcp", "127.0.0.1:0"))(r.t)
		port := listener.Addr().(*net.TCPAddr).Port
		_ = listener.Close()
		if err := r.admin.Do(r.t.Context(), "CONFIG", "SET", "tls-port", port).Err(); err == nil { // else somebody was faster
			r.Port = port
		}
	}
}

// Do has Redis do a command at its plain port.
func (r *SecureRedis) Do(args ...any) any {
	r.t.Helper()
	return must(r.admin.Do(r.t.Context(), args...).Result())(r.t)
}

// SetUser gives the user "aggregator" this password and no other, and hangs up on all who are
// connected as that user.
func (r *SecureRedis) SetUser(password string) {
	r.t.Helper()
	r.Do("ACL", "SETUSER", "aggregator", "on", "resetpass", ">"+password, "~*", "&*", "+@all")
	r.Do("CLIENT", "KILL", "USER", "aggregator")
}

// URL is that of the port for TLS.
func (r *SecureRedis) URL() string { return fmt.Sprintf("rediss://localhost:%d", r.Port) }

// SecureNATS starts a NATS with JetStream that wants to see certificates of its authority, and has
// a user "fleet" with this password.
func SecureNATS(t testing.TB, ca *tlsfilestest.Authority, password string) *servers.NATS {
	t.Helper()
	pair := ca.Pair("nats")
	return NATSWith(t, servers.NATSOptions{JetStream: true, Configure: func(o *server.Options) {
		o.TLS, o.TLSVerify = true, true
		o.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.Pool()}
		o.Users = []*server.User{{Username: "fleet", Password: password}}
	}})
}
