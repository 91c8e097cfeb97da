package flags

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

type settings struct {
	file     string
	address  string
	level    slog.Level
	n        int
	flush    time.Duration
	json     bool
	password string
}

var defaults = settings{address: "127.0.0.1:8080", n: 7, flush: time.Second}

// call is a call of a command with these flags, and of what came of it.
type call struct {
	settings
	ran            string // the command
	args           []string
	status         int
	stdout, stderr string
}

// run calls "tool", whose command "sub" takes arguments. The environment is NAME=value, separated
// by spaces.
func run(environment string, args ...string) call {
	c := call{settings: defaults}
	done := func(cmd *cobra.Command, args []string) error {
		c.ran, c.args = cmd.Name(), args
		return nil
	}
	root := &cobra.Command{Use: "tool", Long: "Does a thing.", Version: "tool devel", Args: NoArguments, RunE: done}
	c.addFlags(root)
	sub := &cobra.Command{Use: "sub [FILE…]", Short: "does less", Args: cobra.ArbitraryArgs, RunE: done}
	c.addFlags(sub)
	root.AddCommand(sub)
	for name, err := range map[string]error{
		"fail":        errors.New("it failed"),
		"quiet":       &ExitError{Status: 3},
		"interrupted": &ExitError{Status: 130, Err: errors.New("interrupted")},
	} {
		root.AddCommand(&cobra.Command{
			Use: name, Args: NoArguments, RunE: func(*cobra.Command, []string) error { return err },
		})
	}
	var stdout, stderr bytes.Buffer
	c.status = Environment{Prefix: "TOOL_", Getenv: getenv(environment), Stdout: &stdout, Stderr: &stderr}.
		Run(context.Background(), root, args)
	c.stdout, c.stderr = stdout.String(), stderr.String()
	return c
}

func (c *call) addFlags(cmd *cobra.Command) {
	Topic(cmd, "Reading", func(s *pflag.FlagSet) {
		s.StringVarP(&c.file, "file", "f", "", "`FILE` to read")
		s.BoolVar(&c.json, "json", false, "print JSON")
	})
	Topic(cmd, "Serving", func(s *pflag.FlagSet) {
		Add(s, &c.address, "listen", "`ADDRESS` to listen at", Address)
		Add(s, &c.n, "max-keys", "at most `N` keys", Int(0, 10))
		Add(s, &c.flush, "flush", "`INTERVAL` between two flushes",
			Duration(time.Millisecond, time.Minute))
		AddSecret(s, &c.password, "password", "the password")
	})
	Topic(cmd, "Reading", func(s *pflag.FlagSet) {
		Add(s, &c.level, "log-level", "the least `LEVEL` to log",
			OneOf(slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError))
	})
}

func getenv(text string) func(string) string {
	values := make(map[string]string)
	for _, pair := range strings.Fields(text) {
		name, value, _ := strings.Cut(pair, "=")
		values[name] = value
	}
	return func(name string) string { return values[name] }
}

func TestFlags(t *testing.T) {
	with := func(change func(*settings)) settings {
		v := defaults
		change(&v)
		return v
	}
	for _, test := range []struct {
		name, args, env string
		want            settings
	}{
		{"nothing given", "", "", defaults},
		{"a flag", "--max-keys 9", "", with(func(v *settings) { v.n = 9 })},
		{"a flag with =", "--max-keys=9", "", with(func(v *settings) { v.n = 9 })},
		{"the last of two", "--max-keys 9 --max-keys 8", "", with(func(v *settings) { v.n = 8 })},
		{"a letter", "-f x", "", with(func(v *settings) { v.file = "x" })},
		{"a letter with =", "-f=x", "", with(func(v *settings) { v.file = "x" })},
		{"a letter after the name", "--file y -f x", "", with(func(v *settings) { v.file = "x" })},
		{"a variable", "", "TOOL_MAX_KEYS=9", with(func(v *settings) { v.n = 9 })},
		{"the flag beats the variable", "--max-keys 8", "TOOL_MAX_KEYS=9", with(func(v *settings) { v.n = 8 })},
		{"even a bad variable", "--max-keys 8", "TOOL_MAX_KEYS=many", with(func(v *settings) { v.n = 8 })},
		{"the flag beats it with the default, too", "--max-keys 7", "TOOL_MAX_KEYS=9", defaults},
		{"an empty variable is none", "", "TOOL_MAX_KEYS=", defaults},
		{"another prefix", "", "MAX_KEYS=9 OFFPATH_MAX_KEYS=9 TOOL_OTHER=1", defaults},
		{"help and version are no variables", "", "TOOL_HELP=1 TOOL_VERSION=1.2.3", defaults},
		{"level", "--log-level debug", "", with(func(v *settings) { v.level = slog.LevelDebug })},
		{"level in capitals", "", "TOOL_LOG_LEVEL=WARN", with(func(v *settings) { v.level = slog.LevelWarn })},
		{"no host", "--listen :80", "", with(func(v *settings) { v.address = ":80" })},
		{"IPv6", "--listen [::1]:0", "", with(func(v *settings) { v.address = "[::1]:0" })},
		{"duration", "--flush 5ms", "", with(func(v *settings) { v.flush = 5 * time.Millisecond })},
		{"bool", "--json", "", with(func(v *settings) { v.json = true })},
		{"bool by variable", "", "TOOL_JSON=1", with(func(v *settings) { v.json = true })},
		{"bool, not after all", "--json=false", "TOOL_JSON=1", defaults},
		{"secret", "", "TOOL_PASSWORD=geheim", with(func(v *settings) { v.password = "geheim" })},
	} {
		for _, command := range []string{"tool", "sub"} {
			args := strings.Fields(strings.TrimPrefix(command, "tool") + " " + test.args)
			got := run(test.env, args...)
			if got.status != 0 || got.ran != command || got.stdout+got.stderr != "" || got.settings != test.want {
				t.Errorf("%s: %+v\nwant %+v", test.name, got, test.want)
			}
		}
	}
}

// TestRefusals: each is refused with status 2 and its reason, and without a secret.
func TestRefusals(t *testing.T) {
	for _, test := range []struct {
		want string   // in the reason
		args []string // each of which is a command line
		env  string
	}{
		{"unknown flag --loud\n", []string{"--loud", "--loud=geheim", "sub --loud geheim"}, ""},
		{"unknown flag -loud\n", []string{"-loud", "-loud=geheim"}, ""},
		{"unknown flag --max-key: did you mean --max-keys?", []string{"--max-key 9"}, ""},
		{"unknown flag -listen: did you mean --listen?", []string{"-listen :80", "sub -listen=geheim"}, ""},
		{`argument "extra": want one of the commands completion, fail, interrupted, quiet, sub`,
			[]string{"extra"}, ""},
		{`argument "subs": did you mean sub?`, []string{"subs"}, ""},
		{`argument "extra": want flags only`, []string{"quiet extra"}, ""},
		{`"extra"`, []string{"completion bash extra"}, ""},
		{`argument "redis://xxxxx@a:6379"`, []string{"redis://u:geheim@a:6379"}, ""},
		{`argument "(not a URL)"`, []string{"redis://u:ge%heim@a"}, ""},
		{`argument "true"`, []string{"--json true"}, ""},
		{`argument "x"`, []string{"-- x"}, ""},
		{"--max-keys: needs a value", []string{"--max-keys", "sub --max-keys"}, ""},
		{"--file: needs a value", []string{"-f"}, ""},
		{"names no flag", []string{"--=geheim"}, ""},
		{`--max-keys: "many": want a whole number from 0 to 10`, []string{"--max-keys many"}, ""},
		{"--max-keys", []string{"--max-keys 11", "--max-keys -1", "--max-keys 1.5", "--max-keys="}, ""},
		{`TOOL_MAX_KEYS: "many": want a whole number`, []string{"", "sub"}, "TOOL_MAX_KEYS=many"},
		{`--log-level: "loud": want debug, info, warn or error`, []string{"--log-level loud"}, ""},
		{"--listen", []string{"--listen 8080", "--listen 127.0.0.1:http", "--listen 127.0.0.1:70000"}, ""},
		{"--flush", []string{"--flush 5", "--flush 0s", "--flush 2h"}, ""},
		{"--json", []string{"--json=maybe", "--json="}, ""},
		{"TOOL_JSON", []string{""}, "TOOL_JSON=maybe"},
		{"--password: a secret: want it in the environment", []string{"--password geheim"}, ""},
	} {
		for _, args := range test.args {
			got := run(test.env, strings.Fields(args)...)
			if got.status != 2 || got.ran != "" || got.stdout != "" || !strings.HasPrefix(got.stderr, "tool: ") ||
				!strings.Contains(got.stderr, test.want) || !strings.HasSuffix(got.stderr,
				" --help lists the flags.\n") ||
				strings.Contains(got.stderr, "heim") || got.password != "" {
				t.Errorf("%s %s: %+v\nwant %q and no secret", args, test.env, got, test.want)
			}
		}
	}
}

func TestStatuses(t *testing.T) {
	if got := run(""); got.ran != "tool" || got.status != 0 { // not the arguments of this test
		t.Errorf("no arguments: %+v", got)
	}
	for command, want := range map[string]call{
		"fail":        {status: 1, stderr: "tool: it failed\n"},
		"quiet":       {status: 3},
		"interrupted": {status: 130, stderr: "tool: interrupted\n"},
	} {
		got := run("", command)
		if got.status != want.status || got.stderr != want.stderr || got.stdout != "" {
			t.Errorf("%s: %+v", command, got)
		}
	}
}

func TestArguments(t *testing.T) {
	for _, test := range []struct {
		args string
		want []string
		n    int
	}{
		{"", nil, 7},
		{"a b", []string{"a", "b"}, 7},
		{"a --max-keys 3 b", []string{"a", "b"}, 3},
		{"--max-keys 3 a --json b", []string{"a", "b"}, 3},
		{"a -- --max-keys 3", []string{"a", "--max-keys", "3"}, 7},
		{"-- a --", []string{"a", "--"}, 7},
		{"a - b", []string{"a", "-", "b"}, 7},
	} {
		got := run("", append([]string{"sub"}, strings.Fields(test.args)...)...)
		if got.status != 0 || !slices.Equal(got.args, test.want) || got.n != test.n {
			t.Errorf("%s: %+v", test.args, got)
		}
	}
}

// TestHelpAndVersion: help names all flags with their variables and defaults under their topics. It
// is for somebody who got something wrong, so nothing bad after it or in the environment refuses
// it.
func TestHelpAndVersion(t *testing.T) {
	const environment = "TOOL_MAX_KEYS=many TOOL_PASSWORD=geheim"
	for _, args := range []string{
		"--help", "-h", "--max-keys 9 --help", "--help --loud", "--help extra", "help",
		"sub --help", "sub a -h", "help sub",
	} {
		got := run(environment, strings.Fields(args)...)
		wants := []string{"Usage: tool [flags]\n\nDoes a thing.\n", "\n  sub          does less\n"}
		if strings.Contains(args, "sub") {
			wants = []string{"Usage: tool sub [FILE…] [flags]\n\ndoes less\n"}
		}
		for _, want := range append(wants,
			"\nReading:\n  -f, --file FILE", "[TOOL_FILE]\n", "--log-level LEVEL",
			"[TOOL_LOG_LEVEL] (default INFO)\n",
			"\nServing:\n", "at most N keys [TOOL_MAX_KEYS] (default 7)\n",
			"\n      TOOL_PASSWORD   the password (environment only)\n",
			"\nOther:\n", "-h, --help", "--version") {
			if got.status != 0 || got.ran != "" || got.stderr != "" || !strings.Contains(got.stdout, want) {
				t.Errorf("%s: status %d, stderr %q, no %q in:\n%s", args, got.status, got.stderr, want, got.stdout)
			}
		}
		if strings.Contains(got.stdout, "geheim") || strings.Contains(got.stdout, "--password") {
			t.Errorf("%s: help shows a secret:\n%s", args, got.stdout)
		}
	}
	for _, args := range []string{"--version", "sub --version a"} {
		if got := run(environment, strings.Fields(args)...); got.status != 0 || got.stdout != "tool devel\n" {
			t.Errorf("%s: %+v", args, got)
		}
	}
}

// TestCompletion: shells get a script, and commands and flags, but no secrets.
func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if got := run("", "completion", shell); got.status != 0 || !strings.Contains(got.stdout, "tool") {
			t.Errorf("%s: %+v", shell, got)
		}
	}
	for args, want := range map[string]string{
		"su": "sub\tdoes less\n", "--max": "--max-keys", "sub --f": "--file", "--pass": ":",
	} {
		got := run("", append([]string{"__complete"}, strings.Fields(args)...)...)
		if got.status != 0 || got.ran != "" || !strings.HasPrefix(got.stdout, want) {
			t.Errorf("%s: %+v, want %q", args, got, want)
		}
	}
}

func TestNumbers(t *testing.T) {
	for text, ok := range map[string]bool{
		"0.5": true, "2": true, "1e0": true, "0.4": false, "2.1": false, "NaN": false, "Inf": false,
		"x": false, "": false,
	} {
		if _, err := Float(0.5, 2)(text); (err == nil) != ok {
			t.Errorf("Float: %q: error %v", text, err)
		}
	}
}

// TestSaved: what is saved counts where neither an argument nor a variable says otherwise, and
// names of other commands' flags do not matter.
func TestSaved(t *testing.T) {
	saved := map[string]string{"listen": ":1", "max-keys": "1", "flush": "1ms", "loud": "1"}
	for _, test := range []struct {
		args, env, want, refused string
		err                      error
	}{
		{"", "", ":1 1 1ms", "", nil},
		{"--max-keys 2", "TOOL_FLUSH=2ms", ":1 2 2ms", "", nil},
		{"", "TOOL_MAX_KEYS=11", "", "TOOL_MAX_KEYS: ", nil},
		{"", "", "", "tool: gone\n", errors.New("gone")},
	} {
		c, got := call{settings: defaults}, ""
		root := &cobra.Command{Use: "tool", Args: NoArguments, RunE: func(*cobra.Command, []string) error {
			got = fmt.Sprint(c.address, " ", c.n, " ", c.flush)
			return nil
		}}
		c.addFlags(root)
		var said bytes.Buffer
		e := Environment{Prefix: "TOOL_", Getenv: getenv(test.env), Stdout: &said, Stderr: &said}
		e.Saved = func(*cobra.Command) (string, map[string]string, error) { return "the attic", saved, test.err }
		e.Run(context.Background(), root, strings.Fields(test.args))
		if got != test.want || !strings.Contains(said.String(), test.refused) || (test.refused == "") != (said.Len() == 0) {
			t.Errorf("%s %s: %q, want %q; said %q", test.args, test.env, got, test.want, &said)
		}
	}
	saved["max-keys"] = "11"
	c := call{settings: defaults}
	root := &cobra.Command{Use: "tool", RunE: func(*cobra.Command, []string) error { return nil }}
	c.addFlags(root)
	var said bytes.Buffer
	e := Environment{Prefix: "TOOL_", Getenv: getenv(""), Stdout: &said, Stderr: &said}
	e.Saved = func(*cobra.Command) (string, map[string]string, error) { return "the attic", saved, nil }
	if status := e.Run(context.Background(), root, nil); status != 1 || !strings.Contains(said.String(), "tool: the attic: max-keys: \"11\": want") {
		t.Errorf("a bad value: %d, %s", status, &said)
	}
}

// TestHelpsOrder: examples come before flags, and what a command is about before access and help.
func TestHelpsOrder(t *testing.T) {
	root := &cobra.Command{Use: "tool", Short: "does", Example: "  tool --a x", Run: func(*cobra.Command, []string) {}}
	var a, b string
	Topic(root, "Access to things", func(s *pflag.FlagSet) { s.StringVar(&a, "a", "", "`A`") })
	Topic(root, "Things", func(s *pflag.FlagSet) { s.StringVar(&b, "b", "", "`B`") })
	var said bytes.Buffer
	e := Environment{Prefix: "TOOL_", Getenv: getenv(""), Stdout: &said, Stderr: &said}
	e.Run(context.Background(), root, []string{"--help"})
	at := -1
	for _, want := range []string{"Examples:\n  tool --a x\n", "\nThings:\n", "\nAccess to things:\n", "\nOther:\n"} {
		next := strings.Index(said.String(), want)
		if next <= at {
			t.Errorf("%q is not where it belongs in\n%s", want, &said)
		}
		at = next
	}
}
