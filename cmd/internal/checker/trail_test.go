package checker

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/offpath-io/offpath/cmd/internal/decisionlog"
	"github.com/offpath-io/offpath/internal/natsconn"
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
	bus, err := natsbus.NewWorker(serverstest.Connect(t, url), natsconn.DefaultNamespace)
	must(t, err)
	o.Bus = bus
	if o.Store == nil {
		o.Store = memstore.New()
	}
	worker, err := aggregate.New(o)
	must(t, err)
	daemontest.Background(t, worker.Run)
}

// entriesIn reads a decision log, and skips lines that are no JSON.
func entriesIn(t *testing.T, text string) (entries []decisionlog.Entry) {
	t.Helper()
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "{") {
			continue
		}
		var e decisionlog.Entry
		must(t, json.Unmarshal([]byte(line), &e))
		entries = append(entries, e)
	}
	return entries
}

// stored returns all that is in the decision log's stream, "" if there is none.
func stored(t *testing.T, url string) string {
	t.Helper()
	stream, err := serverstest.JetStreamOf(t, serverstest.Connect(t, url)).Stream(t.Context(), "offpath-denied")
	if err != nil {
		return ""
	}
	var all strings.Builder
	for i := range stream.CachedInfo().State.Msgs {
		m, err := stream.GetMsg(t.Context(), i+1)
		must(t, err)
		all.Write(m.Data)
	}
	return all.String()
}

// TestDecisionLog: every request that was turned away until the stop is in the log and in the
// stream, under its rule and key, or the key's hash. It is nowhere unless it is asked for.
func TestDecisionLog(t *testing.T) {
	server, secret := serverstest.JetStream(t), writeFile(t, "a secret of enough bytes")
	startWorker(t, server.URL(), aggregate.Options{})
	hasher, err := identity.ReadHasher(secret)
	must(t, err)
	streamed := 0 // entries of the daemon before
	for _, tt := range []struct {
		args   []string
		logged bool
		hash   func(string) string
	}{
		{nil, false, nil},
		{[]string{"--decision-log", "log,nats"}, true, func(key string) string { return key }},
		{[]string{"--decision-log", "log,nats", "--key-hash", secret}, true, hasher.Hash},
	} {
		hashed := len(tt.args) > 2
		d := startChecker(t, append(tt.args, "--nats", server.URL(), "--rules", writeFile(t, daily(3)), "--grpc", "none")...)
		if strings.Contains(d.Stdout(), "gRPC") {
			t.Errorf("there is no gRPC API: %s", d.Stdout())
		}
		began, denied := time.Now(), map[string]int64{}
		for range 20 {
			for _, user := range []string{"ann", "bob"} {
				if status, a := ask(t, d, `{"attributes":{"user":"`+user+`"}}`); status == 429 && tt.logged {
					denied[tt.hash(user)]++
				} else if status != 200 && status != 429 {
					t.Fatalf("%d %+v", status, a)
				}
			}
		}
		dropped := `offpath_decision_log_denials_total{outcome="dropped",to="nats"} 0`
		body := d.Metrics()
		if tt.logged != strings.Contains(body, dropped) || tt.logged != strings.Contains(body, "decision_log") {
			t.Errorf("%v: metrics:\n%s", tt.args, body)
		}
		d.MustStop()
		stream := entriesIn(t, stored(t, server.URL()))
		for where, list := range map[string][]decisionlog.Entry{"log": entriesIn(t, d.Stderr()), "stream": stream[streamed:]} {
			got := map[string]int64{}
			for _, e := range list {
				got[e.Key] += e.Count
				if e.Rule != "per-user" || e.Limit != 3 || e.Checker == "" || e.Hashed != hashed ||
					e.Time.Before(began) || e.Until.Before(e.Time) || e.Until.After(time.Now()) {
					t.Errorf("%v: %s: %+v", tt.args, where, e)
				}
			}
			if !maps.Equal(got, denied) || tt.logged != (len(got) == 2) {
				t.Errorf("%v: %s: %v, want %v", tt.args, where, got, denied)
			}
		}
		streamed = len(stream)
	}
}
