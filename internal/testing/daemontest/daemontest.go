// Package daemontest runs a command's run function within a test, as main would run it.
package daemontest

import (
	"bytes"
	"context"
	"io"
	"net/http"
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

// Start starts the command and returns once it has printed where its admin door is. It is stopped
// when the test ends.
func Start(t testing.TB, command Command, args ...string) *Daemon {
	t.Helper()
	return StartIn(t, command, nil, args...)
}

// StartIn is Start with these environment variables.
func StartIn(t testing.TB, command Command, env map[string]string, args ...string) *Daemon {
	t.Helper()
	d := launch(t, command, env, args...)
	d.Await("it says where it is", func() bool { return strings.Contains(d.Stdout(), "/readyz\n") })
	return d
}

// Launch is Start for a command that may not come that far.
func Launch(t testing.TB, command Command, args ...string) *Daemon {
	t.Helper()
	return launch(t, command, nil, args...)
}

func launch(t testing.TB, command Command, env map[string]string, args ...string) *Daemon {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	d := &Daemon{t: t, stop: stop, ended: make(chan struct{})}
	go func() {
		defer close(d.ended)
		d.status = command(ctx, args, func(name string) string { return env[name] }, &d.stdout, &d.stderr)
	}()
	t.Cleanup(func() { d.Stop() })
	return d
}

// Stop tells the command to stop, as a signal does, and returns its exit status.
func (d *Daemon) Stop() int {
	d.stop()
	return d.Wait()
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

// Stdout and Stderr return what has been printed so far.
func (d *Daemon) Stdout() string { return d.stdout.String() }

// Stderr returns what has been logged so far.
func (d *Daemon) Stderr() string { return d.stderr.String() }

// Admin returns the URL of the admin door.
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

// Get returns the status and body at a path of the admin door; status 0 if there is no answer.
func (d *Daemon) Get(path string) (status int, body string) {
	d.t.Helper()
	return Do(d.t, http.MethodGet, d.Admin()+path, "")
}

// Metric returns the value of a metric as it stands in /metrics, labels included, "" if there is
// none.
func (d *Daemon) Metric(name string) string {
	d.t.Helper()
	_, body := d.Get("/metrics")
	for line := range strings.Lines(body) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// Do makes one HTTP request on a connection of its own.
func Do(t testing.TB, method, url, body string) (status int, answer string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(text)
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
