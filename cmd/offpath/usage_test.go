package main

import (
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/internal/redisconn"
	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
)

func TestMain(m *testing.M) {
	redis.SetLogger(redisconn.Silence{})
	dir, err := os.MkdirTemp("", "offpath-config-")
	if err == nil {
		err = os.Setenv("XDG_CONFIG_HOME", dir) // contexts of whoever runs the tests do not count
	}
	if err != nil {
		panic(err)
	}
	status := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(status)
}

var (
	must = daemontest.Must
	ends = daemontest.Ends(run, canary)
)

// equal fails the test unless both are the same.
func equal[T comparable](t testing.TB, what any, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%v: got %v, want %v", what, got, want)
	}
}

// TestUsageErrors: what cannot be meant ends with status 2, before anything is tried, and no error
// repeats a secret.
func TestUsageErrors(t *testing.T) {
	for _, test := range []struct{ args, env, want string }{
		{"ledger", "", "--redis URL is needed"},
		{"ledger --redis http://x", "", "--redis"},
		{"ledger --redis redis://127.0.0.1:1 all", "", `argument "all"`},
		{"ledger --redis redis://127.0.0.1:1 --namespace a.b", "", "--namespace"},
		{"ledgers", "", `argument "ledgers": did you mean ledger?`},
		{"dance", "",
			`argument "dance": want one of the commands block, completion, context, demo, explain, fleet, get, keygen, ledger, reset, rules, top, unblock`},
		{"top", "", "--nats URL is needed"},
		{"fleet --nats nats://127.0.0.1:1 all", "", `argument "all"`},
		{"get --nats nats://127.0.0.1:1", "", "want one KEY"},
		{"block k --nats nats://127.0.0.1:1", "", "--rule NAME is needed"},
		{"block k --rule r", "", "--nats URL is needed"},
		{"block k --rule r --nats nats://127.0.0.1:1 --for 0s", "", "--for"},
		{"block k --rule r --nats nats://127.0.0.1:1 --for 9999h", "", "--for"},
		{"unblock k --nats nats://127.0.0.1:1", "", "--rule NAME is needed"},
		{"reset k --nats nats://127.0.0.1:1", "", "--rule NAME is needed"},
		{"rules", "", "want one of the commands apply, delete, diff, get, history, list, schema, validate"},
		{"rules aply", "", `argument "aply": did you mean apply?`},
		{"rules --nats x", "", "unknown flag --nats"},
		{"rules apply --nats a", "", "--file FILE is needed"},
		{"rules apply x.yaml --nats a", "", `argument "x.yaml"`},
		{"rules apply -f x --replicas 6 --nats a", "", "--replicas"},
		{"rules get", "", "--nats URL is needed"},
		{"rules delete --nats a", "", "the NAME of a rule is needed"},
		{"rules validate", "", "want one FILE or DIR, or - for standard input"},
		{"rules diff --nats a", "", "--file FILE is needed"},
		{"rules delete x --nats a --rules-signing-key-file f", "OFFPATH_RULES_SIGNING_KEY=" + canary, "want one of them"},
		{"keygen a b", "", "want one FILE at most"},
		{"rules get --nats a --nats-cert c", "", "--nats-cert and --nats-key need each other"},
		{"ledger --redis rediss://a --redis-cert c", "", "--redis-cert and --redis-key need each other"},
	} {
		name, value, _ := strings.Cut(test.env, "=")
		ends(t, map[string]string{name: value}, strings.Fields(test.args), 2, test.want)
	}
}

// TestFiles: each group of files that are missing is named by its flags.
func TestFiles(t *testing.T) {
	for args, want := range map[string]string{
		"ledger --redis rediss://a --redis-ca none":             "--redis-ca, --redis-cert, --redis-key: open none",
		"rules list --nats a --nats-creds none":                 "--nats-creds: open none",
		"rules delete x --nats a --rules-signing-key-file none": "--rules-signing-key-file: open none",
	} {
		ends(t, nil, strings.Fields(args+" --namespace x"), 1, want)
	}
}

// TestHelpAndVersion: each command has help, that of rules names its commands, and no flag takes a
// password, which every user of the machine could read.
func TestHelpAndVersion(t *testing.T) {
	want := map[string][]string{"--help": {"  ledger "}, "ledger --help": {"--redis URL"}, "rules --help": nil}
	for _, c := range newRules(flags.Environment{}).Commands() {
		want["rules --help"] = append(want["rules --help"], "  "+c.Name()+" ")
		want["rules "+c.Name()+" --help"] = []string{"--json"}
	}
	want["rules validate --help"] = []string{"validate FILE", "--json"}
	want["rules schema --help"] = []string{"yaml-language-server"}
	for args, parts := range want {
		status, stdout, stderr := daemontest.Run(t, run, nil, strings.Fields(args)...)
		for _, part := range append(parts, "Usage: offpath "+strings.TrimSuffix(args, "--help")) {
			if status != 0 || stderr != "" || !strings.Contains(stdout, part) {
				t.Errorf("%s: status %d, stderr %q, no %q in\n%s", args, status, stderr, part, stdout)
			}
		}
		for line := range strings.Lines(stdout) {
			if strings.Contains(line, "--") && strings.Contains(line, "password") && !strings.Contains(line, "-password-file FILE") {
				t.Errorf("a flag takes a password: %s", line)
			}
		}
	}
	ends(t, nil, []string{"--version"}, 0, "offpath devel (")
	ends(t, nil, []string{"ledger", "--version"}, 0, "offpath devel ")
}

// TestLedgerOfAnEmptyStore, and of none.
func TestLedgerOfAnEmptyStore(t *testing.T) {
	server := serverstest.Redis(t)
	args := []string{"ledger", "--redis", server.URL(), "--json"}
	ends(t, nil, args, 0, `{"rules":{}}`+"\n")
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	if n, err := client.DBSize(t.Context()).Result(); err != nil || n != 0 {
		t.Errorf("looking at an empty store wrote %d keys; %v", n, err)
	}
	must(t, server.Stop())
	ends(t, nil, args, 1, "read ledger")
}
