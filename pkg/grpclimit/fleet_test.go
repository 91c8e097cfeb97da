package grpclimit_test

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/offpath-io/offpath"
	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/fleettest"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/grpclimit"
	"github.com/offpath-io/offpath/pkg/identity"
)

// TestFleet: two servers of a fleet share limits by user and by address.
func TestFleet(t *testing.T) {
	bus := fleettest.Start(t).URL()
	start := func() (grpc_health_v1.HealthClient, *check.Checker) {
		participant, err := offpath.Start(t.Context(), offpath.Options{NATS: bus, Rules: `
rules:
  - {name: per-user, key: [user], limit: 2/day}
  - {name: per-ip, key: [ip], limit: 4/day}`})
		daemontest.Must(t, err)
		t.Cleanup(func() { daemontest.Must(t, participant.Close()) })
		limit, err := grpclimit.New(participant.Checker(), grpclimit.Options{User: userOf})
		daemontest.Must(t, err)
		client, end := startHealth(grpc.NewServer(grpc.ChainUnaryInterceptor(limit.Unary())))
		t.Cleanup(end)
		return client, participant.Checker()
	}
	first, _ := start()
	second, checker := start()
	expect := func(client grpc_health_v1.HealthClient, user string, want ...codes.Code) {
		t.Helper()
		ctx := metadata.AppendToOutgoingContext(context.Background(), "x-user", user)
		for i, code := range want {
			if _, err := client.Check(ctx, new(grpc_health_v1.HealthCheckRequest)); status.Code(err) != code {
				t.Errorf("call %d of %s: %v, want %v", i, user, err, code)
			}
		}
	}
	hears := func(attribute, value string) {
		t.Helper()
		daemontest.Eventually(t, "the other server knows that "+value+" is over the limit", func() bool {
			return !checker.Do(check.Request{
				Mode: check.Peek, Attributes: identity.Attributes{{Name: attribute, Value: value}},
			}).Allowed
		})
	}
	expect(first, "kristie", codes.OK, codes.OK, codes.ResourceExhausted)
	hears("user", "kristie")
	expect(second, "kristie", codes.ResourceExhausted)
	expect(first, "leo", codes.OK, codes.OK, codes.ResourceExhausted)
	hears("ip", "127.0.0.1")
	expect(second, "somebody", codes.ResourceExhausted)
}
