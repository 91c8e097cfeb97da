package checker

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/offpath-io/offpath/cmd/internal/admin"
	"github.com/offpath-io/offpath/cmd/internal/daemon"
	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/grpctest"
	"github.com/offpath-io/offpath/internal/testing/rulestest"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/internal/tlsfiles"
	"github.com/offpath-io/offpath/internal/version"
	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/check"
)

// quietLog is for what nobody reads.
var quietLog = slog.New(slog.DiscardHandler)

// adaptersFor serve by these rules, without a fleet.
func adaptersFor(t *testing.T, text string) *adapters {
	t.Helper()
	c := readConfig(t, nil)
	checker, err := check.New(check.Options{Rules: rulestest.Parse(t, text), MaxIdleKeys: 1000})
	must(t, err)
	a := &adapters{made: make(chan struct{})}
	must(t, a.begin(c, checker, nil, quietLog))
	return a
}

// quietProcess is a daemon that has begun to decide by a file of rules, as a participant in a
// fleet.
func quietProcess(t *testing.T, text string) *process {
	t.Helper()
	url := serverstest.NATS(t).URL()
	startWorker(t, url, aggregate.Options{})
	c := readConfig(t, nil, "--nats", url, "--rules", writeFile(t, text), "--max-idle-keys", "1000")
	p := &process{
		config: c, log: quietLog, files: tlsfiles.New(quietLog), registry: admin.NewRegistry(version.Get(), c.namespace),
		leaving: daemon.NewLeaving(0), adapters: adapters{made: make(chan struct{})},
	}
	p.requests = admin.NewRequests(p.registry)
	t.Cleanup(p.close)
	must(t, p.findFleet(t.Context()))
	must(t, p.join(t.Context()))
	return p
}

// TestLeavingIsAnnounced: a checker that leaves says so at both places where balancers look, and
// still answers, asking clients to go elsewhere.
func TestLeavingIsAnnounced(t *testing.T) {
	p := quietProcess(t, daily(1000))
	var at [2]net.Listener
	for i := range at {
		listener, err := daemon.Listen("127.0.0.1:0")
		must(t, err)
		at[i] = listener
	}
	p.listeners = listeners{http: at[0], grpc: at[1]}
	parts := append(p.grpcParts(), p.httpPart())
	stop := daemontest.Background(t, func(ctx context.Context) error { return daemon.Run(ctx, quietLog, parts...) })

	conn := grpctest.Dial(t, at[1].Addr().String())
	client := &http.Client{Transport: new(http.Transport)}
	asksToGo := func() bool {
		response, err := client.Post(daemon.URL(at[0])+"/v1/check", "application/json", strings.NewReader(kristie))
		must(t, err)
		defer response.Body.Close()
		equal(t, "status", response.StatusCode, http.StatusOK)
		return response.Close
	}
	readyz := func(want string) {
		t.Helper()
		_, s := p.readiness()
		if text, err := json.Marshal(s); err != nil || !strings.HasPrefix(string(text), want) {
			t.Errorf("readyz: %s, %v; want %s", text, err, want)
		}
	}

	daemontest.Eventually(t, "it serves", func() bool { return healthOf(t.Context(), conn, "") == "SERVING" })
	readyz(`{"ready":true,"nats":`)
	if asksToGo() {
		t.Error("it sends clients away unasked")
	}
	told, tell := context.WithCancel(t.Context())
	tell()
	must(t, p.leaving.Part(quietLog).Run(told))
	readyz(`{"ready":false,"leaving":true,`)
	if !asksToGo() {
		t.Error("it does not ask clients to go")
	}
	equal(t, "gRPC health", healthOf(t.Context(), conn, ""), "NOT_SERVING")
	client.CloseIdleConnections()
	stop()
}
