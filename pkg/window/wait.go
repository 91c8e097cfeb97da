package window

import "time"

// RetryAfter is the least wait after which the cost fits, if nothing else comes in
// the meantime; 0 if it fits at once. ok is false if the cost exceeds the limit: it
// never fits. The wait is exact to the nanosecond: one less would not do.
func (s Shape) RetryAfter(counts []int64, limit, cost, now int64) (d time.Duration, ok bool) {
	if cost > limit {
		return 0, false
	}
	if s.Remaining(counts, limit, now) >= cost {
		return 0, true
	}
	size := int64(s.BucketSize())
	into := elapsed(now, size)
	if s.Fixed {
		return time.Duration(size - into), true
	}

	// The estimate falls as time goes, from one bucket's end to the next: always the
	// oldest bucket melts and those after it count in full. So the newest buckets that
	// fit together may stay, and the one before them, the last, must melt to what room
	// they leave.
	room := limit - cost
	last := 0
	for last < s.Buckets && counts[last] <= room {
		room -= counts[last]
		last++
	}
	if s.Kind == Log { // the last must leave altogether
		return time.Duration(int64(s.Buckets-last+1)*size - into), true
	}
	// Now room < counts[last], or the cost would have fitted: the quotient is < size.
	left, _ := mulDiv(room, size, counts[last])
	// The bucket starts to melt Buckets-last buckets after the start of the current one.
	return time.Duration(int64(s.Buckets-last+1)*size - int64(left) - into), true
}

// Reset is how long until all hits have left the window, if no more come; 0 if it
// holds none.
func (s Shape) Reset(counts []int64, now int64) time.Duration {
	live := min(s.Live(), len(counts))
	for i, count := range counts[:live] {
		if count > 0 {
			size := int64(s.BucketSize())
			return time.Duration(int64(s.Live()-i)*size - elapsed(now, size))
		}
	}
	return 0
}
