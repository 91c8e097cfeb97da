package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/offpath-io/offpath/internal/natsconn"
	"github.com/offpath-io/offpath/internal/redisconn"
	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/internal/testing/tlsfilestest"
	"github.com/offpath-io/offpath/pkg/aggregate/redisstore"
)

// canary is in every secret.
const canary = "CANARY"

func secretFile(t *testing.T, content string) string { return daemontest.File(t, "secret", content) }

// secureFleet is an aggregator that has TLS and credentials everywhere.
type secureFleet struct {
	*daemontest.Daemon
	nats                        *servers.NATS
	redis                       *serverstest.SecureRedis
	natsFiles, redisFiles       tlsfilestest.Files
	natsPassword, redisPassword string // files
}

func startSecureFleet(t *testing.T) *secureFleet {
	t.Helper()
	natsCA, redisCA := tlsfilestest.NewAuthority(t, "nats"), tlsfilestest.NewAuthority(t, "redis")
	f := &secureFleet{
		nats: serverstest.SecureNATS(t, natsCA, canary+"-nats"), redis: serverstest.StartSecureRedis(t),
		natsFiles: natsCA.Dir("aggregator"), redisFiles: redisCA.Dir("aggregator"),
		natsPassword: secretFile(t, canary+"-nats\n"), redisPassword: secretFile(t, canary+"-redis\n"),
	}
	f.redis.Show(redisCA)
	f.redis.SetUser(canary + "-redis")
	f.Daemon = daemontest.Start(t, run, append(f.args(), "--admin", "127.0.0.1:0", "--log-level", "debug")...)
	f.Await("it is ready", isReady(f.Daemon))
	return f
}

func (f *secureFleet) args() []string {
	return []string{
		"--nats", "tls" + strings.TrimPrefix(f.nats.URL(), "nats"),
		"--nats-ca", f.natsFiles.CA, "--nats-cert", f.natsFiles.Cert, "--nats-key", f.natsFiles.Key, "--nats-user", "fleet", "--nats-password-file", f.natsPassword,
		"--redis", f.redis.URL(), "--redis-ca", f.redisFiles.CA, "--redis-cert", f.redisFiles.Cert, "--redis-key", f.redisFiles.Key,
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

// counted is what the ledger says of the one rule.
func (f *secureFleet) counted(t *testing.T) int64 {
	t.Helper()
	access := redisconn.Access{
		CA: f.redisFiles.CA, Cert: f.redisFiles.Cert, Key: f.redisFiles.Key, User: "aggregator", PasswordFile: f.redisPassword,
	}
	store, err := access.OpenOnce(redisstore.Options{URL: f.redis.URL(), Namespace: natsconn.DefaultNamespace})
	must(t, err)
	defer store.Close()
	ledger, err := store.Ledger(t.Context())
	must(t, err)
	return ledger["per-user"].Counted
}

// TestSecureFleet: hits are counted over mutual TLS with users and passwords at both servers, and
// go on being counted when Redis changes its authority and its password, those that are made
// meanwhile too.
func TestSecureFleet(t *testing.T) {
	f := startSecureFleet(t)
	f.charge(t, 3)
	equal(t, "hits counted", f.counted(t), 3)
	if clients := f.redis.Do("CLIENT", "LIST").(string); !strings.Contains(clients, "user=aggregator") {
		t.Errorf("it is not connected as the user:\n%s", clients)
	}

	hit, leave := f.join(t, "throughout")
	hit(10)
	other := tlsfilestest.NewAuthority(t, "another for redis")
	f.redis.Show(other)
	f.redis.SetUser(canary + "-other")
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
	equal(t, "hits counted", f.counted(t), 3+10+20+4)
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
		"a name that is not in it":        {[]string{"--redis", fmt.Sprintf("rediss://127.0.0.2:%d", f.redis.Port)}, "127.0.0.2"},
	} {
		t.Run(name, func(t *testing.T) {
			d := daemontest.Start(t, run, append(append(f.args(), "--admin", "127.0.0.1:0"), test.args...)...)
			d.Await("it says why", func() bool {
				status, body := d.Get("/readyz")
				return status == 503 && strings.Contains(body, test.want) && strings.Contains(d.Stderr(), test.want)
			})
			daemontest.HasNoSecret(t, d.Stdout()+d.Stderr(), canary)
		})
	}
}
