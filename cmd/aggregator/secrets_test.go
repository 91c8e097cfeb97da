package main

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/tlsfilestest"
)

// TestTLSUsageErrors: settings that cannot be meant.
func TestTLSUsageErrors(t *testing.T) {
	const both = "--nats a --redis rediss://a "
	for _, test := range []struct{ args, env, want string }{
		{both + "--redis-cert c", "", "--redis-cert and --redis-key need each other"},
		{"--nats a --redis redis://a --redis-ca c", "", "no certificates without TLS"},
		{both + "--redis-user u", "", "--redis-user needs a password"},
		{both + "--redis-password-file f", "OFFPATH_REDIS_PASSWORD=" + canary, "want one of them"},
		{"--nats a --redis redis://u:" + canary + "@a --redis-password-file f", "", "want one of them"},
		{"--nats a --redis redis://u:p@a", "OFFPATH_REDIS_PASSWORD=" + canary, "want one of them"},
		{both + "--nats-user u --nats-password-file f", "OFFPATH_NATS_PASSWORD=" + canary, "want one of them"},
		{"--nats nats://u:" + canary + "@a --redis redis://a --nats-nkey n", "", "want one of them"},
		{both + "--admin-key k", "", "--admin-cert and --admin-key need each other"},
		{both + "--redis-password " + canary, "", "unknown flag --redis-password"},
		{"ledger --redis redis://a --redis-user u", "", "--redis-user needs a password"},
		{"rules get --nats a --nats-cert c", "", "--nats-cert and --nats-key need each other"},
	} {
		name, value, _ := strings.Cut(test.env, "=")
		status, stdout, stderr := daemontest.Run(t, run, map[string]string{name: value}, strings.Fields(test.args)...)
		if status != 2 || !strings.Contains(stderr, test.want) || stdout != "" || strings.Contains(stderr, canary) {
			t.Errorf("%s: status %d, want 2 and %q\nstdout %q\nstderr %q", test.args, status, test.want, stdout, stderr)
		}
	}
	for args, want := range map[string]string{
		both + "--redis-ca none":                    "--redis-ca, --redis-cert, --redis-key: open none",
		both + "--redis-password-file none":         "--redis-password-file: open none",
		both + "--nats-ca none":                     "--nats-ca, --nats-cert, --nats-key: open none",
		both + "--admin-cert none --admin-key none": "open none",
		"ledger --redis rediss://a --redis-ca none": "open none",
		"rules list --nats a --nats-creds none":     "--nats-creds: open none",
	} {
		status, stdout, stderr := daemontest.Run(t, run, nil, strings.Fields(args+" --namespace x")...)
		if status != 1 || !strings.Contains(stderr, want) || stdout != "" {
			t.Errorf("%s: status %d, want 1 and %q\nstdout %q\nstderr %q", args, status, want, stdout, stderr)
		}
	}
}

// TestNoOutputHoldsASecret: not the help, with secrets in the environment; not what a daemon that cannot get in says and shows; not what
// one that has got in says when its files become nonsense.
func TestNoOutputHoldsASecret(t *testing.T) {
	environment := map[string]string{
		"OFFPATH_NATS": "nats://u:" + canary + "@127.0.0.1:1", "OFFPATH_REDIS": "rediss://127.0.0.1:1", "OFFPATH_REDIS_USER": "u",
		"OFFPATH_REDIS_PASSWORD": canary, "OFFPATH_ADMIN": "127.0.0.1:0", "OFFPATH_LOG_LEVEL": "debug",
	}
	var said strings.Builder
	for _, args := range []string{"--help", "ledger --help", "rules get --help", "--version", "--loud", "rules list", "ledger --json=x"} {
		_, stdout, stderr := daemontest.Run(t, run, environment, strings.Fields(args)...)
		fmt.Fprintln(&said, stdout, stderr)
	}
	for _, name := range []string{"OFFPATH_REDIS_PASSWORD", "OFFPATH_NATS_PASSWORD", "--nats-ca FILE", "--redis-password-file FILE"} {
		if !strings.Contains(said.String(), name) {
			t.Errorf("help says nothing of %s", name)
		}
	}
	d := daemontest.StartIn(t, run, environment)
	d.Await("it says what it waits for", func() bool {
		return strings.Contains(d.Stderr(), "waiting for NATS") && strings.Contains(d.Stderr(), "waiting for the store")
	})
	hear(&said, d)

	f := startSecureFleet(t)
	f.charge(t, 1)
	for _, path := range []string{f.natsPassword, f.redisPassword, f.natsFiles.Key, f.redisFiles.Key, f.natsFiles.CA} {
		tlsfilestest.Write(t, path, []byte(canary+"\n"+canary))
	}
	for _, group := range []string{"nats", "nats-password", "redis", "redis-password"} {
		f.Await(group+" is refused", func() bool { return f.Metric(`offpath_files_refused{files="`+group+`"}`) == "1" })
	}
	f.redis.setUser("another")
	if err := f.nats.Restart(); err != nil {
		t.Fatal(err)
	}
	f.Await("it cannot get into Redis", func() bool { status, _ := f.Get("/readyz"); return status == 503 })
	hear(&said, f.Daemon)
	if text := said.String(); strings.Contains(text, canary) {
		at := strings.Index(text, canary)
		t.Errorf("a secret is told: …%s…", text[max(0, at-200):min(len(text), at+100)])
	}
}

// hear writes down all that a daemon says and shows, until it has ended.
func hear(said io.Writer, d *daemontest.Daemon) {
	for _, path := range []string{"/metrics", "/readyz", "/healthz", "/"} {
		_, body := d.Get(path)
		fmt.Fprintln(said, body)
	}
	d.Stop()
	fmt.Fprintln(said, d.Stdout(), d.Stderr())
}

// TestNoSecretIsAnArgument: what this process was started with, every user of the machine can read; no flag takes a password.
func TestNoSecretIsAnArgument(t *testing.T) {
	_, help, _ := daemontest.Run(t, run, nil, "--help")
	for line := range strings.Lines(help) {
		if strings.Contains(line, "--") && strings.Contains(line, "password") && !strings.Contains(line, "-password-file FILE") {
			t.Errorf("a flag takes a password: %s", line)
		}
	}
}
