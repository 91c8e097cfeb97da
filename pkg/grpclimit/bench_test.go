package grpclimit_test

import (
	"context"
	"testing"

	"google.golang.org/grpc"

	"github.com/offpath-io/offpath/internal/testing/alloctest"
	"github.com/offpath-io/offpath/pkg/grpclimit"
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
