package envoylimit

import (
	"fmt"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/offpath-io/offpath/internal/testing/alloctest"
)

const benchRules = `
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 4000000000}
  - key: path
    rate_limit: {unit: hour, requests_per_unit: 4000000000}
  - key: full
    rate_limit: {unit: year, requests_per_unit: 1}
`

// An answer is made in one piece, or in three if it has several statuses; nothing else is
// allocated.
func TestAllocations(t *testing.T) {
	service := New(newChecker(t, benchRules), Options{})
	for most, r := range map[float64]*ratelimitv3.RateLimitRequest{
		1: request("shop", 1, newDescriptor("user=kristie")),
		3: request("shop", 1, newDescriptor("user=kristie"), newDescriptor("path=/v1/create"), newDescriptor("path=/v1/read")),
	} {
		alloctest.AtMost(t, most, fmt.Sprint(len(r.Descriptors), " descriptors"), func() {
			if _, err := service.ShouldRateLimit(t.Context(), r); err != nil {
				t.Error(err)
			}
		})
	}
}

// BenchmarkShouldRateLimit is the service alone, without gRPC. BenchmarkAPIs of loadtest/peers is
// over a socket.
func BenchmarkShouldRateLimit(b *testing.B) {
	service := New(newChecker(b, benchRules), Options{})
	for name, r := range map[string]*ratelimitv3.RateLimitRequest{
		"one":    request("shop", 1, newDescriptor("user=kristie")),
		"denied": request("shop", 1, newDescriptor("full=x")), // but the first
		"three":  request("shop", 1, newDescriptor("user=kristie"), newDescriptor("path=/v1/create"), newDescriptor("path=/v1/read")),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := service.ShouldRateLimit(b.Context(), r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
