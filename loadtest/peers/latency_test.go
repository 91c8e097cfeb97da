package peers

import (
	"math"
	"slices"
	"time"
)

// latency is of single decisions, in ns, the clock's own share included.
type latency struct{ p50, p99, clock float64 }

var beginning = time.Now()

// clock reads the monotonic clock only, which takes half as long as time.Now.
func clock() int64 { return int64(time.Since(beginning)) }

// clockCost is what a clocked decision takes if the decision takes no time, in ns: a median.
func clockCost() float64 {
	pairs := make([]int64, 1<<12)
	for i := range pairs {
		before := clock()
		pairs[i] = clock() - before
	}
	slices.Sort(pairs)
	return quantile(pairs, 0.5)
}

// quantile is the smallest of the sorted values that at least a share q of them does not exceed.
func quantile(sorted []int64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	rank := int(math.Ceil(q * float64(len(sorted))))
	return float64(sorted[max(rank, 1)-1])
}
