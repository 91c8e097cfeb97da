package main

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/offpath-io/offpath/cmd/internal/console"
	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/internal/natsconn"
	"github.com/offpath-io/offpath/internal/redisconn"
	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
)

// newConfig gives the test a configuration directory of its own.
func newConfig(t *testing.T) (dir string) {
	t.Helper()
	home := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", home)
	return filepath.Join(home, "offpath")
}

// TestContexts is the life of contexts, in the words of an operator.
func TestContexts(t *testing.T) {
	dir := newConfig(t)
	does := func(want, args string) {
		t.Helper()
		ends(t, nil, strings.Fields(args), 0, want)
	}
	fails := func(want, args string) {
		t.Helper()
		ends(t, nil, strings.Fields(args), 1, want)
	}
	does("context  namespace", "context list")
	fails(`there is no context "prod"`, "context use prod")
	does("offpath context use prod", "context add prod --nats nats://u:"+canary+"@a:4222 --namespace shop")
	does("saved", "context add test --nats-creds my.creds --nats nats://b")
	info, err := os.Stat(filepath.Join(dir, "contexts", "prod.json"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	fails("exists: edit "+dir, "context add prod --nats nats://other")
	does("prod is in use", "context use prod")
	does("*  prod     shop       nats://xxxxx@a:4222\n   test     offpath    nats://b\n", "context list")
	does(`{"contexts":["prod","test"],"current":"prod"}`, "context list --json")
	does("nats://xxxxx@a:4222", "context show prod")
	here, err := filepath.Abs("my.creds")
	must(t, err)
	does(`{"nats":"nats://b","nats-creds":"`+here+`"}`, "context show test --json")
	fails(`there is no context "none"`, "context rm none")
	does("", "context rm prod")
	does("  test     offpath", "context list")
	does("saved", "context add redis --redis redis://a")
	does("  redis    offpath    \n  test", "context list")
	for args, want := range map[string]string{
		"context":                   "want one of the commands add, list, rm, show, use",
		"context add":               "want the NAME of one context",
		"context add a b":           "want the NAME of one context",
		"context add ../a --nats a": "NAME",
		"context use " + strings.Repeat("n", 1000): `name "` + strings.Repeat("n", 64) + `": want 1 to 64`,
		"context add a":                        "want flags to save",
		"context use ../a":                     "context: ",
		"context rm ../a":                      "context: ",
		"context add a --nats http://x":        "--nats",
		"context add a --nats-ca c":            "need --nats URL too",
		"context add a --nats-password secret": "want it in the environment",
		"top --context ../a":                   "context: ",
	} {
		ends(t, nil, strings.Fields(args), 2, want)
	}
}

// TestContextAddSavesNoVariables: what the environment says is not a wish to keep it.
func TestContextAddSavesNoVariables(t *testing.T) {
	newConfig(t)
	env := map[string]string{"OFFPATH_NATS": "nats://a", "OFFPATH_NAMESPACE": "b", "OFFPATH_NATS_PASSWORD": canary, "OFFPATH_NATS_USER": "u"}
	ends(t, env, strings.Fields("context add c --namespace d"), 0, "saved")
	ends(t, env, strings.Fields("context show c --json"), 0, `{"namespace":"d"}`)
}

// TestWhatBeatsWhat: a flag its variable, the variable the context that is named, that the context
// in use, and that the default. Whoever says which server to speak with does not get the namespace
// and the keys of another.
func TestWhatBeatsWhat(t *testing.T) {
	newConfig(t)
	c, err := openContexts()
	must(t, err)
	must(t, c.add("used", map[string]string{"nats": "nats://used", "namespace": "used", "nats-user": "u", "nats-password-file": "f"}))
	must(t, c.add("named", map[string]string{"nats": "nats://named", "redis": "redis://named"}))
	must(t, c.use("used"))
	for _, test := range []struct{ args, env, want string }{
		{"", "", "nats://used used u"},
		{"", "OFFPATH_CONTEXT=named", "nats://named offpath "},
		{"--context named", "", "nats://named offpath "},
		{"--context used", "OFFPATH_CONTEXT=named", "nats://used used u"},
		{"", "OFFPATH_NAMESPACE=env", "nats://used env u"},
		{"--namespace flag", "OFFPATH_NAMESPACE=env", "nats://used flag u"},
		{"--nats nats://flag", "", "nats://flag offpath "},
		{"", "OFFPATH_NATS=nats://env", "nats://env offpath "},
		{"--nats nats://flag --context used", "", "nats://flag used u"},
		{"--nats-creds c", "", "nats://used used "},
		{"", "OFFPATH_NATS_CREDS=c", "nats://used used "},
	} {
		name, value, _ := strings.Cut(test.env, "=")
		o, cmd, got := &operation{}, (*cobra.Command)(nil), ""
		cmd = o.command("ask", "", "", nil)
		cmd.RunE = func(*cobra.Command, []string) error {
			got = o.nats + " " + o.namespace + " " + o.access.User
			return o.check()
		}
		var said strings.Builder
		e := flags.Environment{
			Prefix: "OFFPATH_", Stdout: &said, Stderr: &said, Saved: savedFlags,
			Getenv: func(n string) string { return map[string]string{name: value}[n] },
		}
		if status := e.Run(t.Context(), cmd, strings.Fields(test.args)); status != 0 || got != test.want {
			t.Errorf("%s %s: status %d, got %q, want %q\n%s", test.env, test.args, status, got, test.want, &said)
		}
	}
}

// TestGivenCredentials: those of the context do not count beside them, except that a password is
// its user's.
func TestGivenCredentials(t *testing.T) {
	newConfig(t)
	c, err := openContexts()
	must(t, err)
	must(t, c.add("all", map[string]string{
		"nats-user": "u", "nats-password-file": "f", "nats-creds": "c", "nats-nkey": "n",
		"redis-user": "u", "redis-password-file": "f",
	}))
	const ofRedis, ofNATS = "redis-password-file redis-user", "nats-creds nats-nkey nats-password-file nats-user"
	for given, want := range map[string]string{
		"context":             ofNATS + " " + ofRedis,
		"nats-creds":          ofRedis,
		"nats-nkey":           ofRedis,
		"nats-user":           ofRedis,
		"nats-password-file":  "nats-user " + ofRedis,
		"nats-password":       "nats-user " + ofRedis, // is in the environment
		"redis-user":          ofNATS,
		"redis-password-file": ofNATS + " redis-user",
		"redis-password":      ofNATS + " redis-user",
	} {
		cmd := &cobra.Command{}
		addContext(cmd.Flags())
		new(natsconn.Access).AddFlags(cmd.Flags())
		new(redisconn.Access).AddFlags(cmd.Flags())
		must(t, cmd.Flags().Set("context", "all"))
		cmd.Flags().Lookup(given).Changed = true
		_, values, err := savedFlags(cmd)
		must(t, err)
		if got := strings.Join(slices.Sorted(maps.Keys(values)), " "); got != want {
			t.Errorf("--%s beside %q, want %q", given, got, want)
		}
	}
}

// TestBadContexts: a file that is no context says which and why, and never a password.
func TestBadContexts(t *testing.T) {
	dir := newConfig(t)
	c, err := openContexts()
	must(t, err)
	must(t, c.add("bad", map[string]string{"nats": "nats://a"}))
	path := filepath.Join(dir, "contexts", "bad.json")
	for text, want := range map[string]string{
		"":                                      `context "bad": ` + path + ": want a JSON object of strings",
		`["` + canary + `"]`:                    "want a JSON object of strings",
		`{"nats": 5}`:                           "want a JSON object of strings",
		`{"natz": "` + canary + `"}`:            `unknown setting "natz"`,
		`{"namespace": "a.b"}`:                  `context "bad": namespace: `,
		`{"nats": "http://u:` + canary + `@a"}`: `context "bad": nats: unknown scheme`,
	} {
		must(t, os.WriteFile(path, []byte(text), 0o600))
		status, _, stderr := daemontest.Run(t, run, nil, "top", "--context", "bad")
		if status == 0 || !strings.Contains(stderr, want) || strings.Contains(stderr, canary) {
			t.Errorf("%s: status %d, want %q in\n%s", text, status, want, stderr)
		}
	}
	must(t, os.WriteFile(path, []byte("{"), 0o600))
	ends(t, nil, []string{"context", "list"}, 0, "  bad                 context \"bad\": "+path)
	must(t, os.WriteFile(filepath.Join(dir, "context"), []byte("gone\n"), 0o600))
	ends(t, nil, []string{"top"}, 1, `there is no context "gone"`)
}

// TestCompletion: shells are offered names of contexts and of the fleet's rules.
func TestCompletion(t *testing.T) {
	newConfig(t)
	c, err := openContexts()
	must(t, err)
	for _, name := range []string{"prod", "preview", "test"} {
		must(t, c.add(name, map[string]string{"namespace": name}))
	}
	for args, want := range map[string]string{
		"context use p": "preview\nprod\n:4\n", "context rm t": "test\n:4\n", "context show prod ": ":4\n",
		"top --context pre": "preview\n:4\n", "ledger --context t": "test\n:4\n",
		"rules ap": "apply\treplace the fleet's rules\n:4\n",
	} {
		status, got, _ := daemontest.Run(t, run, nil, append([]string{"__complete"}, strings.Split(args, " ")...)...)
		if status != 0 || got != want {
			t.Errorf("%s: %d %q, want %q", args, status, got, want)
		}
	}

	conn := serverstest.Connect(t, serverstest.NATS(t).URL())
	view, err := json.Marshal(console.View{Rules: []console.RuleView{{Rule: "per-user"}, {Rule: "per-ip"}, {Rule: "api"}}})
	must(t, err)
	answer, err := json.Marshal(console.Answer{Value: view})
	must(t, err)
	_, err = conn.Subscribe("offpath.console.v1.view", func(m *nats.Msg) { _ = m.Respond(answer) })
	must(t, err)
	must(t, conn.Flush())
	env := map[string]string{"OFFPATH_NATS": conn.ConnectedUrl()}
	for args, want := range map[string]string{
		"get k --rule per": "per-user\nper-ip\n:4\n", "block k --rule a": "api\n:4\n", "rules delete per-i": "per-ip\n:4\n",
	} {
		status, got, _ := daemontest.Run(t, run, env, append([]string{"__complete"}, strings.Fields(args)...)...)
		if status != 0 || got != want {
			t.Errorf("%s: %d %q, want %q", args, status, got, want)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		ends(t, nil, []string{"completion", shell}, 0, "offpath")
	}
}

// TestContextsHoldFlagsThatThereAre: each is one of a command that takes a context.
func TestContextsHoldFlagsThatThereAre(t *testing.T) {
	left := make(map[string]bool)
	for _, name := range contextFlags {
		left[name] = true
	}
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		if cmd.Flags().Lookup("context") != nil {
			maps.DeleteFunc(left, func(name string, _ bool) bool { return cmd.Flags().Lookup(name) != nil })
		}
		for _, c := range cmd.Commands() {
			visit(c)
		}
	}
	visit(newCommand(flags.Environment{}))
	if len(left) > 0 {
		t.Errorf("of no command: %v", left)
	}
}
