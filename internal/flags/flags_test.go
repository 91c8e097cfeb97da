package flags

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"
)

type settings struct {
	file    string
	address string
	level   slog.Level
	n       int
	flush   time.Duration
	nats    string
	fleet   string
	json    bool
}

func newSet(v *settings) *Set {
	*v = settings{address: "127.0.0.1:8080", n: 7, flush: time.Second, fleet: "offpath"}
	s := New("tool", "Does a thing.", "tool devel")
	Add(s, &v.file, "file", "FILE", "what to read", Text)
	Add(s, &v.address, "listen", "ADDRESS", "where to listen", Address)
	Add(s, &v.level, "log-level", "LEVEL", "how much to say", Level)
	Add(s, &v.n, "max-keys", "N", "how many", Int(0, 10))
	Add(s, &v.flush, "flush", "DURATION", "how often", Duration(time.Millisecond, time.Minute))
	Add(s, &v.nats, "nats", "URL", "whom to ask", NATS)
	Add(s, &v.fleet, "namespace", "NAME", "which fleet", Namespace)
	Add(s, &v.json, "json", "", "as JSON", Bool)
	return s
}

func TestParse(t *testing.T) {
	defaults := settings{address: "127.0.0.1:8080", n: 7, flush: time.Second, fleet: "offpath"}
	with := func(change func(*settings)) settings {
		v := defaults
		change(&v)
		return v
	}
	for _, test := range []struct {
		name string
		args string
		env  string // NAME=value, separated by spaces
		want settings
	}{
		{"nothing given", "", "", defaults},
		{"a flag", "--max-keys 9", "", with(func(v *settings) { v.n = 9 })},
		{"a flag with =", "--max-keys=9", "", with(func(v *settings) { v.n = 9 })},
		{"a flag of two", "--max-keys 9 --max-keys 8", "", with(func(v *settings) { v.n = 8 })},
		{"a variable", "", "OFFPATH_MAX_KEYS=9", with(func(v *settings) { v.n = 9 })},
		{"the flag beats the variable", "--max-keys 8", "OFFPATH_MAX_KEYS=9", with(func(v *settings) { v.n = 8 })},
		{"even a bad variable", "--max-keys 8", "OFFPATH_MAX_KEYS=many", with(func(v *settings) { v.n = 8 })},
		{"the flag beats it with the default, too", "--max-keys 7", "OFFPATH_MAX_KEYS=9", defaults},
		{"an empty variable is none", "", "OFFPATH_MAX_KEYS=", defaults},
		{"another's variable", "", "MAX_KEYS=9 OFFPATH_OTHER=1", defaults},
		{"level", "--log-level debug", "", with(func(v *settings) { v.level = slog.LevelDebug })},
		{"level in capitals", "", "OFFPATH_LOG_LEVEL=WARN", with(func(v *settings) { v.level = slog.LevelWarn })},
		{"no host", "--listen :80", "", with(func(v *settings) { v.address = ":80" })},
		{"IPv6", "--listen [::1]:0", "", with(func(v *settings) { v.address = "[::1]:0" })},
		{"duration", "--flush 5ms", "", with(func(v *settings) { v.flush = 5 * time.Millisecond })},
		{"bool", "--json", "", with(func(v *settings) { v.json = true })},
		{"bool by variable", "", "OFFPATH_JSON=1", with(func(v *settings) { v.json = true })},
		{"bool, not after all", "--json=false", "OFFPATH_JSON=1", defaults},
		{"NATS", "--nats nats://a:4222", "", with(func(v *settings) { v.nats = "nats://a:4222" })},
		{"NATS without scheme", "--nats a", "", with(func(v *settings) { v.nats = "nats://a" })},
		{"NATS, several", "--nats a:1,tls://b", "", with(func(v *settings) { v.nats = "nats://a:1,tls://b" })},
	} {
		var got settings
		var stdout bytes.Buffer
		done, err := newSet(&got).Parse(strings.Fields(test.args), environment(test.env), &stdout)
		if done || err != nil || stdout.Len() > 0 || got != test.want {
			t.Errorf("%s: done %v, error %v, printed %q\ngot  %+v\nwant %+v", test.name, done, err, &stdout, got, test.want)
		}
	}
}

func environment(text string) func(string) string {
	values := make(map[string]string)
	for _, pair := range strings.Fields(text) {
		name, value, _ := strings.Cut(pair, "=")
		values[name] = value
	}
	return func(name string) string { return values[name] }
}

// TestRefusals: each is refused with its reason, and without the password in a URL.
func TestRefusals(t *testing.T) {
	for _, test := range []struct {
		want string   // in the reason
		args []string // each of which is a command line
		env  string
	}{
		{"unknown flag --loud", []string{"--loud", "-loud"}, ""},
		{"unknown flag --max-key", []string{"--max-key 9"}, ""},
		{`argument "extra": want flags only`, []string{"extra"}, ""},
		{`argument "redis://xxxxx@a:6379": want flags only`, []string{"redis://u:geheim@a:6379"}, ""},
		{`argument "(not a URL)": want flags only`, []string{"redis://u:ge%heim@a"}, ""},
		{`argument "true": want flags only`, []string{"--json true"}, ""},
		{`argument "x"`, []string{"-- x"}, ""},
		{"--max-keys: needs a value", []string{"--max-keys"}, ""},
		{`--max-keys: "many": want a whole number from 0 to 10`, []string{"--max-keys many"}, ""},
		{"--max-keys", []string{"--max-keys 11", "--max-keys -1", "--max-keys 1.5", "--max-keys="}, ""},
		{`OFFPATH_MAX_KEYS: "many": want a whole number`, []string{""}, "OFFPATH_MAX_KEYS=many"},
		{`--log-level: "loud": want debug, info, warn or error`, []string{"--log-level loud"}, ""},
		{"--listen", []string{"--listen 8080", "--listen 127.0.0.1:http", "--listen 127.0.0.1:70000"}, ""},
		{"--flush", []string{"--flush 5", "--flush 0s", "--flush 2h"}, ""},
		{"--namespace", []string{"--namespace a.b", "--namespace a*", "--namespace="}, ""},
		{"json", []string{"--json=maybe"}, ""},
		{"OFFPATH_JSON", []string{""}, "OFFPATH_JSON=maybe"},
		{`--nats: unknown scheme "http"`, []string{"--nats http://a"}, ""},
		{"--nats: a URL without a host", []string{"--nats nats://", "--nats=", "--nats a,,b"}, ""},
		{"--nats: not a URL", []string{"--nats nats://a:port"}, ""},
		{"--nats: a URL whose port", []string{"--nats nats://a:99999"}, ""},
		{"--nats: a URL with a path", []string{"--nats nats://a/path"}, ""},
		{"--nats: ", []string{
			"--nats nats://me:geheim@", "--nats http://me:geheim@a", "--nats nats://geheim@a/path", "--nats a,nats://me:geheim@",
			"--nats nats://me:geheim@a:99999", "--nats nats://me:geheim@a:port", "--nats nats://me:ge%zzheim@a",
		}, ""},
	} {
		for _, args := range test.args {
			var v settings
			var stdout bytes.Buffer
			done, err := newSet(&v).Parse(strings.Fields(args), environment(test.env), &stdout)
			if _, ok := errors.AsType[*UsageError](err); !ok || done {
				t.Errorf("%s %s: done %v, error %v: want a UsageError", args, test.env, done, err)
			} else if !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "heim") || stdout.Len() > 0 {
				t.Errorf("%s %s: error %q, want %q and no password; printed %q", args, test.env, err, test.want, &stdout)
			}
		}
	}
}

func TestArguments(t *testing.T) {
	for _, test := range []struct {
		args string
		want []string
		flag int
	}{
		{"", nil, 7},
		{"a b", []string{"a", "b"}, 7},
		{"a --max-keys 3 b", []string{"a", "b"}, 3},
		{"--max-keys 3 a --json b", []string{"a", "b"}, 3},
		{"a -- --max-keys 3", []string{"a", "--max-keys", "3"}, 7},
		{"-- a --", []string{"a", "--"}, 7},
		{"a - b", []string{"a", "-", "b"}, 7},
	} {
		var v settings
		var got []string
		s := newSet(&v)
		s.Arguments(&got, "[FILE…]")
		if done, err := s.Parse(strings.Fields(test.args), environment(""), io.Discard); done || err != nil {
			t.Fatalf("%s: done %v, error %v", test.args, done, err)
		}
		if !slices.Equal(got, test.want) || v.n != test.flag || s.Given("max-keys") != (test.flag != 7) {
			t.Errorf("%s: got %q, --max-keys %d (given %v); want %q, %d",
				test.args, got, v.n, s.Given("max-keys"), test.want, test.flag)
		}
	}
	s := newSet(new(settings))
	s.Arguments(new([]string), "[FILE…]")
	helps(t, s, "a --help", "Usage: tool [FILE…] [flags]\n")
	s = newSet(new(settings))
	s.Arguments(new([]string), "[FILE…]")
	if _, err := s.Parse([]string{"a", "--loud"}, environment(""), io.Discard); err == nil || !strings.Contains(err.Error(), "unknown flag --loud") {
		t.Errorf("error %v", err)
	}
}

// helps parses a command line that asks for help, which has to say all this; it returns the help.
func helps(t *testing.T, s *Set, args string, says ...string) string {
	t.Helper()
	var help bytes.Buffer
	// Help is for whoever got something wrong: a bad environment is no reason to refuse it.
	done, err := s.Parse(strings.Fields(args), environment("OFFPATH_MAX_KEYS=many OFFPATH_NATS_PASSWORD=geheim"), &help)
	for _, want := range says {
		if !done || err != nil || !strings.Contains(help.String(), want) {
			t.Errorf("%s: done %v, error %v, no %q in:\n%s", args, done, err, want, &help)
		}
	}
	return help.String()
}

func TestPrefix(t *testing.T) {
	var v settings
	s := newSet(&v)
	s.Prefix("TOOL_")
	if _, err := s.Parse(nil, environment("OFFPATH_MAX_KEYS=3 TOOL_MAX_KEYS=4"), io.Discard); err != nil || v.n != 4 {
		t.Errorf("--max-keys is %d, error %v; want 4", v.n, err)
	}
}

func TestNumbers(t *testing.T) {
	for text, ok := range map[string]bool{
		"0.5": true, "2": true, "1e0": true, "0.4": false, "2.1": false, "NaN": false, "Inf": false, "x": false, "": false,
	} {
		if _, err := Float(0.5, 2)(text); (err == nil) != ok {
			t.Errorf("Float: %q: error %v", text, err)
		}
	}
	for text, ok := range map[string]bool{
		"0": true, "18446744073709551615": true, "18446744073709551616": false, "-1": false, "1.0": false, "": false,
	} {
		if _, err := Uint64(text); (err == nil) != ok {
			t.Errorf("Uint64: %q: error %v", text, err)
		}
	}
}

func TestHelpAndVersion(t *testing.T) {
	for _, args := range []string{"--help", "-h", "-help", "--max-keys 9 --help", "--help --loud", "--help extra"} {
		helps(t, newSet(new(settings)), args,
			"Usage: tool [flags]\n", "Does a thing.", "--max-keys N", "how many", "OFFPATH_MAX_KEYS; default 7",
			"OFFPATH_LOG_LEVEL; default info", "(OFFPATH_FILE)", "(OFFPATH_JSON)", "--json\n", "--version")
	}
	if got := helps(t, newSet(new(settings)), "--version", "tool devel\n"); got != "tool devel\n" {
		t.Errorf("printed %q", got)
	}
}

// TestShort: a flag's letter is as good as its name, in arguments and in --help; errors give the name.
func TestShort(t *testing.T) {
	tool := func(file *string) *Set {
		s := New("tool", "", "")
		Add(s, file, "file", "FILE", "what to read", func(text string) (string, error) {
			if text == "bad" {
				return "", errors.New("bad")
			}
			return text, nil
		})
		s.Short("f", "file")
		return s
	}
	for _, args := range [][]string{{"-f", "x"}, {"-f=x"}, {"--file", "x"}, {"--file", "y", "-f", "x"}} {
		var file string
		s := tool(&file)
		if _, err := s.Parse(args, environment(""), io.Discard); err != nil || file != "x" || !s.Given("file") {
			t.Errorf("%q: %q, %v", args, file, err)
		}
	}
	var file string
	_, err := tool(&file).Parse([]string{"-f", "bad"}, environment(""), io.Discard)
	if err == nil || err.Error() != "--file: bad" {
		t.Error(err)
	}
	helps(t, tool(&file), "--help", "\n  -f, --file FILE\n")
}

// TestSecret: a variable without a flag, of which help says so, and whose text is nowhere.
func TestSecret(t *testing.T) {
	var secret string
	newSet := func() *Set {
		secret = ""
		s := New("tool", "Does a thing.", "tool devel")
		s.AddSecret(&secret, "nats-password", "the password")
		return s
	}
	if _, err := newSet().Parse(nil, environment("OFFPATH_NATS_PASSWORD=geheim"), io.Discard); err != nil || secret != "geheim" {
		t.Errorf("%q, %v", secret, err)
	}
	_, err := newSet().Parse([]string{"--nats-password", "geheim"}, environment(""), io.Discard)
	if err == nil || secret != "" || strings.Contains(err.Error(), "geheim") {
		t.Errorf("as a flag: %q, %v", secret, err)
	}
	text := helps(t, newSet(), "--help", "  OFFPATH_NATS_PASSWORD\n        the password\n")
	if strings.Contains(text, "--nats-password") || strings.Contains(text, "geheim") {
		t.Errorf("help:\n%s", text)
	}
}
