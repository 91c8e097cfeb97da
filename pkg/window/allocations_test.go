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

func BenchmarkRemaining(b *testing.B) {
	for _, bm := range []struct {
		name   string
		shape  Shape
		oldest int64
	}{
		{"B=1", Shape{Length: time.Second, Buckets: 1}, 40},
		{"B=1/oldest=0", Shape{Length: time.Second, Buckets: 1}, 0},
		{"B=1/128-bit", Shape{Length: MaxLength, Buckets: 1}, 1e6},
		{"B=60", Shape{Length: time.Hour, Buckets: 60}, 40},
		{"fixed", Shape{Length: time.Second, Buckets: 1, Fixed: true}, 0},
	} {
		b.Run(bm.name, func(b *testing.B) {
			counts := make([]int64, bm.shape.Live())
			for i := range counts {
				counts[i] = 3
			}
			if !bm.shape.Fixed {
				counts[bm.shape.Buckets] = bm.oldest
			}
			now := int64(1_700_000_000_123_456_789)
			b.ReportAllocs()
			for b.Loop() {
				now += 1000
				sink = bm.shape.Remaining(counts, 1e9, now)
			}
		})
	}
}

func BenchmarkDrainRemaining(b *testing.B) {
	for name, live := range map[string]int{"idle": 1, "busy": 61} {
		b.Run(name, func(b *testing.B) {
			d := Drain{Shape: Shape{Length: time.Minute, Buckets: 60, Kind: Token}, Limit: 60, Burst: 100}
			counts := make([]int64, live)
			for i := range counts {
				counts[i] = 2
			}
			now := int64(1_700_000_000_123_456_789)
			settled := Level{Bucket: d.Shape.Bucket(now) - int64(live), Parts: 7}
			for b.Loop() {
				sink += d.Remaining(settled, counts, now)
			}
		})
	}
}
