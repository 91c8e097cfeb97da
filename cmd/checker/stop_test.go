package main

import (
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
)

// TestStopDelay: who has been told to stop says so first, at both places where balancers look, and still answers, asking clients
// to go elsewhere.
func TestStopDelay(t *testing.T) {
	d := daemontest.Start(t, run, "--rules", writeFile(t, daily(1000)), "--stop-delay", "3s",
		"--listen", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--admin", "127.0.0.1:0")
	conn, err := grpc.NewClient(d.Find(`gRPC door +([0-9.:]+)`), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	health := func() grpc_health_v1.HealthCheckResponse_ServingStatus {
		answer, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
		if err != nil {
			t.Error(err)
		}
		return answer.GetStatus()
	}
	door := d.Find(`HTTP door +(http://\S+)`)
	asksToGo := func() bool {
		response, err := http.Post(door, "application/json", strings.NewReader(`{"attributes":{"user":"kristie"}}`))
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Errorf("status %d", response.StatusCode)
		}
		return response.Close
	}
	d.Await("it serves", func() bool { return health() == grpc_health_v1.HealthCheckResponse_SERVING })
	if asksToGo() {
		t.Error("it sends clients away unasked")
	}
	ended := make(chan int)
	go func() { ended <- d.Stop() }()
	d.Await("it says that it leaves", func() bool {
		status, body := d.Get("/readyz")
		return status == http.StatusServiceUnavailable && strings.HasPrefix(body, `{"ready":false,"leaving":true,`)
	})
	if got := health(); got != grpc_health_v1.HealthCheckResponse_NOT_SERVING {
		t.Errorf("gRPC health: %v", got)
	}
	if !asksToGo() {
		t.Error("it does not ask clients to go")
	}
	if status := <-ended; status != 0 {
		t.Errorf("status %d, stderr:\n%s", status, d.Stderr())
	}
}
