package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/offpath-io/offpath/cmd/internal/daemon"
	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/rules"
)

// quietLog is for what nobody reads.
var quietLog = slog.New(slog.DiscardHandler)

// emptyLiving is a checker that reports to nobody, and its doors, before there are rules.
func emptyLiving(t *testing.T) *living {
	t.Helper()
	c := readConfig(t, nil)
	return newLiving(quietLog,
		func(set *rules.Set, revision uint64) (*check.Checker, error) {
			return check.New(check.Options{Rules: set, Revision: revision, MaxIdleKeys: 1000})
		},
		func(checker *check.Checker) (doors, error) { return newDoors(c, checker, nil, quietLog) })
}

// livingWith is one with these rules.
func livingWith(t *testing.T, text string) *living {
	t.Helper()
	l := emptyLiving(t)
	must(t, l.offer(1, 1, []byte(text)))
	return l
}

// TestLeavingIsAnnounced: a checker that leaves says so at both places where balancers look, and still answers, asking clients
// to go elsewhere.
func TestLeavingIsAnnounced(t *testing.T) {
	living, leaving := livingWith(t, daily(1000)), daemon.NewLeaving(0)
	link, err := newLifeline(func() (*nats.Conn, error) {
		return nats.Connect("nats://127.0.0.1:1", nats.RetryOnFailedConnect(true))
	}, defaultNamespace, "c", quietLog)
	must(t, err)
	defer link.close()
	var at [2]net.Listener
	for i := range at {
		if at[i], err = daemon.Listen("127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	parts := append(grpcDoor(config{}, at[1], living, prometheus.NewRegistry(), leaving, quietLog),
		leaving.HTTP("HTTP door", at[0], living, quietLog))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- daemon.Run(ctx, quietLog, parts...) }()

	conn := daemontest.DialGRPC(t, at[1].Addr().String())
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
		_, s := readiness(living, link, leaving)()
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
	must(t, leaving.Part(quietLog).Run(told))
	readyz(`{"ready":false,"leaving":true,`)
	if !asksToGo() {
		t.Error("it does not ask clients to go")
	}
	equal(t, "gRPC health", healthOf(t.Context(), conn, ""), "NOT_SERVING")
	client.CloseIdleConnections()
	stop()
	must(t, <-ended)
}
