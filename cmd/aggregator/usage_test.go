package main

import (
	"net"
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
)

func TestMain(m *testing.M) {
	redis.SetLogger(silence{})
	os.Exit(m.Run())
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestUsageErrors: what cannot be meant ends with status 2, before anything is tried, and no error
// repeats a secret.
func TestUsageErrors(t *testing.T) {
	const both, secure = "--nats nats://127.0.0.1:1 --redis redis://127.0.0.1:1 ", "--nats a --redis rediss://a "
	for _, test := range []struct{ args, env, want string }{
		{"", "", "--nats URL is needed"},
		{"--redis redis://127.0.0.1:1", "", "--nats URL is needed"},
		{"--nats nats://127.0.0.1:1", "", "--redis URL is needed"},
		{both + "--loud", "", "unknown flag --loud"},
		{both + "start", "", `argument "start"`},
		{both + "ledger", "", `argument "ledger"`},
		{both + "--shards", "", "--shards: needs a value"},
		{"ledger", "", "--redis URL is needed"},
		{"ledger --redis http://x", "", "--redis"},
		{"ledger --redis redis://127.0.0.1:1 --yaml", "", "unknown flag --yaml"},
		{"ledger --redis redis://127.0.0.1:1 all", "", `argument "all"`},
		{"ledger --redis redis://127.0.0.1:1 --json=maybe", "", "json"},
		{"ledger --redis redis://127.0.0.1:1 --namespace a.b", "", "--namespace"},
		{"ledger --redis redis://127.0.0.1:1", "OFFPATH_JSON=maybe", "OFFPATH_JSON"},
		{"ledgers", "", `argument "ledgers": there is no such command; want rules, ledger, block, fleet, get, reset, top, unblock, or flags only`},
		{"nats://u:geheim@127.0.0.1:1", "", `argument "nats://xxxxx@127.0.0.1:1": want flags only`},
		{"top", "", "--nats URL is needed"},
		{"fleet --nats nats://127.0.0.1:1 all", "", `argument "all"`},
		{"get --nats nats://127.0.0.1:1", "", "want one KEY"},
		{"get --nats nats://127.0.0.1:1 a b", "", "want one KEY"},
		{"block k --nats nats://127.0.0.1:1", "", "--rule NAME is needed"},
		{"block k --rule r", "", "--nats URL is needed"},
		{"block k --rule r --nats nats://127.0.0.1:1 --for 0s", "", "--for"},
		{"block k --rule r --nats nats://127.0.0.1:1 --for 9999h", "", "--for"},
		{"unblock k --nats nats://127.0.0.1:1", "", "--rule NAME is needed"},
		{"reset k --nats nats://127.0.0.1:1", "", "--rule NAME is needed"},
		{"reset k --rule r --nats http://x", "", "--nats"},
		{"rules", "", "want a command: apply, get, list, delete, history, validate, diff"},
		{"rules aply", "", `rules "aply": want apply`},
		{"rules --nats x", "", "unknown flag --nats"},
		{"rules apply", "", "--nats URL is needed"},
		{"rules apply -f x", "", "--nats URL is needed"},
		{"rules apply --nats a", "", "--file FILE is needed"},
		{"rules apply x.yaml --nats a", "", `argument "x.yaml"`},
		{"rules apply -f x --revision one --nats a", "", "--revision"},
		{"rules apply -f x --replicas 6 --nats a", "", "--replicas"},
		{"rules apply -f x --namespace a.b --nats a", "", "--namespace"},
		{"rules apply -f x --dry-run=perhaps --nats a", "", "--dry-run"},
		{"rules get", "", "--nats URL is needed"},
		{"rules get --nats http://x", "", "--nats"},
		{"rules get -f x --nats a", "", "unknown flag --f"},
		{"rules list", "", "--nats URL is needed"},
		{"rules delete a", "", "--nats URL is needed"},
		{"rules delete --nats a", "", "the NAME of a rule is needed"},
		{"rules history --revision 1 --nats a", "", "unknown flag --revision"},
		{"rules validate", "", "--file FILE is needed"},
		{"rules validate -f x --nats a", "", "unknown flag --nats"},
		{"rules diff --nats a", "", "--file FILE is needed"},
		{secure + "--redis-cert c", "", "--redis-cert and --redis-key need each other"},
		{"--nats a --redis redis://a --redis-ca c", "", "no certificates without TLS"},
		{secure + "--redis-user u", "", "--redis-user needs a password"},
		{secure + "--redis-password-file f", "OFFPATH_REDIS_PASSWORD=" + canary, "want one of them"},
		{"--nats a --redis redis://u:" + canary + "@a --redis-password-file f", "", "want one of them"},
		{"--nats a --redis redis://u:p@a", "OFFPATH_REDIS_PASSWORD=" + canary, "want one of them"},
		{secure + "--nats-user u --nats-password-file f", "OFFPATH_NATS_PASSWORD=" + canary, "want one of them"},
		{"--nats nats://u:" + canary + "@a --redis redis://a --nats-nkey n", "", "want one of them"},
		{secure + "--admin-key k", "", "--admin-cert and --admin-key need each other"},
		{secure + "--redis-password " + canary, "", "unknown flag --redis-password"},
		{"ledger --redis redis://a --redis-user u", "", "--redis-user needs a password"},
		{"rules get --nats a --nats-cert c", "", "--nats-cert and --nats-key need each other"},
	} {
		t.Run(test.args+test.env, func(t *testing.T) {
			name, value, _ := strings.Cut(test.env, "=")
			status, stdout, stderr := daemontest.Run(t, run, map[string]string{name: value}, strings.Fields(test.args)...)
			if status != 2 || !strings.Contains(stderr, test.want) || stdout != "" || strings.Contains(stderr, canary) {
				t.Errorf("status %d, want 2 and %q\nstdout %q\nstderr %q", status, test.want, stdout, stderr)
			}
		})
	}
}

// TestBadValues: each is refused, by the name of its flag or of its variable.
func TestBadValues(t *testing.T) {
	for flag, values := range map[string]string{
		"nats": "http://x", "redis": "http://x redis:// redis://x/db", "admin": "x", "namespace": "a.b", "shards": "-1 100000 few",
		"log-level": "loud", "gather": "0s 2s 2",
	} {
		variable := "OFFPATH_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
		for value := range strings.FieldsSeq(values) {
			env := map[string]string{"OFFPATH_NATS": "nats://127.0.0.1:1", "OFFPATH_REDIS": "redis://127.0.0.1:1"}
			byFlag, _, stderr := daemontest.Run(t, run, env, "--"+flag, value)
			if byFlag != 2 || !strings.Contains(stderr, "--"+flag) {
				t.Errorf("--%s %s: status %d, stderr %q", flag, value, byFlag, stderr)
			}
			env[variable] = value
			byVariable, _, stderr := daemontest.Run(t, run, env)
			if byVariable != 2 || !strings.Contains(stderr, variable) {
				t.Errorf("%s=%s: status %d, stderr %q", variable, value, byVariable, stderr)
			}
		}
	}
}

// TestFilesThatAreMissing: each group of files is named by its flags.
func TestFilesThatAreMissing(t *testing.T) {
	const both = "--nats a --redis rediss://a "
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

// TestHelpAndVersion: each command's help names its flags and their variables, and no flag takes a
// password, which every user of the machine could read.
func TestHelpAndVersion(t *testing.T) {
	flags := map[string]string{
		"--help": "nats redis admin namespace shards log-level gather", "ledger --help": "redis namespace json", "rules --help": "",
	}
	for _, c := range rulesCommands {
		flags["rules "+c.name+" --help"] = "json"
	}
	for args, names := range flags {
		status, stdout, stderr := daemontest.Run(t, run, nil, strings.Fields(args)...)
		if usage := "Usage: aggregator " + strings.TrimSuffix(args, "--help"); status != 0 || stderr != "" || !strings.Contains(stdout, usage) {
			t.Errorf("%s: status %d, stderr %q\n%s", args, status, stderr, stdout)
		}
		for name := range strings.FieldsSeq(names) {
			variable := "OFFPATH_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
			if !strings.Contains(stdout, "--"+name) || !strings.Contains(stdout, variable) {
				t.Errorf("%s says nothing of --%s, %s:\n%s", args, name, variable, stdout)
			}
		}
		for line := range strings.Lines(stdout) {
			if strings.Contains(line, "--") && strings.Contains(line, "password") && !strings.Contains(line, "-password-file FILE") {
				t.Errorf("a flag takes a password: %s", line)
			}
		}
		for _, c := range rulesCommands {
			if args == "rules --help" && !strings.Contains(stdout, "  "+c.name+" ") {
				t.Errorf("rules --help says nothing of %s:\n%s", c.name, stdout)
			}
		}
	}
	if _, stdout, _ := daemontest.Run(t, run, nil, "rules", "validate", "--help"); !strings.Contains(stdout, "-f, --file FILE") {
		t.Errorf("validate --help:\n%s", stdout)
	}
	for _, args := range []string{"--version", "ledger --version"} {
		status, stdout, stderr := daemontest.Run(t, run, nil, strings.Fields(args)...)
		if status != 0 || !strings.HasPrefix(stdout, "offpath aggregator ") || stderr != "" {
			t.Errorf("%s: status %d, stdout %q, stderr %q", args, status, stdout, stderr)
		}
	}
}

func TestPortInUse(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer listener.Close()
	status, stdout, stderr := daemontest.Run(t, run, nil,
		"--nats", "nats://127.0.0.1:1", "--redis", "redis://127.0.0.1:1", "--admin", listener.Addr().String())
	if status != 1 || !strings.Contains(stderr, listener.Addr().String()) || stdout != "" {
		t.Errorf("status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
}

// TestLedgerOfAnEmptyStore, and of none.
func TestLedgerOfAnEmptyStore(t *testing.T) {
	server := serverstest.Redis(t)
	status, stdout, stderr := daemontest.Run(t, run, nil, "ledger", "--redis", server.URL(), "--json")
	if status != 0 || stdout != `{"rules":{}}`+"\n" || stderr != "" {
		t.Errorf("an empty store: status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	if n, err := client.DBSize(t.Context()).Result(); err != nil || n != 0 {
		t.Errorf("looking at an empty store wrote %d keys; %v", n, err)
	}
	must(t, server.Stop())
	status, stdout, stderr = daemontest.Run(t, run, nil, "ledger", "--redis", server.URL(), "--json")
	if status != 1 || stdout != "" || !strings.Contains(stderr, "read ledger") {
		t.Errorf("no store: status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
}
