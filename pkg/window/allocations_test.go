package window

import (
	"testing"
	"time"
)

func TestNothingAllocates(t *testing.T) {
	s := Shape{Length: time.Hour, Buckets: 60}
	d := Drain{Shape: Shape{Length: time.Minute, Buckets: 60, Kind: Token}, Limit: 60, Burst: 100}
	counts := make([]int64, s.Live())
	counts[3], counts[60] = 70, 50
	now := int64(1_700_000_000_123_456_789)
	settled := Level{Bucket: d.Shape.Bucket(now) - 61, Parts: 7}
	for name, call := range map[string]func(){
		"Bucket":          func() { sink = s.Bucket(now) },
		"Gone":            func() { _ = s.Gone(5, now) },
		"Remaining":       func() { sink = s.Remaining(counts, 100, now) },
		"Count":           func() { sink = int64(s.Count(counts, now)) },
		"RetryAfter":      func() { d, _ := s.RetryAfter(counts, 100, 40, now); sink = int64(d) },
		"Reset":           func() { sink = int64(s.Reset(counts, now)) },
		"Drain.Level":     func() { sink = d.Level(settled, counts, now) },
		"Drain.Remaining": func() { sink = d.Remaining(settled, counts, now) },
		"Drain.Reset":     func() { sink = int64(d.Reset(settled, counts, now)) },
	} {
		n := testing.AllocsPerRun(100, call)
		expect(t, n == 0, "%s: %v allocations", name, n)
	}
}

var sink int64
