package envoyquota

import (
	"testing"
	"time"

	quotapb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"
)

// Whatever bytes come as reports: they are counted, or refused in words, and what goes out is what
// Envoy takes.
func FuzzReports(f *testing.F) {
	for _, m := range []*quotapb.RateLimitQuotaUsageReports{
		reportOf(1, 0, 0, "user", "kristie"),
		reportOf(1<<64-1, 1<<63, -time.Second, "", "x"),
		{Domain: "shop"},
		manyBuckets(3),
	} {
		f.Add(bytesOf(f, m), bytesOf(f, m))
	}
	f.Fuzz(func(t *testing.T, one, two []byte) {
		s := newScript(t, "rules: [{name: a, key: [user], limit: 10/second}, {name: b, key: [], limit: 1000/hour}]")
		c, d := s.envoy(), s.distributor
		for _, data := range [][]byte{one, two} {
			generated := proto.Unmarshal(data, new(quotapb.RateLimitQuotaUsageReports))
			_, own := parseReports(data, func(*wireUsage) {})
			if generated == nil && own != nil {
				t.Fatalf("the generated code reads it: %v", own)
			}
			if err := d.report(s.now, c, data); err != nil && status.Code(err) != codes.InvalidArgument {
				t.Fatal(err)
			}
			s.now += int64(5 * time.Second)
			d.maintain(s.now, c)
			for _, a := range s.told(c) {
				if _, err := proto.Marshal(a); err != nil {
					t.Fatalf("%v cannot be sent: %v", a, err)
				}
				if q := a.GetQuotaAssignmentAction(); q != nil && q.ValidateAll() != nil {
					t.Fatalf("Envoy would not take %v: %v", q, q.ValidateAll())
				}
			}
		}
		d.leave(s.now, c)
		if d.sweep(s.now + int64(time.Hour)); len(d.ledgers) != 0 {
			t.Fatalf("%d ledgers are left", len(d.ledgers))
		}
	})
}

func TestBucketNamesAreUnambiguous(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.SampledFrom([]string{"", "a", "b", "ab", "\x01", "\x01a", "a\x01b", "\x00"})
		bucket := rapid.MapOfN(word, word, 0, 3)
		one, two := bucket.Draw(t, "one"), bucket.Draw(t, "two")
		same := len(one) == len(two)
		for name, value := range one {
			other, ok := two[name]
			same = same && ok && other == value
		}
		if (bucketName(one) == bucketName(two)) != same {
			t.Fatalf("%q and %q: %q and %q", one, two, bucketName(one), bucketName(two))
		}
	})
}
