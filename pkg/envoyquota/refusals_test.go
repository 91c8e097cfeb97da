package envoyquota

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	quotapb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/offpath-io/offpath/internal/testing/grpctest"
)

// rawCodec sends bytes as they are.
type rawCodec struct{}

func (rawCodec) Marshal(v any) ([]byte, error)      { return v.([]byte), nil }
func (rawCodec) Unmarshal(data []byte, v any) error { return nil }
func (rawCodec) Name() string                       { return "proto" }

// one is a report of one bucket.
func one(t *testing.T, domain string, id *quotapb.BucketId, elapsed *durationpb.Duration) []byte {
	m := reportOf(2, 3, 0)
	m.Domain, m.BucketQuotaUsages[0].BucketId, m.BucketQuotaUsages[0].TimeElapsed = domain, id, elapsed
	return bytesOf(t, m)
}

// notUTF8 spoils a word of a message.
func notUTF8(m []byte, word string) []byte {
	return bytes.Replace(m, []byte(word), []byte("\xff"+word[1:]), 1)
}

// What is wrong in a report ends its stream, and nothing of it is counted, nor what comes after it.
func TestWhatServersRefuse(t *testing.T) {
	checker := newChecker(t, perHour)
	address, _ := serve(t, checker, Options{}, "127.0.0.1:0")
	conn := grpctest.Dial(t, address)
	in := func(domain string) []byte { return one(t, domain, bucketID("user", "kristie"), nil) }
	of := func(id *quotapb.BucketId) []byte { return one(t, "shop", id, nil) }
	after := func(s int64, ns int32) []byte {
		return one(t, "shop", bucketID("user", "kristie"), &durationpb.Duration{Seconds: s, Nanos: ns})
	}
	counts := func(allowed, denied uint64) []byte {
		return bytesOf(t, reportOf(allowed, denied, 0, "user", "kristie"))
	}
	bad := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), []byte("\xff\xff"))
	for _, c := range []struct {
		name  string
		says  []byte
		want  codes.Code
		words string
	}{
		{"no domain", in(""), codes.InvalidArgument, "domain"},
		{"a long domain", in(strings.Repeat("x", 5000)), codes.InvalidArgument, "domain"},
		{"a domain that is not UTF-8", notUTF8(in("shop"), "shop"), codes.InvalidArgument, "domain"},
		{"no bucket id", of(nil), codes.InvalidArgument, "bucket_id is empty"},
		{"an empty bucket id", of(&quotapb.BucketId{}), codes.InvalidArgument, "bucket_id is empty"},
		{"the second of two buckets", append(in("shop"), of(nil)...), codes.InvalidArgument, "bucket_quota_usages[1]"},
		{"negative time", after(-1, 0), codes.InvalidArgument, "time_elapsed"},
		{"time that is none", after(1, -1), codes.InvalidArgument, "time_elapsed"},
		{"ten years", after(10*366*86400, 0), codes.InvalidArgument, "time_elapsed"},
		{"huge counts", counts(1<<64-1, 0), codes.InvalidArgument, "10^12"},
		{"huge denials", counts(1, 1<<63), codes.InvalidArgument, "10^12"},
		{"a bucket that is none", bad, codes.InvalidArgument, "no RateLimitQuotaUsageReports"},
		{"131,073 buckets", bytes.Repeat([]byte("\x12\x04\x0a\x02\x0a\x00"), 1<<17+1), codes.InvalidArgument, "more than 131072 bucket_quota_usages"},
		{"more than 4 MiB", of(bucketID("user", strings.Repeat("x", MaxMessage))), codes.ResourceExhausted, ""},
		{"half a message with the right length", in("shop")[:20], codes.Internal, ""}, // gRPC's own word for what it cannot parse
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true},
				quotapb.RateLimitQuotaService_StreamRateLimitQuotas_FullMethodName, grpc.ForceCodec(rawCodec{}))
			must(t, err)
			for _, data := range [][]byte{c.says, in("shop")} {
				_ = stream.SendMsg(data) // the server may have hung up
			}
			for err == nil {
				err = stream.RecvMsg(nil)
			}
			if status.Code(err) != c.want || !strings.Contains(err.Error(), c.words) {
				t.Errorf("got %v, want %v and %q", err, c.want, c.words)
			}
		})
	}
	if n := charged(checker); n != 0 {
		t.Errorf("%d hits of messages that were refused are charged", n)
	}
	c, err := newDistributor(checker, Options{}.withDefaults()).join("")
	must(t, err)
	must(t, c.inDomain("shop"))
	err = c.inDomain("bank")
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), `"bank" after "shop"`) {
		t.Errorf("another domain: %v", err)
	}
}

func manyBuckets(n int) *quotapb.RateLimitQuotaUsageReports {
	m := &quotapb.RateLimitQuotaUsageReports{Domain: "shop"}
	for i := range n {
		m.BucketQuotaUsages = append(m.BucketQuotaUsages, reportOf(1, 0, 0, "user", fmt.Sprint(i)).BucketQuotaUsages...)
	}
	return m
}

// What requests can make of a bucket ends no stream: it is counted, and Envoy told to forget it, if
// it can be told.
func TestBucketsThatThereIsNoRoomFor(t *testing.T) {
	long, many := strings.Repeat("x", 5000), bucketID("user", "kristie")
	for i := range 64 {
		many.Bucket[fmt.Sprint(i)] = "x"
	}
	of := func(id *quotapb.BucketId) []byte { return one(t, "shop", id, durationpb.New(time.Second)) }
	for _, c := range []struct {
		name string
		says []byte
		told []string
	}{
		{"a long name", of(bucketID(long, "x")), []string{"abandon"}},
		{"a long value", of(bucketID("user", long)), []string{"abandon"}},
		{"many entries", of(many), nil},
		{"one bucket too many", of(bucketID("user", "mia")), []string{"abandon"}},
		{"a value that is not UTF-8", notUTF8(of(bucketID("user", "mia")), "mia"), nil},
	} {
		checker := newChecker(t, "rules: [{name: r, key: [], limit: 1000/hour}]")
		s := New(checker, Options{MaxBuckets: 1})
		envoy, err := s.distributor.join("")
		must(t, err)
		tell := func(report []byte, want ...string) {
			must(t, s.distributor.report(s.now(), envoy, report))
			if got := words(s.distributor.actions(s.now(), envoy, 1000)); !slices.Equal(got, want) {
				t.Errorf("%s: told %v, want %v", c.name, got, want)
			}
		}
		tell(bytesOf(t, reportOf(1, 0, 0, "user", "kristie")), "bucket")
		tell(c.says, c.told...)
		tell(bytesOf(t, reportOf(4, 0, 0, "user", "kristie")), "DENY_ALL", "bucket")
		if want := (Stats{Streams: 1, Buckets: 1, Opened: 1, Allowed: 7, Denied: 3, TurnedAway: 1}); s.Stats() != want {
			t.Errorf("%s: told as %+v, want %+v", c.name, s.Stats(), want)
		}
		if got := charged(checker); got != 7 {
			t.Errorf("%s: charged %d of 7", c.name, got)
		}
	}
}
