package storage

import (
	"math"

	"github.com/offpath-io/offpath/pkg/events"
)

const maxCount = int64(events.MaxCount)

// Cell is a count for a bucket.
type Cell struct {
	Bucket, Count int64
}

// CountOf returns the count of a bucket, 0 if no cell has it.
func CountOf(cells []Cell, bucket int64) int64 {
	for i := len(cells) - 1; i >= 0; i-- {
		if cells[i].Bucket == bucket {
			return cells[i].Count
		}
	}
	return 0
}

// Total is the sum of all counts.
func Total(cells []Cell) (sum int64) {
	for _, c := range cells {
		sum = Sum(sum, c.Count)
	}
	return sum
}

// Sum adds two counts, neither of them negative. A sum beyond int64, which takes a broken checker,
// stays at the largest value.
func Sum(a, b int64) int64 {
	if sum := a + b; sum >= 0 {
		return sum
	}
	return math.MaxInt64
}
