package check

import (
	"testing"
	"time"
)

// BenchmarkToken checks a hit, and settles it.
func BenchmarkToken(b *testing.B) {
	c := newChecker(b, Options{}, rule("r", 1e15, time.Hour, 1))
	l := limiter(b, c, "r")
	b.Run("CheckToken", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, token := l.CheckTokenAt(noon, "user:123456", 100); token == "" {
				b.Fatal("denied")
			}
		}
	})
	b.Run("Settle", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			b.StopTimer()
			_, token := l.CheckTokenAt(noon, "user:123456", 100)
			b.StartTimer()
			if err := c.SettleAt(noon, token, 30); err != nil {
				b.Fatal(err)
			}
		}
	})
}
