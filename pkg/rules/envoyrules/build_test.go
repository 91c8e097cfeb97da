package envoyrules

import (
	"fmt"
	"strings"
	"testing"
)

// wildcards is a domain with this many descriptors beside each other, each with another number.
func wildcards(n int, one string) string {
	var b strings.Builder
	b.WriteString("domain: d\ndescriptors:\n")
	for i := range n {
		fmt.Fprintf(&b, "- "+one+"\n", i)
	}
	return b.String()
}

// Of siblings only those are compared that begin alike, and of which one is a wildcard or a key
// alone.
func TestComparedSiblings(t *testing.T) {
	const n = 10_000
	for _, tt := range []struct {
		why        string
		n          int
		key, value string
		pairs      int
	}{
		{"wildcards that begin differently", n, "k", "%05d*", 0},
		{"different keys", n, "k%d", "*", 0},
		{"values", n, "k", "v%d", 0},
		{"each begins as those with a digit less do", 1000, "k", "%d*", 90 + 900 + 900},
		{"all begin alike", 600, "k", "*%d", 600 * 599 / 2},
	} {
		siblings := make([]*descriptor, tt.n)
		for i := range siblings {
			number := fmt.Sprint(i)
			siblings[i] = &descriptor{
				Key: strings.Replace(tt.key, "%d", number, 1), RateLimit: &limit{},
				Value: strings.NewReplacer("%d", number, "%05d", fmt.Sprintf("%05d", i)).Replace(tt.value),
			}
		}
		b := &build{}
		above, possible := b.above(siblings)
		listed := 0
		for _, places := range above {
			listed += len(places)
		}
		if !possible || b.pairs != tt.pairs || listed != tt.pairs {
			t.Errorf("%s: %v, %d pairs compared, %d listed, want %d", tt.why, possible, b.pairs, listed, tt.pairs)
		}
	}
}
