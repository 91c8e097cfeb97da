package forecast

import (
	"time"

	"github.com/offpath-io/offpath/pkg/window"
)

// A forecast knows the totals of two buckets: what came between two updates is by how much they
// have grown. Where buckets are shorter than the time from update to update, hits would be missed.
// There it is told of *stretches* instead, of several buckets each.

// Series is hits per bucket, as a message has them: of the bucket Newest less Age[i], Value[i].
type Series struct {
	Newest int64
	Age    []int64
	Value  []uint64
}

// fullPart and mostFull say out of how many full rounds a slow window needs one: of as many as a
// fullPart of it takes, up to the latter.
const fullPart, mostFull = 8, 64

// FullIntervals is out of how many full rounds the denied hits of a key need only one, if no report
// of admitted ones takes them along. A slow window leaves time to learn who asks for what. Else the
// keys of callers who go on after a denial would cost the most, although little depends on them.
func FullIntervals(length time.Duration) int64 {
	return min(max(int64(length)/FullInterval/fullPart, 1), mostFull)
}

// stretchOf is how many buckets a forecast takes as one: enough for the time from full round to
// full round of such a key, and at most half of those that a window has, since no message tells of
// more.
func stretchOf(s window.Shape) int64 {
	size := int64(s.BucketSize())
	want := max((FullInterval+size-1)/size, int64(s.Buckets)/fullPart)
	return max(min(want, int64(s.Buckets)/2), 1)
}

// youngTime is of about how many ns Young is, and youngBuckets of how many buckets at least.
const youngTime, youngBuckets = int64(32e6), 2

// SetTotals puts the totals of a message into an update, for a window whose newest bucket is given.
func (w *Update) SetTotals(s window.Shape, newest int64, admitted, denied Series) {
	g := stretchOf(s)
	w.Bucket = newest / g
	w.Admitted, w.Denied = admitted.of(w.Bucket, g), denied.of(w.Bucket, g)
	w.Since = s.End((w.Bucket+1)*g - 1 - g*int64(min(s.Live(), len(w.Admitted))))
	if n := max(youngTime/int64(s.BucketSize()), youngBuckets); g > 1 && n < g {
		first := newest - n + 1
		w.Young = Young{s.End(first - 1), admitted.from(first), denied.from(first)}
	}
}

// of returns the totals of a stretch of so many buckets and of the one before.
func (s Series) of(stretch, buckets int64) (of Totals) {
	for i, age := range s.Age {
		if before := stretch - (s.Newest-age)/buckets; 0 <= before && before < int64(len(of)) {
			of[before] += int64(s.Value[i])
		}
	}
	return of
}

// from returns the total of a bucket and those after it.
func (s Series) from(bucket int64) (sum int64) {
	for i, age := range s.Age {
		if s.Newest-age >= bucket {
			sum += int64(s.Value[i])
		}
	}
	return sum
}
