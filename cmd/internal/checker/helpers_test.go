package checker

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/offpath-io/offpath/cmd/checker/api"
	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/internal/testing/daemontest"
)

const kristie = `{"attributes":{"user":"kristie"}}`

var must = daemontest.Must

// equal fails the test unless both are the same.
func equal[T comparable](t testing.TB, what any, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%v: got %v, want %v", what, got, want)
	}
}

// daily is a set of one rule, whose window no test outlasts.
func daily(limit int) string {
	return fmt.Sprintf("rules:\n  - name: per-user\n    key: [user]\n    limit: %d/day\n", limit)
}

func writeFile(t *testing.T, text string) string { return daemontest.File(t, "rules.yaml", text) }

// anywhere has a daemon listen on free ports, and remember few keys: most of a start is memory for
// the default's million.
var anywhere = []string{"--listen", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--max-idle-keys", "1000"}

// startChecker starts one that has as much time for its clients, and to deliver hits, as the test
// has for it.
func startChecker(t *testing.T, args ...string) *daemontest.Daemon {
	t.Helper()
	o := options{clientTime: daemontest.Patience, drainTime: daemontest.Patience}
	return daemontest.Start(t, o.run, slices.Concat(anywhere, args)...)
}

// startDemo is startChecker for "offpath demo".
func startDemo(t *testing.T) *daemontest.Daemon {
	t.Helper()
	o := options{clientTime: daemontest.Patience, drainTime: daemontest.Patience}
	demo := func(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
		e := flags.Environment{Prefix: "OFFPATH_", Getenv: getenv, Stdout: stdout, Stderr: stderr}
		return e.Run(ctx, o.demo(), args)
	}
	return daemontest.Start(t, demo, "--listen", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--admin", "127.0.0.1:0")
}

// complaints are the warnings and errors in a log, without those of the NATS server within that
// something took long, as it does on a machine that stands still.
func complaints(log string) (list []string) {
	slow := regexp.MustCompile(`processing time|took too long|was stalled`)
	for line := range strings.Lines(log) {
		bad := strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR")
		if bad && !slow.MatchString(line) {
			list = append(list, line)
		}
	}
	return list
}

// refuses runs a checker that has to end by itself, with a status and words on stderr, and without
// a banner.
func refuses(t *testing.T, env map[string]string, args []string, status int, words ...string) {
	t.Helper()
	got, stdout, stderr := daemontest.Run(t, options{}.run, env, args...)
	for _, want := range words {
		if got != status || !strings.Contains(stderr, want) || stdout != "" {
			t.Errorf("%v %v: status %d, want %d and %q\nstdout %q\nstderr %q", env, args, got, status, want, stdout, stderr)
		}
	}
}

func apiOf(d *daemontest.Daemon) string { return d.Find(`HTTP API +(https?://\S+)`) }

func ask(t *testing.T, d *daemontest.Daemon, body string) (int, api.Answer) {
	t.Helper()
	status, text := daemontest.Do(t, "POST", apiOf(d), body)
	var a api.Answer
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		t.Fatalf("%d %s: %v", status, text, err)
	}
	return status, a
}

// asks fails the test unless the answer has this status.
func asks(t *testing.T, d *daemontest.Daemon, body string, want int) api.Answer {
	t.Helper()
	status, a := ask(t, d, body)
	if status != want {
		t.Fatalf("%s: status %d, want %d; %+v", body, status, want, a)
	}
	return a
}

func awaitFresh(d *daemontest.Daemon) { d.AwaitMetric(`offpath_freshness{state="fresh"}`, "1") }

func awaitAnswered(d *daemontest.Daemon, rule string, hits int) {
	d.AwaitMetric(`offpath_hits_total{outcome="answered",rule="`+rule+`"}`, fmt.Sprint(hits))
}
