package storage

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/offpath-io/offpath/pkg/window"
)

// Room is how many permits of the current bucket may be granted at now, at least 0; held are those
// granted before. Permits of buckets ahead of now, which an aggregator with a fast clock grants,
// count in full if a window can hold both, so that no such window ever holds too many.
func Room(s window.Shape, held []Cell, limit, now int64) int64 {
	return s.Remaining(LayOut(nil, s, held, now), limit, now)
}

// ByAge adds up counts by the age of their buckets, newest first, as package window takes them.
// Hits ahead of an aggregator's clock are in the current bucket soon enough, so they count there.
// It reuses the memory of dst.
func ByAge(dst []int64, s window.Shape, cells []Cell, now int64) []int64 {
	live := s.Live()
	dst = slices.Grow(dst[:0], live)[:live]
	clear(dst)
	current := s.Bucket(now)
	for _, c := range cells {
		if age := max(current-c.Bucket, 0); age < int64(live) {
			dst[age] = Sum(dst[age], c.Count)
		}
	}
	return dst
}

// LayOut is ByAge without the counts, in ascending order of buckets, that no window can hold
// together with those of now.
func LayOut(dst []int64, s window.Shape, held []Cell, now int64) []int64 {
	last, n := s.Bucket(now)+int64(s.Live())-1, len(held)
	for n > 0 && held[n-1].Bucket > last {
		n--
	}
	return ByAge(dst, s, held[:n], now)
}

// QuietUntil is the time until which nothing is granted after a shard has lost its data at lost:
// after as many buckets as a window can meet, every bucket that had begun by then has left it.
// Until then nobody knows which of their permits are held. 0 if nothing was ever lost.
func QuietUntil(s window.Shape, lost int64) int64 {
	if lost == 0 {
		return 0
	}
	return lost + int64(s.Live())*int64(s.BucketSize())
}

// Divide shares room out among wants, none of them negative, in proportion, and returns a share for
// each: never more than it wants, and in total room, if they want that much. The remainder after
// rounding down goes to the largest remainders, of equal ones to the earlier.
func Divide(room int64, wants []int64) []int64 {
	all := uint64(0) // a batch has too few requests for this to overflow
	for _, w := range wants {
		all += uint64(w)
	}
	if all <= uint64(max(room, 0)) {
		return slices.Clone(wants)
	}
	shares := make([]int64, len(wants))
	if room <= 0 {
		return shares
	}
	rest := room
	remainders := make([]uint64, len(wants))
	order := make([]int, len(wants))
	for i, w := range wants {
		hi, lo := bits.Mul64(uint64(room), uint64(w))
		share, remainder := bits.Div64(hi, lo, all) // hi < all, as room < all and w < 2^64
		shares[i], remainders[i], order[i] = int64(share), remainder, i
		rest -= shares[i]
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(remainders[j], remainders[i]) })
	for _, i := range order[:rest] {
		shares[i]++
	}
	return shares
}
