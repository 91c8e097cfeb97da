package main

import (
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/offpath-io/offpath/internal/natsconn"
	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/internal/testing/tlsfilestest"
)

// canary is in every secret.
const canary = "CANARY"

// secureRedis is a Redis with a port for TLS, at which it wants to see certificates, beside the
// plain one that it is managed by.
type secureRedis struct {
	t     *testing.T
	admin *redis.Client
	port  int
}

func startSecureRedis(t *testing.T) *secureRedis {
	t.Helper()
	r := &secureRedis{t: t, admin: redis.NewClient(&redis.Options{Addr: serverstest.Redis(t).Addr()})}
	t.Cleanup(func() { _ = r.admin.Close() })
	return r
}

// show makes Redis show a certificate of this authority, and trust it alone for its clients';
// connections that are there go on.
func (r *secureRedis) show(ca *tlsfilestest.Authority) {
	r.t.Helper()
	f := ca.Dir("redis")
	r.do("CONFIG", "SET", "tls-cert-file", f.Cert, "tls-key-file", f.Key, "tls-ca-cert-file", f.CA)
	for r.port == 0 {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		must(r.t, err)
		port := listener.Addr().(*net.TCPAddr).Port
		_ = listener.Close()
		if err := r.admin.Do(r.t.Context(), "CONFIG", "SET", "tls-port", port).Err(); err == nil { // else somebody was faster
			r.port = port
		}
	}
}

func (r *secureRedis) do(args ...any) any {
	r.t.Helper()
	answer, err := r.admin.Do(r.t.Context(), args...).Result()
	must(r.t, err)
	return answer
}

// setUser gives the user this password and no other, and hangs up on all who are connected as him.
func (r *secureRedis) setUser(password string) {
	r.t.Helper()
	r.do("ACL", "SETUSER", "aggregator", "on", "resetpass", ">"+password, "~*", "&*", "+@all")
	r.do("CLIENT", "KILL", "USER", "aggregator")
}

func (r *secureRedis) url() string { return fmt.Sprintf("rediss://localhost:%d", r.port) }

// secureNATS is a NATS with JetStream that wants to see certificates of its authority, and a user
// with a password.
func secureNATS(t *testing.T, ca *tlsfilestest.Authority, password string) *servers.NATS {
	t.Helper()
	pair := ca.Pair("nats")
	return serverstest.NATSWith(t, servers.NATSOptions{JetStream: true, Configure: func(o *server.Options) {
		o.TLS, o.TLSVerify = true, true
		o.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.Pool()}
		o.Users = []*server.User{{Username: "fleet", Password: password}}
	}})
}

func secretFile(t *testing.T, content string) string { return daemontest.File(t, "secret", content) }

// secureFleet is an aggregator that has TLS and credentials everywhere.
type secureFleet struct {
	*daemontest.Daemon
	nats                        *servers.NATS
	redis                       *secureRedis
	natsFiles, redisFiles       tlsfilestest.Files
	natsPassword, redisPassword string // files
}

func startSecureFleet(t *testing.T) *secureFleet {
	t.Helper()
	natsCA, redisCA := tlsfilestest.NewAuthority(t, "nats"), tlsfilestest.NewAuthority(t, "redis")
	f := &secureFleet{
		nats: secureNATS(t, natsCA, canary+"-nats"), redis: startSecureRedis(t),
		natsFiles: natsCA.Dir("aggregator"), redisFiles: redisCA.Dir("aggregator"),
		natsPassword: secretFile(t, canary+"-nats\n"), redisPassword: secretFile(t, canary+"-redis\n"),
	}
	f.redis.show(redisCA)
	f.redis.setUser(canary + "-redis")
	f.Daemon = daemontest.Start(t, run, append(f.args(), "--admin", "127.0.0.1:0", "--log-level", "debug")...)
	f.Await("it is ready", isReady(f.Daemon))
	return f
}

func (f *secureFleet) args() []string { return append(f.natsArgs(), f.redisArgs()...) }

func (f *secureFleet) natsArgs() []string {
	return []string{
		"--nats", "tls" + strings.TrimPrefix(f.nats.URL(), "nats"),
		"--nats-ca", f.natsFiles.CA, "--nats-cert", f.natsFiles.Cert, "--nats-key", f.natsFiles.Key, "--nats-user", "fleet", "--nats-password-file", f.natsPassword,
	}
}

func (f *secureFleet) redisArgs() []string {
	return []string{
		"--redis", f.redis.url(), "--redis-ca", f.redisFiles.CA, "--redis-cert", f.redisFiles.Cert, "--redis-key", f.redisFiles.Key,
		"--redis-user", "aggregator", "--redis-password-file", f.redisPassword,
	}
}

// charge lets another checker of the fleet admit hits, and returns once it has delivered them.
func (f *secureFleet) charge(t *testing.T, hits int64) {
	t.Helper()
	hit, leave := f.join(t, fmt.Sprintf("test-%d", hits))
	hit(hits)
	leave()
}

// join adds a checker to the fleet: hit has it admit hits, and leave returns once it has delivered
// them.
func (f *secureFleet) join(t *testing.T, name string) (hit func(hits int64), leave func()) {
	t.Helper()
	c := newChecker(t, f.nats.URL(), "offpath", name, natsconn.Access{
		CA: f.natsFiles.CA, Cert: f.natsFiles.Cert, Key: f.natsFiles.Key, User: "fleet", PasswordFile: f.natsPassword,
	})
	f.Await("the checker hears of the fleet", func() bool { return c.Stats().Shards > 0 })
	limiter, _ := c.Limiter("per-user")
	hit = func(hits int64) {
		if !limiter.Check("kristie", hits).Allowed {
			t.Error("denied")
		}
	}
	return hit, func() { c.drain(t, f.Daemon) }
}

func (f *secureFleet) awaitLedger(t *testing.T, want int64) {
	t.Helper()
	ends(t, nil, append([]string{"ledger", "--json"}, f.redisArgs()...), 0, fmt.Sprintf(`"counted":%d,`, want))
}

// TestSecureFleet: hits are counted over mutual TLS with users and passwords at both servers, and
// go on being counted when Redis changes its authority and its password, those that are made
// meanwhile too; and the commands take the same flags.
func TestSecureFleet(t *testing.T) {
	f := startSecureFleet(t)
	f.charge(t, 3)
	f.awaitLedger(t, 3)
	if clients := f.redis.do("CLIENT", "LIST").(string); !strings.Contains(clients, "user=aggregator") {
		t.Errorf("it is not connected as the user:\n%s", clients)
	}
	ends(t, nil, append([]string{"rules", "apply", "-f", "../../deploy/rules.yaml"}, f.natsArgs()...), 0, "revision 1")

	hit, leave := f.join(t, "throughout")
	hit(10)
	other := tlsfilestest.NewAuthority(t, "another for redis")
	f.redis.show(other)
	f.redis.setUser(canary + "-other")
	f.Await("it waits for Redis", func() bool { status, _ := f.Get("/readyz"); return status == 503 })
	hit(20)
	tlsfilestest.Write(t, f.redisPassword, []byte(canary+"\n"+canary)) // a mistake
	f.Await("it refuses two lines", func() bool { return f.Metric(`offpath_files_refused{files="redis-password"}`) == "1" })
	tlsfilestest.Write(t, f.redisPassword, []byte(canary+"-other"))
	tlsfilestest.Write(t, f.redisFiles.CA, other.PEM())
	other.Renew(f.redisFiles, "aggregator")
	f.Await("it is ready again", isReady(f.Daemon))
	f.charge(t, 4)
	leave()
	f.awaitLedger(t, 3+10+20+4)
	f.MustStop()
	daemontest.HasNoSecret(t, f.Stdout()+f.Stderr(), canary)
}

// TestRedisIsRefused: /readyz and the log say why.
func TestRedisIsRefused(t *testing.T) {
	f := startSecureFleet(t)
	f.Stop()
	other := tlsfilestest.NewAuthority(t, "other").Dir("other")
	wrong := secretFile(t, canary)
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"another authority":               {[]string{"--redis-ca", other.CA}, "certificate signed by unknown authority"},
		"another authority's certificate": {[]string{"--redis-cert", other.Cert, "--redis-key", other.Key}, "unknown certificate authority"},
		"a wrong password":                {[]string{"--redis-password-file", wrong}, "WRONGPASS"},
		"a name that is not in it":        {[]string{"--redis", fmt.Sprintf("rediss://127.0.0.2:%d", f.redis.port)}, "127.0.0.2"},
	} {
		t.Run(name, func(t *testing.T) {
			d := daemontest.Start(t, run, append(append(f.args(), "--admin", "127.0.0.1:0"), test.args...)...)
			d.Await("it says why", func() bool {
				status, body := d.Get("/readyz")
				return status == 503 && strings.Contains(body, test.want) && strings.Contains(d.Stderr(), test.want)
			})
			status, stdout, stderr := daemontest.Run(t, run, nil, append(append([]string{"ledger"}, f.redisArgs()...), test.args...)...)
			if status != 1 || !strings.Contains(stderr, test.want) {
				t.Errorf("ledger: status %d, %s", status, stderr)
			}
			daemontest.HasNoSecret(t, d.Stdout()+d.Stderr()+stdout+stderr, canary)
		})
	}
}
