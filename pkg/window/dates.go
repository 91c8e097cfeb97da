package window

import "math"

// Dates hold when the own hits of one party came to a token bucket, as far as it is known. All
// other hits count from the end of their bucket.
//
// For the newest bucket that is one time: its hits leave the same level as if all had come then. It
// is the latest, over all hits, of the time of the hit less the time in which those before it
// drain. For each older bucket it is the number of its hits that had drained by its end, where
//
//	level = max(level - what drains in a bucket, -drained) + count
//
// So the level by own hits is exact, but for a part of a hit. With others' hits among the counts it
// is still never too low: these can only have kept own ones from draining sooner.
//
// The zero value knows no hits. The same party keeps counts, newest first, beside it. It is not
// safe for concurrent use, and must not be copied by assignment (see Copy).
type Dates struct {
	own   int64    // hits of the newest bucket that have been dated
	added int64    // the same, and those that were taken out again
	as    int64    // ns into it, as of which they drain
	last  int64    // ns into it, when the last of them came
	rate  int64    // the limit by which this was reckoned
	gone  []uint32 // by age, from 1 on: parts that have drained in that bucket of its own hits
	// Taken are hits of each bucket, newest first, that have been given back, of which it is not
	// known when they came; or nil.
	Taken []int64
}

// Add notes own hits at a time of the bucket that is the newest. A time that is not in it is the
// nearest that is.
func (t *Dates) Add(d Drain, newest, at, hits int64) {
	if hits <= 0 {
		return
	}
	size := int64(d.Shape.BucketSize())
	into := min(max(at-d.Shape.End(newest-1), 0), size)
	if t.own == 0 || t.rate != d.Limit {
		t.as = into
	} else {
		t.as = max(t.as, into-d.takes(t.own))
	}
	t.last, t.rate = max(t.last, into), d.Limit
	t.own += hits
	t.added += hits
}

// Added is how many own hits of the newest bucket have been noted so far.
func (t *Dates) Added() int64 { return t.added }

// Remove takes own hits of a bucket of some age out. When they came is not known, only that at
// least after hits of that bucket had been noted before them; 0 is always true.
func (t *Dates) Remove(d Drain, age, hits, after int64) {
	switch {
	case hits <= 0:
	case age == 0:
		before := max(after-(t.added-t.own), 0) // as those taken out may have been among them
		t.as = max(t.as, min(t.as+d.takes(hits), t.last-d.takes(before)))
		t.own = max(t.own-hits, 0)
	case age <= int64(len(t.gone)):
		t.gone[age-1] -= uint32(min(int64(t.gone[age-1]), d.parts(hits)))
	}
}

// Advance makes the bucket newest+by the newest one. d has the limits from before.
func (t *Dates) Advance(d Drain, newest, by int64, live int) {
	if by <= 0 {
		return
	}
	gone := uint32(min(t.goneNow(d, newest), math.MaxUint32))
	if len(t.gone) == 0 && gone > 0 {
		t.gone = append(t.gone, make([]uint32, live-1)...)
	}
	if n := int64(len(t.gone)); n > 0 {
		keep := max(n-by, 0)
		copy(t.gone[n-keep:], t.gone[:keep])
		clear(t.gone[:n-keep])
		if by <= n {
			t.gone[by-1] = gone
		}
	}
	t.own, t.added, t.as, t.last = 0, 0, 0, 0
}

// goneNow is how much of the newest bucket's own hits has drained at its end.
func (t *Dates) goneNow(d Drain, newest int64) int64 {
	if t.rate != d.Limit || d.changedIn(newest) {
		return 0
	}
	return min(d.ebbed(int64(d.Shape.BucketSize()), t.as), d.parts(t.own))
}

// Clear forgets everything.
func (t *Dates) Clear() {
	*t = Dates{gone: t.gone[:0]}
}

// Copy makes t, whose memory it keeps, a copy of another.
func (t *Dates) Copy(of *Dates) {
	gone := append(t.gone[:0], of.gone...)
	*t = *of
	t.gone = gone
}

// dated is how many own hits the bucket of now has that drain in it, and as of when.
func (d Drain) dated(now int64) (own, as int64) {
	t := d.Dates
	if t == nil || t.own == 0 || t.rate != d.Limit || d.changed(now) {
		return 0, 0
	}
	own, as = t.own, t.as
	if len(t.Taken) > 0 && t.Taken[0] > 0 {
		own, as = max(own-t.Taken[0], 0), min(as+d.takes(t.Taken[0]), int64(d.Shape.BucketSize()))
	}
	return own, as
}

// goneBy is how much of a bucket's hits has drained in it, by its age among the counts.
func (d Drain) goneBy(newest, age int64) (gone int64) {
	t := d.Dates
	switch {
	case t == nil || age < 0 || age > int64(len(t.gone)):
		return 0
	case age == 0:
		gone = t.goneNow(d, newest)
	default:
		gone = int64(t.gone[age-1])
	}
	if age < int64(len(t.Taken)) {
		gone = max(gone-d.parts(t.Taken[age]), 0)
	}
	return gone
}

// takes returns the time in which the hits drain, in ns, rounded down.
func (d Drain) takes(hits int64) int64 {
	ns, _ := d.spanOf(d.parts(hits))
	return int64(ns)
}
