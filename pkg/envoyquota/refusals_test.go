package envoyquota

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	quotapb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/offpath-io/offpath/pkg/check"
)

func TestWhatServersRefuse(t *testing.T) {
	long := strings.Repeat("x", 5000)
	one := func(u *quotapb.RateLimitQuotaUsageReports_BucketQuotaUsage) []*quotapb.RateLimitQuotaUsageReports {
		return []*quotapb.RateLimitQuotaUsageReports{{Domain: "shop", BucketQuotaUsages: []*quotapb.RateLimitQuotaUsageReports_BucketQuotaUsage{u}}}
	}
	usageOf := func(id *quotapb.BucketId) *quotapb.RateLimitQuotaUsageReports_BucketQuotaUsage {
		return &quotapb.RateLimitQuotaUsageReports_BucketQuotaUsage{BucketId: id, NumRequestsAllowed: 1}
	}
	after := func(d *durationpb.Duration) []*quotapb.RateLimitQuotaUsageReports {
		u := usageOf(bucketID("user", "kristie"))
		u.TimeElapsed = d
		return one(u)
	}
	noDomain := reportOf(1, 0, 0, "user", "kristie")
	noDomain.Domain = ""
	longDomain := reportOf(1, 0, 0, "user", "kristie")
	longDomain.Domain = long
	otherDomain := reportOf(0, 0, 0, "user", "kristie")
	otherDomain.Domain = "bank"
	fresh := func() *quotapb.RateLimitQuotaUsageReports { return reportOf(0, 0, 0, "user", "kristie") }
	second := reportOf(1, 0, 0, "user", "kristie")
	second.BucketQuotaUsages = append(second.BucketQuotaUsages, usageOf(nil))
	for _, c := range []struct {
		name  string
		says  []*quotapb.RateLimitQuotaUsageReports
		want  codes.Code
		words string
	}{
		{"no domain", []*quotapb.RateLimitQuotaUsageReports{noDomain}, codes.InvalidArgument, "domain"},
		{"a long domain", []*quotapb.RateLimitQuotaUsageReports{longDomain}, codes.InvalidArgument, "domain"},
		{"another domain", []*quotapb.RateLimitQuotaUsageReports{fresh(), otherDomain}, codes.InvalidArgument, `"bank" after "shop"`},
		{"no bucket id", one(usageOf(nil)), codes.InvalidArgument, "bucket_id is empty"},
		{"an empty bucket id", one(usageOf(&quotapb.BucketId{})), codes.InvalidArgument, "bucket_id is empty"},
		{"the second of two buckets: the first is not counted either", []*quotapb.RateLimitQuotaUsageReports{second}, codes.InvalidArgument, "bucket_quota_usages[1]"},
		{"negative time", after(durationpb.New(-time.Second)), codes.InvalidArgument, "time_elapsed"},
		{"time that is none", after(&durationpb.Duration{Seconds: 1, Nanos: -1}), codes.InvalidArgument, "time_elapsed"},
		{"time beyond all bounds", after(&durationpb.Duration{Seconds: 1 << 62}), codes.InvalidArgument, "time_elapsed"},
		{"ten years", after(&durationpb.Duration{Seconds: 10 * 366 * 86400}), codes.InvalidArgument, "time_elapsed"},
		{"huge counts", []*quotapb.RateLimitQuotaUsageReports{reportOf(1<<64-1, 0, 0, "user", "kristie")}, codes.InvalidArgument, "10^12"},
		{"huge denials", []*quotapb.RateLimitQuotaUsageReports{reportOf(1, 1<<63, 0, "user", "kristie")}, codes.InvalidArgument, "10^12"},
		{"a message of more than 4 MiB", []*quotapb.RateLimitQuotaUsageReports{reportOf(1, 0, 0, "user", strings.Repeat("x", MaxMessage))}, codes.ResourceExhausted, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			checker := newChecker(t, perHour)
			address, _ := serve(t, checker, Options{MaxBuckets: 10}, "127.0.0.1:0")
			stream := open(t, dial(t, address))
			for _, m := range c.says {
				_ = stream.Send(m) // the server may have hung up on it
			}
			err := error(nil)
			for err == nil {
				_, err = stream.Recv()
			}
			if status.Code(err) != c.want || !strings.Contains(err.Error(), c.words) {
				t.Errorf("got %v, want %v and %q", err, c.want, c.words)
			}
			if n := charged(checker); c.want == codes.InvalidArgument && n != 0 {
				t.Errorf("%d hits of a message that was refused are charged", n)
			}
		})
	}
}

func manyBuckets(n int) *quotapb.RateLimitQuotaUsageReports {
	m := &quotapb.RateLimitQuotaUsageReports{Domain: "shop"}
	for i := range n {
		m.BucketQuotaUsages = append(m.BucketQuotaUsages, &quotapb.RateLimitQuotaUsageReports_BucketQuotaUsage{
			BucketId: bucketID("user", fmt.Sprint(i)), NumRequestsAllowed: 1,
		})
	}
	return m
}

// What requests can make of a bucket ends no stream: it is counted, and Envoy told to forget it, if it can be told.
func TestBucketsThatThereIsNoRoomFor(t *testing.T) {
	long, many := strings.Repeat("x", 5000), bucketID("user", "kristie")
	for i := range 64 {
		many.Bucket[fmt.Sprint(i)] = "x"
	}
	for _, c := range []struct {
		name string
		id   *quotapb.BucketId
		told bool
	}{
		{"a long name", bucketID(long, "x"), true},
		{"a long value", bucketID("user", long), true},
		{"many entries", many, false},
		{"one bucket too many", bucketID("user", "mia"), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			checker := newChecker(t, "rules: [{name: r, key: [], limit: 1000/hour}]")
			address, _ := serve(t, checker, Options{MaxBuckets: 1}, "127.0.0.1:0")
			stream := open(t, dial(t, address))
			send(t, stream, reportOf(1, 0, 0, "user", "kristie"))
			only(t, receive(t, stream), "bucket")
			m := reportOf(2, 0, 0, "user", "")
			m.BucketQuotaUsages[0].BucketId = c.id
			send(t, stream, m)
			if c.told {
				only(t, receive(t, stream), "abandon")
			}
			send(t, stream, reportOf(4, 0, 0, "user", "kristie"))
			only(t, receive(t, stream), "DENY_ALL", "bucket")
			if got := charged(checker); got != 7 {
				t.Errorf("charged %d of 7", got)
			}
		})
	}
}

func TestWhatIsTurnedAwayIsTold(t *testing.T) {
	s := New(newChecker(t, perSecond), Options{MaxBuckets: 1})
	c, err := s.desk.join("")
	must(t, err)
	for _, m := range []*quotapb.RateLimitQuotaUsageReports{
		reportOf(1, 2, 0, "user", "kristie"), reportOf(4, 8, 0, "user", "mia"), reportOf(16, 32, 0, "user", strings.Repeat("x", 5000)),
	} {
		must(t, s.desk.report(s.now(), c, bytesOf(t, m)))
	}
	if got, want := s.Stats(), (Stats{Streams: 1, Buckets: 1, Opened: 1, Allowed: 21, Denied: 42, TurnedAway: 2}); got != want {
		t.Errorf("told as %+v, want %+v", got, want)
	}
}

// rawCodec sends bytes as they are.
type rawCodec struct{}

func (rawCodec) Marshal(v any) ([]byte, error)      { return v.([]byte), nil }
func (rawCodec) Unmarshal(data []byte, v any) error { return nil }
func (rawCodec) Name() string                       { return "proto" }

// sendRaw sends bytes as a report, and then one that is in order.
func sendRaw(t *testing.T, checker *check.Checker, data []byte) error {
	t.Helper()
	address, _ := serve(t, checker, Options{}, "127.0.0.1:0")
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	stream, err := dial(t, address).NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true},
		quotapb.RateLimitQuotaService_StreamRateLimitQuotas_FullMethodName, grpc.ForceCodec(rawCodec{}))
	must(t, err)
	_ = stream.SendMsg(data)
	_ = stream.SendMsg(bytesOf(t, reportOf(1, 0, 0, "user", "mia"))) // the server may have hung up
	return stream.RecvMsg(nil)
}

func TestBytesThatAreNoReport(t *testing.T) {
	whole := bytesOf(t, reportOf(1, 0, 0, "user", "kristie"))
	within := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), []byte("\xff\xff"))
	for _, c := range []struct {
		name string
		data []byte
		want codes.Code
	}{
		{"a domain that is not UTF-8", bytes.Replace(whole, []byte("shop"), []byte("sh\xffp"), 1), codes.InvalidArgument},
		{"a bucket that is none", within, codes.InvalidArgument},
		// This is gRPC's own word for what it cannot parse.
		{"half a message with the right length", whole[:len(whole)/2], codes.Internal},
		{"noise", []byte("\xff\xff\xff\xff\xff\xff\xff"), codes.Internal},
	} {
		t.Run(c.name, func(t *testing.T) {
			checker := newChecker(t, perHour)
			if err := sendRaw(t, checker, c.data); status.Code(err) != c.want {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if got := charged(checker); got != 0 {
				t.Errorf("charged %d", got)
			}
		})
	}
}

// Whoever sends a header that is not UTF-8 does not end the stream for all.
func TestBucketsThatAreNotUTF8(t *testing.T) {
	data := bytes.Replace(bytesOf(t, reportOf(5, 0, 0, "user", "kristie")), []byte("kristie"), []byte("krist\xffe"), 1)
	checker := newChecker(t, perHour)
	must(t, sendRaw(t, checker, data))
	if got := charged(checker); got != 6 {
		t.Errorf("charged %d of 5 and 1", got)
	}
}

// A message that stops half-way is silence.
func TestHalfAMessageThenSilence(t *testing.T) {
	checker := newChecker(t, perHour)
	address, _ := serve(t, checker, Options{SilenceAfter: 300 * time.Millisecond}, "127.0.0.1:0")
	whole := bytesOf(t, reportOf(1, 0, 0, "user", "kristie"))
	half := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(whole))), whole[:len(whole)/2]...)
	body, pen := io.Pipe()
	defer pen.Close()
	go func() { _, _ = pen.Write(half) }()
	request, err := http.NewRequest(http.MethodPost, "http://"+address+quotapb.RateLimitQuotaService_StreamRateLimitQuotas_FullMethodName, body)
	must(t, err)
	request.Header.Set("Content-Type", "application/grpc")
	request.Header.Set("Te", "trailers")
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	answer, err := (&http.Client{Transport: transport, Timeout: 30 * time.Second}).Do(request)
	must(t, err)
	defer answer.Body.Close()
	if _, err := io.ReadAll(answer.Body); err != nil {
		t.Fatal(err)
	}
	code := answer.Header.Get("Grpc-Status") + answer.Trailer.Get("Grpc-Status")
	if code != fmt.Sprint(int(codes.DeadlineExceeded)) {
		t.Errorf("ended with %q, want deadline exceeded", code)
	}
	if got := charged(checker); got != 0 {
		t.Errorf("charged %d", got)
	}
}
