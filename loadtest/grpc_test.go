package main

import (
	"encoding/json"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/offpath-io/offpath/loadtest/httpload"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/envoylimit"
	"github.com/offpath-io/offpath/pkg/rules"
)

// TestGRPC: against a checker, as it answers Envoy.
func TestGRPC(t *testing.T) {
	set, err := rules.Parse([]byte(`rules: [{name: r, match: {domain: shop}, key: [who], limit: 10/day, algorithm: fixed_window}]`))
	if err != nil {
		t.Fatal(err)
	}
	checker, err := check.New(check.Options{Rules: set})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	envoylimit.Register(server, envoylimit.New(checker, envoylimit.Options{}))
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	load := []string{"http", "--grpc", listener.Addr().String(), "--rate", "500", "--duration", "400ms", "--warmup", "0s", "--keys", "2"}
	status, stdout, stderr := invoke(t.Context(), append(load, "--domain", "shop", "--descriptor", "who=w{key},x=", "--json", "-")...)
	var r httpload.Result
	if err := json.Unmarshal([]byte(stdout), &r); err != nil || status != 0 {
		t.Fatalf("status %d, error %v: %s", status, err, stderr)
	}
	if r.Sent != 200 || r.OK200 != 2*10-1 || r.Limited429 != 181 || r.Options.URL != "" || r.Options.Channels != 1 { // one was the probe's
		t.Errorf("got %+v", r)
	}
	status, stdout, stderr = invoke(t.Context(), load...) // a domain without rules
	if status != 0 || !strings.Contains(stdout, "ShouldRateLimit at "+listener.Addr().String()+", of domain loadtest; channels: 1\n") ||
		!strings.Contains(stdout, "OVER_LIMIT           0") {
		t.Errorf("status %d, %s%s", status, stdout, stderr)
	}
	for args, want := range map[string]string{
		"--url http://127.0.0.1:1/v1/check": "url and grpc: want either",
		"--rule r":                          "rule and attributes are for url",
	} {
		if status, _, stderr := invoke(t.Context(), append(load, strings.Fields(args)...)...); status != 1 || !strings.Contains(stderr, want) {
			t.Errorf("%s: status %d, %s", args, status, stderr)
		}
	}
	if status, _, stderr := invoke(t.Context(), "http", "--domain", "shop"); status != 1 || !strings.Contains(stderr, "are for grpc") {
		t.Errorf("without --grpc: status %d, %s", status, stderr)
	}
}
