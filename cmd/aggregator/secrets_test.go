package main

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/tlsfilestest"
)

// TestNoOutputHoldsASecret: not the help, with secrets in the environment; not what a daemon that
// cannot get in says and shows; not what one that has got in says when its files become nonsense.
func TestNoOutputHoldsASecret(t *testing.T) {
	environment := map[string]string{
		"OFFPATH_NATS": "nats://u:" + canary + "@127.0.0.1:1", "OFFPATH_REDIS": "rediss://127.0.0.1:1", "OFFPATH_REDIS_USER": "u",
		"OFFPATH_REDIS_PASSWORD": canary, "OFFPATH_ADMIN": "127.0.0.1:0", "OFFPATH_LOG_LEVEL": "debug",
	}
	var said strings.Builder
	const url = "//me:" + canary + "@127.0.0.1:"
	for _, args := range []string{
		"--help", "--version", "--loud", "nats:" + url + "1",
		"--nats nats:" + url + "x", "--nats nats:" + url + "1 --redis redis:" + url, "--nats a --redis http:" + url + "1",
	} {
		_, stdout, stderr := daemontest.Run(t, run, environment, strings.Fields(args)...)
		fmt.Fprintln(&said, stdout, stderr)
	}
	for _, name := range []string{"OFFPATH_REDIS_PASSWORD", "OFFPATH_NATS_PASSWORD", "--nats-ca FILE", "--redis-password-file FILE"} {
		if !strings.Contains(said.String(), name) {
			t.Errorf("help says nothing of %s", name)
		}
	}
	for _, redis := range []string{"rediss://127.0.0.1:1", "redis:" + url + "1"} {
		if environment["OFFPATH_REDIS"] = redis; strings.Contains(redis, canary) {
			delete(environment, "OFFPATH_REDIS_USER")
			delete(environment, "OFFPATH_REDIS_PASSWORD")
		}
		d := daemontest.StartIn(t, run, environment)
		d.Await("it says what it waits for", func() bool {
			return strings.Contains(d.Stderr(), "waiting for NATS") && strings.Contains(d.Stderr(), "waiting for the store")
		})
		equal(t, "status of one that was waiting", hear(&said, d), 0)
	}

	f := startSecureFleet(t)
	f.charge(t, 1)
	for _, path := range []string{f.natsPassword, f.redisPassword, f.natsFiles.Key, f.redisFiles.Key, f.natsFiles.CA} {
		tlsfilestest.Write(t, path, []byte(canary+"\n"+canary))
	}
	for _, group := range []string{"nats", "nats-password", "redis", "redis-password"} {
		f.Await(group+" is refused", func() bool { return f.Metric(`offpath_files_refused{files="`+group+`"}`) == "1" })
	}
	f.redis.SetUser("another")
	must(t, f.nats.Restart())
	f.Await("it cannot get into Redis", func() bool { status, _ := f.Get("/readyz"); return status == 503 })
	hear(&said, f.Daemon)
	daemontest.HasNoSecret(t, said.String(), canary)
}

// hear writes down all that a daemon says and shows, until it has ended.
func hear(said io.Writer, d *daemontest.Daemon) (status int) {
	for _, path := range []string{"/metrics", "/readyz", "/healthz", "/"} {
		_, body := d.Get(path)
		fmt.Fprintln(said, body)
	}
	status = d.Stop()
	fmt.Fprintln(said, d.Stdout(), d.Stderr())
	return status
}
