package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/pkg/rules/natssource"
)

const kristie = `{"attributes":{"user":"kristie"}}`

// daily is a set of one rule.
func daily(limit int) string {
	return fmt.Sprintf("rules:\n  - name: per-user\n    key: [user]\n    limit: %d/day\n", limit)
}

// changes is a way to change a running checker's rules.
type changes func(text string)

// inFile replaces a file by renaming another over it.
func inFile(t *testing.T, path string) changes {
	return func(text string) {
		t.Helper()
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
}

// inBucket writes the bucket of the NATS at url, whatever it holds.
func inBucket(t *testing.T, url string) changes {
	t.Helper()
	conn, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	bucket, err := natssource.New(conn, "offpath", natssource.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return func(text string) {
		t.Helper()
		there, _ := bucket.Get(t.Context())
		if _, err := bucket.Put(t.Context(), []byte(text), there.Revision); err != nil {
			t.Fatal(err)
		}
	}
}

// loads waits until so many sets have come into force.
func loads(t *testing.T, d *daemontest.Daemon, n int) {
	t.Helper()
	d.Await(fmt.Sprintf("%d sets have come into force", n), func() bool {
		return d.Metric(`offpath_rules_loads_total{outcome="loaded"}`) == fmt.Sprint(n)
	})
}

func readyz(t *testing.T, d *daemontest.Daemon, status int, words string) {
	t.Helper()
	if got, body := d.Get("/readyz"); got != status || !strings.Contains(body, words) {
		t.Errorf("readyz: %d %s, want %d and %q", got, body, status, words)
	}
}

// TestRulesChangeWhileItRuns, by either source and by the demo's: lower and higher limits, and sets that are refused.
func TestRulesChangeWhileItRuns(t *testing.T) {
	sources := map[string]func(t *testing.T) (*daemontest.Daemon, changes){
		"file": func(t *testing.T) (*daemontest.Daemon, changes) {
			path := writeFile(t, daily(100))
			return start1(t, "--rules", path), inFile(t, path)
		},
		"bucket": func(t *testing.T) (*daemontest.Daemon, changes) {
			url := serverstest.JetStream(t).URL()
			change := inBucket(t, url)
			change(daily(100))
			return start1(t, "--rules", "nats", "--nats", url), change
		},
		"embedded": func(t *testing.T) (*daemontest.Daemon, changes) {
			d := start1(t)
			loads(t, d, 1) // a start does not wait for the demo's for ever, and a watch tells the newest alone
			change := inBucket(t, d.Find(`NATS +(nats://\S+)`))
			change(daily(100))
			return d, change
		},
	}
	for name, begin := range sources {
		t.Run(name, func(t *testing.T) {
			d, change := begin(t)
			had := 1
			if name == "embedded" { // the demo's came first
				had = 2
			}
			loads(t, d, had)
			for i := range 10 {
				if status, a := ask(t, d, kristie); status != 200 || *a.Limit != 100 || *a.Remaining != int64(99-i) {
					t.Fatalf("request %d: %d %+v", i, status, a)
				}
			}
			readyz(t, d, 200, `"rules":"revision `)

			change(daily(5))
			loads(t, d, had+1)
			if status, a := ask(t, d, kristie); status != 429 || *a.Limit != 5 {
				t.Errorf("after a lower limit: %d %+v", status, a)
			}
			change(daily(12))
			loads(t, d, had+2)
			for i := range 3 { // counts have stayed, and who was blocked is free at once
				if status, a := ask(t, d, kristie); (status == 200) != (i < 2) || *a.Limit != 12 {
					t.Errorf("after a higher limit, request %d: %d %+v", i+1, status, a)
				}
			}

			change(strings.Replace(daily(1000), "key:", "keys:", 1))
			d.Await("it says what it refuses", func() bool {
				_, body := d.Get("/readyz")
				return strings.Contains(body, "refused: line 3, column 5: unknown field")
			})
			readyz(t, d, 200, `"ready":true`)
			if got := d.Metric(`offpath_rules_refused`); got != "1" {
				t.Errorf("rules_refused %s", got)
			}
			if !strings.Contains(d.Stderr(), "rules refused: the one before stays in force") {
				t.Errorf("it does not log what it refuses:\n%s", d.Stderr())
			}
			if status, a := ask(t, d, kristie); status != 429 || *a.Limit != 12 {
				t.Errorf("after a bad set: %d %+v", status, a)
			}
			if status, _ := ask(t, d, `{"attributes":{"user":"someone else"}}`); status != 200 {
				t.Errorf("after a bad set: %d", status)
			}

			change(daily(1000))
			loads(t, d, had+3)
			if got := d.Metric(`offpath_rules_refused`); got != "0" {
				t.Errorf("rules_refused %s", got)
			}
			if status, a := ask(t, d, kristie); status != 200 || *a.Limit != 1000 {
				t.Errorf("at last: %d %+v", status, a)
			}
		})
	}
}

// TestRulesAreWaitedFor: a fleet member whose bucket is not there yet is not ready, decides nothing, and begins with the
// first good set.
func TestRulesAreWaitedFor(t *testing.T) {
	server := serverstest.JetStream(t)
	d := start1(t, "--rules", "nats", "--nats", server.URL())
	if !strings.Contains(d.Stdout(), "none yet") {
		t.Errorf("it says nothing of it:\n%s", d.Stdout())
	}
	d.Await("it says what it waits for", func() bool { // a start does not
		status, body := d.Get("/readyz")
		return status == 503 && strings.Contains(body, "the bucket does not exist yet")
	})
	if status, body := daemontest.Do(t, "POST", doorOf(d), kristie); status != 503 || !strings.Contains(body, "no rules yet") {
		t.Errorf("%d %s", status, body)
	}
	for metric, want := range map[string]string{
		"offpath_rules": "0", "offpath_rules_revision": "0", "offpath_rules_loaded_timestamp_seconds": "", "offpath_rules_source_up": "0",
	} {
		if got := d.Metric(metric); got != want {
			t.Errorf("%s is %q, want %q", metric, got, want)
		}
	}
	change := inBucket(t, server.URL())
	change("rules: []")
	d.Await("it says what it refuses", func() bool {
		_, body := d.Get("/readyz")
		return strings.Contains(body, "none yet, refused: line 1, column 8: rules: there are no rules")
	})
	readyz(t, d, 503, `"ready":false`)
	change(daily(3))
	loads(t, d, 1)
	readyz(t, d, 200, `"rules":"revision 2"`)
	for i := range 4 {
		if status, a := ask(t, d, kristie); (status == 200) != (i < 3) {
			t.Errorf("request %d: %d %+v", i+1, status, a)
		}
	}

	// Everything goes: the rules stay.
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	if status, _ := ask(t, d, `{"attributes":{"user":"someone else"}}`); status != 200 {
		t.Errorf("without NATS: %d", status)
	}
	readyz(t, d, 200, `"rules":"revision 2`)
	if status := d.Stop(); status != 1 || !strings.Contains(d.Stderr(), "left unreported") { // nobody counts
		t.Errorf("status %d; stderr:\n%s", status, d.Stderr())
	}
}

// TestStopWithoutRules: a checker that never had any stops as any other.
func TestStopWithoutRules(t *testing.T) {
	d := start1(t, "--rules", "nats", "--nats", serverstest.JetStream(t).URL())
	if status := d.Stop(); status != 0 {
		t.Errorf("status %d; stderr:\n%s", status, d.Stderr())
	}
}

// TestTheRevisionGoesBack: a bucket that was lost begins again at 1, and its new set comes into force all the same.
func TestTheRevisionGoesBack(t *testing.T) {
	server := serverstest.JetStream(t)
	change := inBucket(t, server.URL())
	change(daily(1))
	change(daily(2))
	d := start1(t, "--rules", "nats", "--nats", server.URL())
	loads(t, d, 1)
	if err := server.Stop(); err != nil { // with all that it has kept
		t.Fatal(err)
	}
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	inBucket(t, server.URL())(daily(7))
	loads(t, d, 2)
	readyz(t, d, 200, `"rules":"revision 1"`)
	if status, a := ask(t, d, kristie); status != 200 || *a.Limit != 7 {
		t.Errorf("%d %+v", status, a)
	}
}

// TestTheFileGoes: the rules stay, and those of an older file that comes in its place come into force.
func TestTheFileGoes(t *testing.T) {
	path := writeFile(t, daily(5))
	d := start1(t, "--rules", path)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	d.Await("it says that the file is gone", func() bool { return d.Metric("offpath_rules_source_up") == "0" })
	readyz(t, d, 200, "no such file")
	if status, a := ask(t, d, kristie); status != 200 || *a.Limit != 5 {
		t.Errorf("%d %+v", status, a)
	}
	older := filepath.Join(t.TempDir(), "older.yaml")
	if err := os.WriteFile(older, []byte(daily(6)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(older, time.Time{}, time.Unix(1_000_000_000, 0)); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(older, path); err != nil {
		t.Fatal(err)
	}
	loads(t, d, 2)
	readyz(t, d, 200, `"rules":"revision 1000000000000"`)
	if status, a := ask(t, d, kristie); status != 200 || *a.Limit != 6 {
		t.Errorf("%d %+v", status, a)
	}
}

// TestEmbeddedJetStreamLeavesNothing behind.
func TestEmbeddedJetStreamLeavesNothing(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	d := start1(t)
	loads(t, d, 1)
	if found, _ := filepath.Glob(filepath.Join(temp, "offpath-embedded-*")); len(found) != 1 {
		t.Errorf("its files are in %q", found)
	}
	if status := d.Stop(); status != 0 || strings.Contains(d.Stderr(), "level=WARN") {
		t.Errorf("status %d; stderr:\n%s", status, d.Stderr())
	}
	if left, _ := os.ReadDir(temp); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
