package envoylimit

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"

	"github.com/offpath-io/offpath/internal/testing/alloctest"
)

// constant is the bare server: it decodes the same message, and always answers the same.
type constant struct {
	ratelimitv3.UnimplementedRateLimitServiceServer
}

func (constant) ShouldRateLimit(context.Context, *ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
	return &ratelimitv3.RateLimitResponse{OverallCode: ok}, nil
}

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

// BenchmarkSocket asks over a socket, 64 at a time on 4 connections: the bare server, and this one for one descriptor,
// one that is denied, and three.
func BenchmarkSocket(b *testing.B) {
	for _, bench := range servers(b) {
		b.Run(bench.name, func(b *testing.B) {
			ask := load(b, bench.service, bench.request)
			b.ReportAllocs()
			b.ResetTimer()
			ask(b.N)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
		})
	}
}

// BenchmarkBesideBare asks the bare server and this one by turns, a thousand times each, and reports the median of how many
// times as many requests a second this one answers. On a busy machine take -benchtime 100x.
func BenchmarkBesideBare(b *testing.B) {
	all := servers(b)
	for _, pair := range [][2]int{{0, 1}, {0, 2}, {3, 4}} {
		b.Run(all[pair[1]].name, func(b *testing.B) {
			bare, this := load(b, all[pair[0]].service, all[pair[0]].request), load(b, all[pair[1]].service, all[pair[1]].request)
			bare(1000)
			this(1000)
			var ratios []float64
			for b.Loop() {
				begin := time.Now()
				bare(1000)
				middle := time.Now()
				this(1000)
				ratios = append(ratios, float64(middle.Sub(begin))/float64(time.Since(middle)))
			}
			slices.Sort(ratios)
			b.ReportMetric(ratios[len(ratios)/2], "of-bare")
		})
	}
}

type served struct {
	name    string
	service ratelimitv3.RateLimitServiceServer
	request *ratelimitv3.RateLimitRequest
}

func servers(b *testing.B) []served {
	service := New(newChecker(b, benchRules), Options{})
	full := request("shop", 1, descriptor("full=x"))
	if _, err := service.ShouldRateLimit(b.Context(), full); err != nil {
		b.Fatal(err)
	}
	one := request("shop", 1, descriptor("user=kristie"))
	three := request("shop", 1, descriptor("user=kristie"), descriptor("path=/v1/create"), descriptor("path=/v1/read"))
	return []served{
		{"bare", constant{}, one},
		{"offpath", service, one},
		{"offpath/denied", service, full},
		{"bare/three", constant{}, three},
		{"offpath/three", service, three},
	}
}

// load returns what asks a service so many times, 64 at a time.
func load(b *testing.B, service ratelimitv3.RateLimitServiceServer, r *ratelimitv3.RateLimitRequest) (ask func(times int)) {
	var options []grpc.ServerOption
	if _, bare := service.(constant); !bare {
		options = ServerOptions()
	}
	address := serve(b, service, options...)
	var clients [4]ratelimitv3.RateLimitServiceClient
	for i := range clients {
		clients[i] = ratelimitv3.NewRateLimitServiceClient(dial(b, address))
	}
	return func(times int) {
		var left atomic.Int64
		left.Store(int64(times))
		var all sync.WaitGroup
		for i := range 64 {
			all.Go(func() {
				for left.Add(-1) >= 0 {
					ctx, cancel := context.WithTimeout(b.Context(), 5*time.Second) // as Envoy does; but it has less patience
					_, err := clients[i%len(clients)].ShouldRateLimit(ctx, r)
					cancel()
					if err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
	}
}

// BenchmarkShouldRateLimit is the service alone, without gRPC.
func BenchmarkShouldRateLimit(b *testing.B) {
	service := New(newChecker(b, benchRules), Options{})
	for name, r := range map[string]*ratelimitv3.RateLimitRequest{
		"one":   request("shop", 1, descriptor("user=kristie")),
		"three": request("shop", 1, descriptor("user=kristie"), descriptor("path=/v1/create"), descriptor("path=/v1/read")),
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
