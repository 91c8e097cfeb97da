package envoyquota

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// BenchmarkReport is one report of 1,000 buckets, and telling what came of it; per bucket.
func BenchmarkReport(b *testing.B) {
	for _, count := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("rules=%d", count), func(b *testing.B) {
			var text strings.Builder
			text.WriteString("rules:\n- {name: user, key: [user], limit: 100/minute}\n")
			for i := 1; i < count; i++ {
				fmt.Fprintf(&text, "- {name: r%d, match: {api: a%d}, key: [user], limit: 100/minute}\n", i, i)
			}
			s := newScript(b, text.String())
			c := s.envoy()
			m := bytesOf(b, manyBuckets(1000))
			b.ReportAllocs()
			for i := 0; i < b.N; i += 1000 {
				s.now += int64(5 * time.Second)
				must(b, s.distributor.report(s.now, c, m))
				s.told(c)
			}
		})
	}
}
