// Package daemontest runs a command's run function within a test, as main would run it.
package daemontest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// Command is a command's run function.
type Command func(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int

// Patience is how long anything may take before a test gives up on it: on a busy machine a start
// takes seconds.
const Patience = time.Minute

// Daemon is a command at work.
type Daemon struct {
	t              testing.TB
	stop           context.CancelFunc
	ended          chan struct{}
	status         int
	stdout, stderr Buffer
}

// Start starts the command and returns once it has printed where its admin API is. It is stopped
// when the test ends.
func Start(t testing.TB, command Command, args ...string) *Daemon {
	t.Helper()
	return StartIn(t, command, nil, args...)
}

// StartIn is Start with these environment variables.
func StartIn(t testing.TB, command Command, env map[string]string, args ...string) *Daemon {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	d := &Daemon{t: t, stop: stop, ended: make(chan struct{})}
	go func() {
		defer close(d.ended)
		d.status = command(ctx, args, func(name string) string { return env[name] }, &d.stdout, &d.stderr)
	}()
	t.Cleanup(func() { d.Stop() })
	d.Await("it says where it is", func() bool { return strings.Contains(d.Stdout(), "/readyz\n") })
	return d
}

// Stop tells the command to stop, as a signal does, and returns its exit status.
func (d *Daemon) Stop() int {
	d.stop()
	return d.Wait()
}

// MustStop is Stop for a command that has to end with status 0.
func (d *Daemon) MustStop() {
	d.t.Helper()
	if status := d.Stop(); status != 0 {
		d.t.Errorf("it ended with status %d; stderr:\n%s", status, d.Stderr())
	}
}

// Wait waits for the command to end by itself and returns its exit status.
func (d *Daemon) Wait() int {
	d.t.Helper()
	select {
	case <-d.ended:
	case <-time.After(Patience):
		d.t.Fatalf("it does not end; stderr:\n%s", d.Stderr())
	}
	return d.status
}

// Await waits until the condition holds, and fails the test if that takes too long or if the
// command ends before.
func (d *Daemon) Await(what string, holds func() bool) {
	d.t.Helper()
	deadline := time.After(Patience)
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for !holds() {
		select {
		case <-d.ended:
			if holds() {
				return
			}
			d.t.Fatalf("it ended with status %d before: %s; stderr:\n%s", d.status, what, d.Stderr())
		case <-deadline:
			d.t.Fatalf("waited too long until: %s; stderr:\n%s", what, d.Stderr())
		case <-poll.C:
		}
	}
}

// AwaitMetric waits until a metric has a value, as Metric returns it.
func (d *Daemon) AwaitMetric(name, value string) {
	d.t.Helper()
	d.Await(name+" "+value, func() bool { return d.Metric(name) == value })
}

// AwaitLog waits until there are words in what is logged.
func (d *Daemon) AwaitLog(words string) {
	d.t.Helper()
	d.Await("it logs "+words, func() bool { return strings.Contains(d.Stderr(), words) })
}

// Must ends the test if there is an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// File writes a file of this name in a directory of its own.
func File(t testing.TB, name, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	Must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// Background runs something until stop is called, or the test is over, and waits for its end, which
// has to be without an error.
func Background(t testing.TB, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("it ended with: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// Next waits for what comes next on a channel, and fails the test if that takes too long.
func Next[T any](t testing.TB, what string, from <-chan T) T {
	t.Helper()
	return Collect(t, what, from, func(T) bool { return true })[0]
}

// Collect takes what comes on a channel up to the first that is the last, and fails the test if all
// of that takes too long.
func Collect[T any](t testing.TB, what string, from <-chan T, last func(T) bool) (all []T) {
	t.Helper()
	for deadline := time.After(Patience); ; {
		select {
		case one := <-from:
			if all = append(all, one); last(one) {
				return all
			}
		case <-deadline:
			t.Fatalf("waited too long until: %s; so far: %v", what, all)
		}
	}
}

// Eventually waits until the condition holds, and fails the test if that takes too long.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	Until(t, what, func() string {
		if holds() {
			return ""
		}
		return "it does not hold"
	})
}

// Until is Eventually for a condition that says what is wrong, "" when it holds.
func Until(t testing.TB, what string, wrong func() string) {
	t.Helper()
	for end := time.Now().Add(Patience); ; time.Sleep(5 * time.Millisecond) {
		switch trouble := wrong(); {
		case trouble == "":
			return
		case time.Now().After(end):
			t.Fatalf("waited too long until: %s: %s", what, trouble)
		}
	}
}

// Stdout and Stderr return what has been printed so far.
func (d *Daemon) Stdout() string { return d.stdout.String() }

// Stderr returns what has been logged so far.
func (d *Daemon) Stderr() string { return d.stderr.String() }

// Admin returns the URL of the admin API.
func (d *Daemon) Admin() string { return d.Find(`admin +(https?://[^/ ]+)/metrics`) }

// Find returns the first group of the pattern in what has been printed.
func (d *Daemon) Find(pattern string) string {
	d.t.Helper()
	found := regexp.MustCompile(pattern).FindStringSubmatch(d.Stdout())
	if found == nil {
		d.t.Fatalf("no %s in:\n%s", pattern, d.Stdout())
	}
	return found[1]
}

// Get returns the status and body at a path of the admin API; status 0 if there is no answer.
func (d *Daemon) Get(path string) (status int, body string) {
	d.t.Helper()
	return Do(d.t, http.MethodGet, d.Admin()+path, "")
}

// fleetLabel is the label that every metric has.
var fleetLabel = regexp.MustCompile(`\{fleet="[^"]*"\}|fleet="[^"]*",|,fleet="[^"]*"`)

// Metrics is the page /metrics without the label fleet.
func (d *Daemon) Metrics() string {
	d.t.Helper()
	_, body := d.Get("/metrics")
	return fleetLabel.ReplaceAllString(body, "")
}

// Metric returns the value of a metric as it stands in /metrics, labels included but for fleet, ""
// if there is none.
func (d *Daemon) Metric(name string) string {
	d.t.Helper()
	for line := range strings.Lines(d.Metrics()) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// Do makes one HTTP request on a connection of its own, with headers of the form "Name: value".
// Status 0 is no answer.
func Do(t testing.TB, method, url, body string, headers ...string) (status int, answer string) {
	t.Helper()
	response, text, err := Fetch(t, http.DefaultClient, method, url, body, append(headers, "Connection: close")...)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, text
}

// Fetch makes one HTTP request by this client, with headers of the form "Name: value", and reads
// the whole answer.
func Fetch(t testing.TB, c *http.Client, method, url, body string, headers ...string) (*http.Response, string, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		request.Header.Add(name, value)
	}
	response, err := c.Do(request)
	if err != nil {
		return nil, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response, string(text), err
}

// HasNoSecret fails the test if a text that a command has printed holds the secret.
func HasNoSecret(t testing.TB, text, secret string) {
	t.Helper()
	if at := strings.Index(text, secret); at >= 0 {
		t.Errorf("a secret is told: …%s…", text[max(0, at-200):min(len(text), at+100)])
	}
}

// Run runs a command that ends by itself.
func Run(t testing.TB, command Command, env map[string]string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs Buffer
	// Should it start what it ought to refuse, it is told to stop.
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	status = command(ctx, args, func(name string) string { return env[name] }, &out, &errs)
	if ctx.Err() != nil {
		t.Errorf("%q did not end by itself", args)
	}
	return status, out.String(), errs.String()
}

// Ends returns a function that runs a command, which has to end with a status, with these words on
// stderr, on stdout if the status is 0, and nothing on the other one; and never with the secret.
func Ends(
	command Command, secret string,
) func(t *testing.T, env map[string]string, args []string, want int, words string) {
	return func(t *testing.T, env map[string]string, args []string, want int, words string) {
		t.Helper()
		status, told, other := Run(t, command, env, args...)
		if want != 0 {
			told, other = other, told
		}
		if status != want || !strings.Contains(told, words) || other != "" {
			t.Errorf("%q %v: status %d, want %d and %q in\n%s\nbeside %q", args, env, status, want, words, told, other)
		}
		HasNoSecret(t, told, secret)
	}
}

// Buffer is a bytes.Buffer for several goroutines: a program writes to it while a test reads.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// String returns what has been written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// Await waits until a pattern is in the buffer so many times, in upper or lower case.
func (b *Buffer) Await(t testing.TB, pattern string, times int) {
	t.Helper()
	want := regexp.MustCompile("(?i)" + pattern)
	Until(t, fmt.Sprintf("%q is there %d times", pattern, times), func() string {
		if text := b.String(); len(want.FindAllString(text, times)) < times {
			return "\n" + text
		}
		return ""
	})
}

// Logger logs into the buffer.
func (b *Buffer) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }
