package envoylimit

import (
	"fmt"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/offpath-io/offpath/internal/testing/alloctest"
)

// An answer is made in one piece, or in three if it has several statuses; nothing else is allocated.
func TestAllocations(t *testing.T) {
	service := New(newChecker(t, benchRules), Options{})
	for most, r := range map[float64]*ratelimitv3.RateLimitRequest{
		1: request("shop", 1, descriptor("user=kristie")),
		3: request("shop", 1, descriptor("user=kristie"), descriptor("path=/v1/create"), descriptor("path=/v1/read")),
	} {
		alloctest.AtMost(t, most, fmt.Sprint(len(r.Descriptors), " descriptors"), func() {
			if _, err := service.ShouldRateLimit(t.Context(), r); err != nil {
				t.Error(err)
			}
		})
	}
}
