package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/offpath-io/offpath/cmd/internal/decisionlog"
	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
	"github.com/offpath-io/offpath/pkg/events/natsbus"
	"github.com/offpath-io/offpath/pkg/identity"
)

// startWorker runs an aggregator that counts in memory, until the test is over.
func startWorker(t *testing.T, url string, o aggregate.Options) {
	t.Helper()
	conn, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	bus, err := natsbus.NewWorker(conn, defaultNamespace)
	if err != nil {
		t.Fatal(err)
	}
	o.Bus = bus
	if o.Store == nil {
		o.Store = memstore.New()
	}
	worker, err := aggregate.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		conn.Close()
	})
}

// entriesIn reads a decision log, and skips lines that are no JSON.
func entriesIn(t *testing.T, text string) (entries []decisionlog.Entry) {
	t.Helper()
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "{") {
			continue
		}
		var e decisionlog.Entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		entries = append(entries, e)
	}
	return entries
}

// stored returns all that is in the stream.
func stored(t *testing.T, url string) string {
	t.Helper()
	conn, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), "offpath-denied")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for i := range stream.CachedInfo().State.Msgs {
		m, err := stream.GetMsg(t.Context(), i+1)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(m.Data)
	}
	return all.String()
}

// TestDecisionLog: every request that was turned away is in the log and in the stream, under its rule and key, or the key's
// hash; until the last one before the stop.
func TestDecisionLog(t *testing.T) {
	for _, hashed := range []bool{false, true} {
		t.Run(fmt.Sprint("hashed=", hashed), func(t *testing.T) {
			server, rules := serverstest.JetStream(t), writeFile(t, daily(3))
			startWorker(t, server.URL(), aggregate.Options{})
			args := []string{"--nats", server.URL(), "--rules", rules, "--listen", "127.0.0.1:0", "--grpc", "none", "--admin", "127.0.0.1:0",
				"--decision-log", "log,nats"}
			hash := func(key string) string { return key }
			if hashed {
				secret := writeFile(t, "a secret of enough bytes")
				h, err := identity.ReadHasher(secret)
				if err != nil {
					t.Fatal(err)
				}
				hash, args = h.Hash, append(args, "--key-hash", secret)
			}
			d := daemontest.Start(t, run, args...)
			began := time.Now()
			denied := map[string]int64{}
			for i := range 40 {
				user := fmt.Sprint("user", i%2)
				switch status, answer := daemontest.Do(t, "POST", d.Find(`HTTP door +(http://\S+)`), fmt.Sprintf(`{"attributes":{"user":%q}}`, user)); status {
				case 429:
					denied[hash(user)]++
				case 200:
				default:
					t.Fatalf("%d %s", status, answer)
				}
			}
			if d.Metric(`offpath_decision_log_denials_total{outcome="dropped",to="nats"}`) != "0" {
				t.Error("no metric of what was dropped")
			}
			if status := d.Stop(); status != 0 {
				t.Fatalf("status %d, stderr:\n%s", status, d.Stderr())
			}
			for where, text := range map[string]string{"log": d.Stderr(), "stream": stored(t, server.URL())} {
				got := map[string]int64{}
				for _, e := range entriesIn(t, text) {
					got[e.Key] += e.Count
					if e.Rule != "per-user" || e.Limit != 3 || e.Checker == "" || e.Hashed != hashed ||
						e.Time.Before(began) || e.Until.Before(e.Time) || e.Until.After(time.Now()) {
						t.Errorf("%s: %+v", where, e)
					}
				}
				if fmt.Sprint(got) != fmt.Sprint(denied) || len(got) != 2 {
					t.Errorf("%s: %v, want %v", where, got, denied)
				}
			}
		})
	}
}

// TestNoDecisionLog: nobody who has not asked for it has one.
func TestNoDecisionLog(t *testing.T) {
	server := serverstest.JetStream(t)
	startWorker(t, server.URL(), aggregate.Options{})
	d := daemontest.Start(t, run, "--nats", server.URL(), "--rules", writeFile(t, daily(1)), "--listen", "127.0.0.1:0", "--grpc", "none", "--admin", "127.0.0.1:0")
	for range 3 {
		daemontest.Do(t, "POST", d.Find(`HTTP door +(http://\S+)`), `{"attributes":{"user":"kristie"}}`)
	}
	if _, body := d.Get("/metrics"); strings.Contains(body, "decision_log") {
		t.Error("it has metrics of it")
	}
	if status := d.Stop(); status != 0 {
		t.Errorf("status %d, stderr:\n%s", status, d.Stderr())
	}
	if entries := entriesIn(t, d.Stderr()); len(entries) > 0 {
		t.Errorf("%+v", entries)
	}
}

func TestReadLogTo(t *testing.T) {
	for text, ok := range map[string]bool{"none": true, "log": true, "nats": true, "log,nats": true, "nats,log": true,
		"": false, "none,log": false, "log,log": false, "file": false} {
		if _, err := readLogTo(text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}
