package forecast

import (
	"time"

	"github.com/offpath-io/offpath/pkg/window"
)

// A forecast knows the totals of two buckets; the hits between two updates are their increase. If
// buckets are shorter than the time from update to update, hits would be missed. Then the forecast
// gets the totals of *stretches* of several buckets instead.

// Series is hits per bucket, as messages have them: Value[i] hits in the bucket Newest − Age[i].
type Series struct {
	Newest int64
	Age    []int64
	Value  []uint64
}

// Under a long window, denied hits are reported in one full round per eighth (fullPart) of the
// window, and at least in every mostFull-th.
const fullPart, mostFull = 8, 64

// FullIntervals returns how many full intervals lie between two reports of a key's denied hits, if
// no report of admitted hits contains them. A long window leaves time to learn the demand.
// Otherwise the keys of callers that continue after a denial would cost the most, although little
// depends on them.
func FullIntervals(length time.Duration) int64 {
	return min(max(int64(length)/FullInterval/fullPart, 1), mostFull)
}

// stretchOf returns how many buckets make a stretch: enough for the time between two reports of the
// key's denied hits, and at most half of the window's buckets, since no message has more.
func stretchOf(s window.Shape) int64 {
	size := int64(s.BucketSize())
	want := max((FullInterval+size-1)/size, int64(s.Buckets)/fullPart)
	return max(min(want, int64(s.Buckets)/2), 1)
}

// youngTime is about how many ns Young covers, and youngBuckets how many buckets at least.
const youngTime, youngBuckets = int64(32e6), 2

// SetTotals sets the update's totals to those of a message, for a window whose newest bucket is
// given.
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

// of returns the totals of a stretch of this many buckets and of the stretch before it.
func (s Series) of(stretch, buckets int64) (of Totals) {
	for i, age := range s.Age {
		if before := stretch - (s.Newest-age)/buckets; 0 <= before && before < int64(len(of)) {
			of[before] += float64(s.Value[i])
		}
	}
	return of
}

// from returns the total of a bucket and those after it.
func (s Series) from(bucket int64) (sum float64) {
	for i, age := range s.Age {
		if s.Newest-age >= bucket {
			sum += float64(s.Value[i])
		}
	}
	return sum
}
