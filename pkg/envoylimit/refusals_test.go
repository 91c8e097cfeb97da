package envoylimit

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/offpath-io/offpath/internal/testing/grpctest"
	"github.com/offpath-io/offpath/pkg/window"
)

func withLimit(d *ratelimit.RateLimitDescriptor, requests uint32, unit typev3.RateLimitUnit) *ratelimit.RateLimitDescriptor {
	d.Limit = &ratelimit.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: requests, Unit: unit}
	return d
}

func times(d *ratelimit.RateLimitDescriptor, multiplier uint32) *ratelimit.RateLimitDescriptor {
	d.Limit.UnitMultiplier = wrapperspb.UInt32(multiplier)
	return d
}

func negative(d *ratelimit.RateLimitDescriptor) *ratelimit.RateLimitDescriptor {
	d.IsNegativeHits = true
	return d
}

// What makes no sense is refused with the place and the reason, and charges nothing of what came
// with it.
func TestRefusals(t *testing.T) {
	checker := newChecker(t, shop)
	c := client(t, New(checker, Options{}))
	good := newDescriptor("user=ann")
	many := func(n int) []*ratelimit.RateLimitDescriptor {
		all := make([]*ratelimit.RateLimitDescriptor, n)
		for i := range all {
			all[i] = newDescriptor("user=ann")
		}
		return all
	}
	wide := new(ratelimit.RateLimitDescriptor)
	for i := range MaxEntries + 1 {
		wide.Entries = append(wide.Entries, &ratelimit.RateLimitDescriptor_Entry{Key: fmt.Sprint(i), Value: "x"})
	}
	const large = "larger than max"
	bob := func() *ratelimit.RateLimitDescriptor { return newDescriptor("user=bob") }
	shopping := func(all ...*ratelimit.RateLimitDescriptor) *ratelimitv3.RateLimitRequest {
		return request("shop", 1, all...)
	}
	for _, test := range []struct {
		why     string
		request *ratelimitv3.RateLimitRequest
		want    string
	}{
		{"nothing at all", &ratelimitv3.RateLimitRequest{}, "rate limit domain must not be empty"},
		{"no domain", request("", 1, good), "rate limit domain must not be empty"},
		{"no descriptors", request("shop", 1), "rate limit descriptor list must not be empty"},
		{"65 descriptors", shopping(many(65)...), "65 descriptors: want at most 64"},
		{"10,000 descriptors", shopping(make([]*ratelimit.RateLimitDescriptor, 10_000)...), "10000 descriptors: want at most 64"},
		{"10,000 larger ones", shopping(many(10_000)...), large},
		{"65 entries", shopping(good, wide), "descriptor 2: 65 entries: want at most 64"},
		{"a value of 100 KB", shopping(newDescriptor("user=" + strings.Repeat("x", 100<<10))), large},
		{"huge hits", shopping(good, withHits(bob(), uint64(window.MaxCount)+1)), "descriptor 2: hits_addend 1000000000000001: want at most 1000000000000000"},
		{"hits of -1", shopping(withHits(bob(), math.MaxUint64)), "descriptor 1: hits_addend 18446744073709551615"},
		{"hits to be given back", shopping(negative(withHits(bob(), 1))), "descriptor 1: is_negative_hits"},
		{"the request's hits to be given back", shopping(negative(bob())), "descriptor 1: is_negative_hits"},
		{"a limit without a unit", shopping(good, withLimit(bob(), 1, 0)), "descriptor 2: limit: unit UNKNOWN: want SECOND"},
		{"a limit of an unknown unit", shopping(withLimit(bob(), 1, 99)), "descriptor 1: limit: unit 99"},
		{"a limit per 0 minutes", shopping(times(withLimit(bob(), 1, typev3.RateLimitUnit_MINUTE), 0)), "unit_multiplier 0: want 1 to 527040"},
		{"a limit per 2 years", shopping(times(withLimit(bob(), 1, typev3.RateLimitUnit_YEAR), 2)), "unit_multiplier 2: want 1 to 1"},
		{"a limit per 2^32-1 weeks", shopping(times(withLimit(bob(), 1, 7), math.MaxUint32)), "unit_multiplier"},
	} {
		answer, err := c.ShouldRateLimit(t.Context(), test.request)
		code := map[bool]codes.Code{true: codes.ResourceExhausted, false: codes.InvalidArgument}[test.want == large]
		if status.Code(err) != code || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, %v; want %v, %q", test.why, answer, err, code, test.want)
		}
	}
	for _, s := range checker.Stats().Rules {
		if s.Charged != 0 || s.Allowed != 0 || s.Denied != 0 {
			t.Errorf("something was charged: %+v", s)
		}
	}
}

// The greatest numbers that make sense are taken.
func TestBounds(t *testing.T) {
	c := client(t, New(newChecker(t, shop), Options{}))
	for _, r := range []*ratelimitv3.RateLimitRequest{
		request("shop", math.MaxUint32, newDescriptor("user=ann")),
		request("shop", 1, withHits(newDescriptor("user=ann"), uint64(window.MaxCount))),
	} {
		if answer := ask(t, c, r); answer.OverallCode != over || answer.Statuses[0].LimitRemaining != 3 {
			t.Errorf("%v: %v", r, answer)
		}
	}
	all := make([]*ratelimit.RateLimitDescriptor, 64)
	for i := range all {
		all[i] = newDescriptor(fmt.Sprintf("user=%d", i))
	}
	if answer := ask(t, c, request("shop", 0, all...)); answer.OverallCode != ok || answer.Statuses[63].LimitRemaining != 2 {
		t.Errorf("64 descriptors: %v", answer)
	}
}

// raw is a codec whose messages are their bytes.
type raw struct{}

func (raw) Name() string                  { return "proto" }
func (raw) Marshal(v any) ([]byte, error) { return v.([]byte), nil }
func (raw) Unmarshal([]byte, any) error   { return nil }

// askRaw sends bytes as they are.
func askRaw(t testing.TB, conn *grpc.ClientConn, request []byte) error {
	t.Helper()
	return conn.Invoke(t.Context(), "/"+Name+"/ShouldRateLimit", request, nil, grpc.ForceCodec(raw{}))
}

// Bytes that are no message are the caller's mistake, not the server's.
func TestNoMessage(t *testing.T) {
	conn := grpctest.Dial(t, serve(t, New(newChecker(t, shop), Options{}), ServerOptions()...))
	text := func(field protowire.Number, value string) []byte {
		return protowire.AppendString(protowire.AppendTag(nil, field, protowire.BytesType), value)
	}
	entry := text(2, string(text(1, string(append(text(1, "user"), text(2, "\xff\xfe")...)))))
	for why, message := range map[string][]byte{
		"noise":                  {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		"a domain cut off":       text(1, "shop")[:3],
		"a domain without UTF-8": append(text(1, "sh\xffop"), text(2, "")...),
		"a value without UTF-8":  append(text(1, "shop"), entry...),
	} {
		err := askRaw(t, conn, message)
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "not a rate limit request") {
			t.Errorf("%s: %v", why, err)
		}
	}
	good, err := proto.Marshal(request("shop", 1, newDescriptor("user=ann")))
	must(t, err)
	if err := askRaw(t, conn, append(good, text(99, "of the future")...)); err != nil {
		t.Errorf("an unknown field: %v", err)
	}
}

// What is compressed may be no larger than the rest when it is not any more. Whether it is taken at
// all is for the program to say, which imports a compressor or does not, as this test does.
func TestCompressed(t *testing.T) {
	checker := newChecker(t, shop)
	slow := patience{request: time.Hour, silence: time.Hour} // to compress may take the client longer than a request may
	c := ratelimitv3.NewRateLimitServiceClient(grpctest.Dial(t, serve(t, New(checker, Options{}), slow.options()...)))
	for value, want := range map[string]codes.Code{"ann": codes.OK, strings.Repeat("a", MaxMessage): codes.ResourceExhausted, strings.Repeat("a", 8<<20): codes.ResourceExhausted} {
		_, err := c.ShouldRateLimit(t.Context(), request("shop", 1, newDescriptor("user="+value)), grpc.UseCompressor(gzip.Name))
		if status.Code(err) != want {
			t.Errorf("%d bytes: %v, want %v", len(value), err, want)
		}
	}
	for _, s := range checker.Stats().Rules {
		if s.Charged > 1 {
			t.Errorf("charged: %+v", s)
		}
	}
}

// FuzzShouldRateLimit: no bytes break the service; each has an answer with a status per descriptor,
// or an error that says why not.
func FuzzShouldRateLimit(f *testing.F) {
	for _, r := range []*ratelimitv3.RateLimitRequest{
		request("shop", 1, newDescriptor("user=ann")), request("shop", 2, withHits(newDescriptor("user=ann", "path=/checkout"), 0), newDescriptor("plan=a"), newDescriptor("gold=a")),
		request("shop", 0, times(withLimit(newDescriptor("user=ann"), 5, typev3.RateLimitUnit_HOUR), 3)), request("", 1), request("x", 1, negative(newDescriptor())),
		request("shop", 0, withLimit(newDescriptor("domain=\n", "domain="), 0, typev3.RateLimitUnit_DAY)),
	} {
		data, err := proto.Marshal(r)
		must(f, err)
		f.Add(data)
	}
	service := New(newChecker(f, shop), Options{Headers: XRateLimitHeaders})
	f.Fuzz(func(t *testing.T, data []byte) {
		r := new(ratelimitv3.RateLimitRequest)
		if proto.Unmarshal(data, r) != nil {
			return
		}
		answer, err := service.ShouldRateLimit(t.Context(), r)
		switch {
		case err != nil && status.Code(err) == codes.Unknown, err == nil && len(answer.Statuses) != len(r.Descriptors):
			t.Fatalf("%v: %v, %v", r, answer, err)
		case err != nil:
			return
		}
		denied := false
		for _, s := range answer.Statuses {
			denied = denied || s.Code == over
		}
		if denied != (answer.OverallCode == over) {
			t.Fatalf("%v: %v", r, answer)
		}
		if _, err := proto.Marshal(answer); err != nil {
			t.Fatal(err)
		}
	})
}
