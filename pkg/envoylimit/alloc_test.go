package envoylimit

import (
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// An answer is made in one piece, or in three if it has several statuses; nothing else is allocated.
func TestAllocations(t *testing.T) {
	service := New(newChecker(t, benchRules), Options{})
	for most, r := range map[float64]*ratelimitv3.RateLimitRequest{
		1: request("shop", 1, descriptor("user=kristie")),
		3: request("shop", 1, descriptor("user=kristie"), descriptor("path=/v1/create"), descriptor("path=/v1/read")),
	} {
		n := testing.AllocsPerRun(1000, func() {
			if _, err := service.ShouldRateLimit(t.Context(), r); err != nil {
				t.Error(err)
			}
		})
		// The race detector makes sync.Pool forget at random; make test runs this once without it.
		if n > most && !raceDetector {
			t.Errorf("%d descriptors: %v allocations, want at most %v", len(r.Descriptors), n, most)
		}
	}
}
