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

// Whatever bytes come as reports: they are counted, or refused in words, and what goes out is what Envoy takes.
func FuzzReports(f *testing.F) {
	for _, m := range []*quotapb.RateLimitQuotaUsageReports{
		reportOf(1, 0, 0, "user", "kristie"),
		reportOf(1<<64-1, 1<<63, -time.Second, "", "x"),
		{Domain: "shop"},
		manyBuckets(3),
	} {
		data, err := proto.Marshal(m)
		must(f, err)
		f.Add(data, data)
	}
	f.Fuzz(func(t *testing.T, one, two []byte) {
		now := simStart
		checker := newCheckerAt(t, "rules: [{name: a, key: [user], limit: 10/second}, {name: b, key: [], limit: 1000/hour}]", &now)
		d := newDesk(checker, Options{}.withDefaults())
		c, err := d.join("")
		must(t, err)
		for _, data := range [][]byte{one, two} {
			generated := proto.Unmarshal(data, new(quotapb.RateLimitQuotaUsageReports))
			_, own := parseReports(data, func(*wireUsage) {})
			if generated == nil && own != nil {
				t.Fatalf("the generated code reads it: %v", own)
			}
			if err := d.report(now, c, data); err != nil && status.Code(err) != codes.InvalidArgument {
				t.Fatal(err)
			}
			now += int64(5 * time.Second)
			d.look(now, c)
			for _, a := range d.actions(now, c, 1000) {
				if _, err := proto.Marshal(a); err != nil {
					t.Fatalf("%v cannot be sent: %v", a, err)
				}
				if q := a.GetQuotaAssignmentAction(); q != nil && q.ValidateAll() != nil {
					t.Fatalf("Envoy would not take %v: %v", q, q.ValidateAll())
				}
			}
		}
		d.leave(now, c)
		if d.sweep(now + int64(time.Hour)); len(d.ledgers) != 0 {
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
