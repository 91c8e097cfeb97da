package grpclimit_test

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/interop/grpc_testing"

	"github.com/offpath-io/offpath/internal/testing/alloctest"
	"github.com/offpath-io/offpath/pkg/grpclimit"
	"github.com/offpath-io/offpath/pkg/limitheaders"
)

// costs are interceptors around a handler that does nothing, and how often they may allocate.
var costs = []struct {
	name, rules string
	o           grpclimit.Options
	most        float64
}{
	{"user", "[{name: r, key: [user], limit: 1000000000/hour}]", grpclimit.Options{User: byMetadata}, 1}, // metadata's copy
	{"method", "[{name: r, key: [method, service], limit: 1000000000/hour}]", grpclimit.Options{}, 0},
	{"ip", "[{name: r, key: [ip], limit: 1000000000/hour}]", grpclimit.Options{}, 1}, // the address as text
	{"three-rules", "[{name: a, key: [method], limit: 1000000000/hour}, {name: b, key: [], limit: 1000000000/second}, {name: c, key: [service], limit: 1000000000/minute}]", grpclimit.Options{}, 0},
	{"no-rule", "[{name: r, match: {method: /a.B/C}, key: [user], limit: 1/hour}]", grpclimit.Options{}, 0},
}

func nothing(context.Context, any) (any, error) { return nil, nil }

func TestAllocations(t *testing.T) {
	for _, tt := range costs {
		i, ctx := newLimit(t, checker(t, "rules: "+tt.rules), tt.o).Unary(), kristie()
		info := &grpc.UnaryServerInfo{FullMethod: unaryMethod}
		alloctest.AtMost(t, tt.most, tt.name, func() {
			if _, err := i(ctx, nil, info, nothing); err != nil {
				t.Error(err)
			}
		})
	}
}

func BenchmarkUnary(b *testing.B) {
	run := func(b *testing.B, i grpc.UnaryServerInterceptor) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			ctx, info := kristie(), &grpc.UnaryServerInfo{FullMethod: unaryMethod}
			for pb.Next() {
				_, _ = i(ctx, nil, info, nothing)
			}
		})
	}
	for _, tt := range costs {
		b.Run(tt.name, func(b *testing.B) { run(b, newLimit(b, checker(b, "rules: "+tt.rules), tt.o).Unary()) })
	}
	b.Run("denied", func(b *testing.B) {
		c := checker(b, "rules: [{name: r, key: [user], limit: 1/hour}]")
		run(b, newLimit(b, c, grpclimit.Options{User: byMetadata}).Unary())
	})
	b.Run("outcome", func(b *testing.B) {
		limit := newLimit(b, checker(b, "rules: [{name: r, match: {api: login}, key: [user], limit: 1/hour}]"), grpclimit.Options{User: byMetadata})
		run(b, chargeOn(b, limit, 1).Unary())
	})
}

// BenchmarkServer is a server and its client over a socket, 64 calls at a time: without a Limit, with one, and with headers.
func BenchmarkServer(b *testing.B) {
	for _, tt := range []struct {
		name    string
		limited bool
		o       grpclimit.Options
	}{
		{"bare", false, grpclimit.Options{}},
		{"limited", true, grpclimit.Options{User: byMetadata}},
		{"headers", true, grpclimit.Options{User: byMetadata, Headers: limitheaders.Newest}},
	} {
		b.Run(tt.name, func(b *testing.B) {
			var o []grpc.ServerOption
			if tt.limited {
				limit := newLimit(b, checker(b, "rules: [{name: r, key: [user, method], limit: 1000000000/hour}]"), tt.o)
				o = append(o, grpc.ChainUnaryInterceptor(limit.Unary()))
			}
			client := dial(b, serve(b, o...))
			ctx := as(context.Background(), "x-user", "kristie")
			b.ReportAllocs()
			b.SetParallelism(32) // times 2 cores
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := client.UnaryCall(ctx, &grpc_testing.SimpleRequest{}); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}
