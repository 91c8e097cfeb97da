package check

import (
	"github.com/offpath-io/offpath/pkg/check/internal/forecast"
	"github.com/offpath-io/offpath/pkg/window"
)

// A forecast knows of the totals of two buckets: what came between two words is by how much they have grown. Where buckets are
// shorter than the time from word to word, hits would be missed so. There it is told of *stretches*, of several buckets each.

// stretch is how many buckets a forecast takes as one: enough for the time from census to census of such a key, and at
// most half of those that a window has, since no message tells of more.
func stretch(s window.Shape) int64 {
	size := int64(s.BucketSize())
	want := max((forecast.Census+size-1)/size, int64(s.Buckets)/censusPart)
	return max(min(want, int64(s.Buckets)/2), 1)
}

// youngTime is how many ns what is young is of, about, and youngBuckets how many buckets at least.
const youngTime, youngBuckets = int64(32e6), 2

// totalsFor puts what a message says of a cell's newest buckets into a forecast's word.
func (w word) totalsFor(c *cell, told *forecast.Word) {
	shape, g := c.limiter.shape, stretch(c.limiter.shape)
	told.Bucket = c.newest / g
	told.Admitted, told.Denied = w.admitted.of(told.Bucket, g), w.denied.of(told.Bucket, g)
	told.Since = shape.End((told.Bucket+1)*g - 1 - g*int64(min(shape.Live(), len(told.Admitted))))
	if n := max(youngTime/int64(shape.BucketSize()), youngBuckets); g > 1 && n < g {
		first := c.newest - n + 1
		told.Young = forecast.Young{Since: shape.End(first - 1), Admitted: w.admitted.from(first), Denied: w.denied.from(first)}
	}
}

// of returns the totals of a stretch of so many buckets and of the one before.
func (t totals) of(stretch, buckets int64) (of forecast.Totals) {
	for i, age := range t.age {
		if before := stretch - (t.newest-age)/buckets; 0 <= before && before < int64(len(of)) {
			of[before] += int64(t.value[i])
		}
	}
	return of
}

// from returns the total of a bucket and those after it.
func (t totals) from(bucket int64) (sum int64) {
	for i, age := range t.age {
		if t.newest-age >= bucket {
			sum += int64(t.value[i])
		}
	}
	return sum
}
