package check

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/identity"
)

// These measure the checker alone, with nothing behind it. Beside other limiters, and with its
// reporter at work, it is measured in loadtest/peers.

func BenchmarkCheck(b *testing.B) {
	c := newChecker(b, Options{}, rule("open", 1e15, time.Minute, 1), rule("cut", 1e15, time.Hour, 60), rule("shut", 1, 24*time.Hour, 1))
	open, shut := limiter(b, c, "open"), limiter(b, c, "shut")
	user := identity.Attributes{{Name: "user", Value: "kristie"}}
	now := noon
	for _, bench := range []struct {
		name string
		f    func()
	}{
		{"allowed", func() { open.CheckAt(now, "kristie", 1) }},
		{"allowed, cost 2", func() { open.CheckAt(now, "kristie", 2) }},
		{"60 buckets, cost 2", func() { limiter(b, c, "cut").CheckAt(now, "kristie", 2) }},
		{"denied", func() { shut.CheckAt(now, "kristie", 1) }},
		{"three rules by attributes", func() { c.CheckAt(now, user, 1) }},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				bench.f()
			}
		})
	}
}

// BenchmarkCheckStrict measures a check that has permits, with the reading of the clock that it needs and without.
func BenchmarkCheckStrict(b *testing.B) {
	f := newFleet(b, Options{}, strictRule("r", 1e12, 24*time.Hour, 1))
	l := limiter(b, f.Checker, "r")
	l.CheckAt(noon, "kristie", 1e9)
	f.Step(noon + ms)
	f.grants(noon+2*ms, 0, 1e12, 1e12, 0)
	b.Run("at a time", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			l.CheckAt(noon+3*ms, "kristie", 1)
		}
	})
	b.Run("now", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var d Decision
			l.now()
			l.checkAt(&d, l.terms.Load(), noon+3*ms, "kristie", 1)
		}
	})
}

// BenchmarkFlush measures what one key costs behind the critical path: freezing its hits into a
// report and merging the answer.
func BenchmarkFlush(b *testing.B) {
	link := new(echo)
	c := newChecker(b, Options{Link: link}, rule("r", 1e15, time.Minute, 1))
	l := limiter(b, c, "r")
	keys := make([]string, 1000)
	for i := range keys {
		keys[i] = fmt.Sprintf("user:%06d", rand.IntN(1e6))
	}
	now := noon
	c.Step(now)
	link.deliver(c, now)
	b.ReportAllocs()
	for b.Loop() {
		for _, key := range keys {
			l.CheckAt(now, key, 1)
		}
		now += 50 * ms
		c.Step(now)
		link.deliver(c, now)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(keys)), "ns/key")
}
