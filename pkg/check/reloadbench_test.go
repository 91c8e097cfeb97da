package check

import (
	"fmt"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
)

// manyRules is a set of so many rules, each for requests of another API, the first with this limit, the others with
// another one if that is given.
func manyRules(b *testing.B, n int, first int64, others ...int64) *rules.Set {
	b.Helper()
	list := make([]rules.Rule, n)
	for i := range list {
		list[i] = rule(fmt.Sprintf("rule-%d", i), 1e9, time.Hour, 1)
		list[i].Match = []rules.Condition{{Name: "api", Value: fmt.Sprint("api", i)}}
		for _, limit := range others {
			list[i].Limit = limit
		}
	}
	list[0].Limit = first
	set, err := rules.NewSet(list...)
	if err != nil {
		b.Fatal(err)
	}
	return set
}

// BenchmarkSetRules measures a change of rules.
func BenchmarkSetRules(b *testing.B) {
	for _, bench := range []struct {
		name        string
		rules, keys int
		sets        func(n int) [2]*rules.Set
	}{
		{"10 rules, one changes", 10, 0, func(n int) [2]*rules.Set { return [2]*rules.Set{manyRules(b, n, 5), manyRules(b, n, 6)} }},
		{"10k rules, none changes", 10_000, 0, func(n int) [2]*rules.Set { return [2]*rules.Set{manyRules(b, n, 5), manyRules(b, n, 5)} }},
		{"10k rules, one changes", 10_000, 0, func(n int) [2]*rules.Set { return [2]*rules.Set{manyRules(b, n, 5), manyRules(b, n, 6)} }},
		{"10k rules, one changes, 1M keys", 10_000, 1e6, func(n int) [2]*rules.Set { return [2]*rules.Set{manyRules(b, n, 5), manyRules(b, n, 6)} }},
		{"10k rules, all change, 1M keys", 10_000, 1e6, func(n int) [2]*rules.Set { return [2]*rules.Set{manyRules(b, n, 5), manyRules(b, n, 6, 7)} }},
	} {
		b.Run(bench.name, func(b *testing.B) {
			sets := bench.sets(bench.rules)
			c, err := New(Options{Rules: sets[0]})
			if err != nil {
				b.Fatal(err)
			}
			for i := range bench.keys {
				limiter(b, c, fmt.Sprintf("rule-%d", i%bench.rules)).CheckAt(noon, fmt.Sprint("key", i), 1)
			}
			i := 0
			for b.Loop() {
				i++
				if err := c.SetRulesAt(noon, sets[i%2], uint64(i)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkCheckAmongRules measures a check by attributes among few rules and among many.
func BenchmarkCheckAmongRules(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c, err := New(Options{Rules: manyRules(b, n, 1e9)})
			if err != nil {
				b.Fatal(err)
			}
			attrs := identity.Attributes{{Name: "api", Value: fmt.Sprint("api", n-1)}, {Name: "user", Value: "k"}}
			b.ReportAllocs()
			for b.Loop() {
				c.CheckAt(noon, attrs, 1)
			}
		})
	}
}
