package tap

import (
	"sort"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Hit is an admitted hit whose way is looked for.
type Hit struct {
	At      int64 // Unix nanoseconds
	Bucket  int64
	Key     int32
	Checker int
	// Holders are the other checkers that hold the key.
	Holders []int
}

// Lag is how long hits took until others knew of them.
type Lag struct {
	Nanoseconds *hdrhistogram.Histogram
	// Never counts the cases in which a checker was told nothing of a hit before that did not
	// matter any more. Truncated says that a trace was full before the end.
	Never     int64
	Truncated bool
}

// longest lag that is told apart from longer ones.
const longestLag = int64(600e9)

// FindLag looks for the ways of hits in the traces of all checkers, by the checkers' numbers; a nil
// trace is of a checker that is not listened to. until returns the time from which a bucket does
// not matter any more. What is told at end or later does not count; a case that was open then is in
// no figure.
func FindLag(traces []*Trace, hits []Hit, end int64, until func(h Hit) int64) Lag {
	lag := Lag{Nanoseconds: hdrhistogram.New(1000, longestLag, 3)}
	for _, h := range hits {
		if traces[h.Checker] == nil {
			continue
		}
		total, reported := traces[h.Checker].totalOf(h)
		for _, holder := range h.Holders {
			if traces[holder] == nil {
				continue
			}
			at, told := traces[holder].knew(h, total)
			told = told && reported && at < end
			switch deadline := until(h); {
			case told && at < deadline:
				_ = lag.Nanoseconds.RecordValue(min(max(at-h.At, 1000), longestLag)) // within its bounds
			case told || deadline <= min(end, traces[h.Checker].fullAt(), traces[holder].fullAt()):
				lag.Never++
			}
		}
	}
	for _, t := range traces {
		lag.Truncated = lag.Truncated || t != nil && t.fullAt() < end
	}
	return lag
}

// totalOf returns the total that answered the report with this hit in it.
func (t *Trace) totalOf(h Hit) (total int64, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := t.sends[h.Key]
	for i := sort.Search(len(list), func(i int) bool { return list[i].at >= h.At }); i < len(list); i++ {
		if list[i].bucket == h.Bucket {
			return list[i].total, list[i].total > 0
		}
	}
	return 0, false
}

// knew returns when the checker was first told of at least this total of the hit's bucket.
func (t *Trace) knew(h Hit, total int64) (at int64, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := t.told[h.Key]
	for i := sort.Search(len(list), func(i int) bool { return list[i].at >= h.At }); i < len(list); i++ {
		if list[i].bucket == h.Bucket && list[i].total >= total {
			return list[i].at, true
		}
	}
	return 0, false
}
