package main

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
)

// TestConsoleNeedsToken: without a token nobody changes anything, none is printed; and a console
// that somebody looks at stops in order.
func TestConsoleNeedsToken(t *testing.T) {
	const token = canary + "-token-that-nobody-guesses"
	nats, redis := serverstest.JetStream(t), serverstest.Redis(t)
	post := func(d *daemontest.Daemon, path, token string, status int, words string) {
		t.Helper()
		got, text := daemontest.Do(t, "POST", d.Admin()+path, `{"rule":"r","key":"k","seconds":60}`,
			"Content-Type: application/json", "Authorization: Bearer "+token)
		if got != status || !strings.Contains(text, words) || strings.Contains(text, canary) {
			t.Errorf("%s with token %q: %d %s", path, token, got, text)
		}
	}
	readOnly := startAggregator(t, nats, redis)
	post(readOnly, "/api/block", token, 403, "without a token")
	if status, text := daemontest.Do(t, "GET", readOnly.Admin()+"/metrics", "", "Origin: https://evil.example"); status != 403 || !strings.Contains(text, "--allow-origin") {
		t.Errorf("/metrics for a page of another site: %d %.100s", status, text)
	}
	d := daemontest.StartIn(t, run, map[string]string{"OFFPATH_CONSOLE_TOKEN": token},
		"--nats", nats.URL(), "--redis", redis.URL(), "--admin", "127.0.0.1:0")
	for _, wrong := range []string{"", "wrong", token + "x", token[:16]} {
		post(d, "/api/block", wrong, 401, "token")
	}
	post(d, "/api/token", token, 200, "operator")
	if _, view := d.Get("/api/view"); !strings.Contains(view, `"blocks":[]`) {
		t.Errorf("something was blocked: %s", view)
	}
	page, err := http.Get(d.Admin() + "/api/stream")
	must(t, err)
	defer page.Body.Close()
	_, err = io.ReadFull(page.Body, make([]byte, 100))
	must(t, err)
	if status := d.Stop(); status != 0 || strings.Contains(d.Stderr(), "cut off") {
		t.Errorf("status %d\n%s", status, d.Stderr())
	}
	if _, err := io.Copy(io.Discard, page.Body); err != nil {
		t.Errorf("the page was cut off: %v", err)
	}
	daemontest.HasNoSecret(t, d.Stdout()+d.Stderr(), canary)
}
