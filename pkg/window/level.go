package window

import (
	"math"
	"math/bits"
	"time"
)

// Level is the amount that had not drained at the end of a bucket.
type Level struct {
	// Bucket is the number of that bucket.
	Bucket int64
	// Parts is the amount in parts of a hit. A part is 1/Buckets of a hit, so that a whole number
	// of parts drains in a bucket. At most MaxCount hits.
	Parts int64
}

// Drain is the arithmetic of a token bucket and of a leaky bucket.
//
// Both have a *level*: hits raise it, and Limit of them drain per window, at a constant rate, while
// there are any. A token bucket lets a hit pass if it then holds Burst at the most: Burst less the
// level is how many tokens it has. A leaky bucket is a queue with room for Burst: a hit joins it if
// it fits, and its turn is when what was before it has drained.
//
// The level is worked out from the counts of buckets, so that it does not matter when and in what
// order they came to be known: from the oldest bucket on, level = max(level - what drains in a
// bucket, 0) + count. That takes a bucket's hits as of its end, but for those of which [Dates] know
// better. So it is never too low, and too high by what drains in one bucket, at most. A token
// bucket never lets too many pass for that; a leaky bucket, which is to let pass as many as drain,
// takes the level as lower by as much ([Drain.Turn]). What was before the counts is a settled
// Level; it stays right whenever it was settled, as long as all know of the same limits and when
// they changed. A new limit is the rate from its own moment on: what has drained has drained.
//
// The methods take a settled level and counts, newest first: counts[0] is of Bucket(now). Counts of
// the settled bucket and of those before it, and missing ones, are taken as 0.
type Drain struct {
	Shape Shape
	// Limit is how many hits drain per Shape.Length, 1 to MaxCount.
	Limit int64
	// Burst is how many hits there is room for, 1 to MaxCount.
	Burst int64
	// Past are the limits of before, the oldest first, as far as something is not settled since;
	// nil if there are none. It is not changed.
	Past []Rate
	// Dates say when hits of these counts came, as far as that is known; nil if it is not. Only of
	// a token bucket.
	Dates *Dates
}

// Rate is a limit of before.
type Rate struct {
	// Until is when another one came, in eighths of a bucket since the epoch. (Exact parts of a
	// bucket, so that every party computes the same whole number at any time.)
	Until int64
	// Limit is as that of [Drain].
	Limit int64
}

// eighths are how many there are to a bucket, see [Rate].
const eighths = 8

// mostPast is how many limits of before are remembered.
const mostPast = 8

// InForce returns the time at which a revision that arrived now came into force, both in Unix
// nanoseconds. A revision usually is the time of its writing in milliseconds: that time is taken if
// it is within the last minute, so that all parties agree, and else now.
func InForce(revision uint64, now int64) int64 {
	const most = uint64(math.MaxInt64 / int64(time.Millisecond))
	at := int64(min(revision, most)) * int64(time.Millisecond)
	if at <= now && now-at <= int64(time.Minute) {
		return at
	}
	return now
}

// After are the limits of before, of a drain that comes after this one at a time in Unix
// nanoseconds: the same where the limit is. What is older than two windows is settled.
func (d Drain) After(limit, at int64) []Rate {
	if limit == d.Limit {
		return d.Past
	}
	size := int64(d.Shape.BucketSize())
	until := eighths*d.Shape.Bucket(at) + eighths*elapsed(at, size)/size
	if n := len(d.Past); n > 0 {
		until = max(until, d.Past[n-1].Until)
	}
	var past []Rate
	for _, r := range d.Past {
		if r.Until > until-2*eighths*int64(d.Shape.Live()+d.Shape.Buckets) {
			past = append(past, r)
		}
	}
	past = append(past, Rate{until, d.Limit})
	return past[max(len(past)-mostPast, 0):]
}

// gone returns the parts that drain between two times in eighths of a bucket, if the level is high
// enough.
func (d Drain) gone(from, to int64) (sum uint64) {
	drain := func(limit, until int64) {
		hi, lo := bits.Mul64(uint64(limit), uint64(max(until-from, 0)))
		if sum += lo / eighths; hi > 0 || sum > math.MaxInt64 {
			sum = math.MaxInt64
		}
		from = max(from, until)
	}
	for _, r := range d.Past {
		drain(r.Limit, min(r.Until, to))
	}
	drain(d.Limit, to)
	return sum
}

// Settle advances a level to the end of a bucket. A level that is at that end or later is returned
// unchanged. counts[0] is the count of the bucket newest.
func (d Drain) Settle(l Level, counts []int64, newest, bucket int64) Level {
	for l.Bucket < bucket {
		next := newest - int64(len(counts)) + 1 // the oldest that has a count
		if next = min(max(next, l.Bucket+1), bucket); next > newest {
			next = bucket
		}
		var count, gone int64
		if age := newest - next; age >= 0 && age < int64(len(counts)) {
			if count = d.parts(counts[age]); count > 0 && d.Dates != nil {
				gone = min(d.goneBy(newest, age), count)
			}
		}
		if gone > 0 {
			l.Parts = max(d.drained(l.Parts, l.Bucket, next-1)-d.drains(next), -gone)
		} else {
			l.Parts = d.drained(l.Parts, l.Bucket, next)
		}
		l.Parts = min(l.Parts+count, d.parts(MaxCount))
		l.Bucket = next
	}
	return l
}

// drained returns the level at the end of the bucket to, from the level at the end of an earlier
// bucket and without hits between them.
func (d Drain) drained(parts, from, to int64) int64 {
	buckets := to - from
	// Not changedIn, which is not inlined: this runs for every bucket.
	if n := len(d.Past); n > 0 && d.Past[n-1].Until > eighths*(from+1) {
		return max(parts-int64(d.gone(eighths*(from+1), eighths*(to+1))), 0)
	}
	if hi, lo := bits.Mul64(uint64(d.Limit), uint64(buckets)); hi == 0 && lo < uint64(parts) {
		return parts - int64(lo)
	}
	return 0
}

func (d Drain) parts(hits int64) int64 { return min(hits, MaxCount) * int64(d.Shape.Buckets) }

// at returns the part of the level that drains in the bucket of now, the time in that bucket as of
// which it drains, and the parts that the bucket adds at its end.
func (d Drain) at(l Level, counts []int64, now int64) (level, from, added int64) {
	current := d.Shape.Bucket(now)
	if l.Bucket >= current { // the clock of another party is ahead
		return l.Parts, 0, 0
	}
	level = d.Settle(l, counts, current, current-1).Parts
	if len(counts) == 0 {
		return level, 0, 0
	}
	own, as := d.dated(now)
	own = min(own, counts[0])
	added = d.parts(counts[0] - own)
	if own > 0 && level < d.ebbedUp(as) { // all other hits had drained before these came
		return d.parts(own), as, added
	}
	return level + d.parts(own), 0, added
}

// Level is the level at now, in parts of a hit, at most twice MaxCount hits.
func (d Drain) Level(l Level, counts []int64, now int64) int64 {
	level, from, added := d.at(l, counts, now)
	if d.changed(now) {
		return max(level-d.ebbedAll(now), 0) + added
	}
	return max(level-d.ebbed(elapsed(now, int64(d.Shape.BucketSize())), from), 0) + added
}

// ebbed returns the parts that drain at the present limit between two times in a bucket, if the
// level is high enough.
func (d Drain) ebbed(into, from int64) int64 {
	gone, _ := mulDiv(d.Limit, max(into-from, 0), int64(d.Shape.BucketSize()))
	return int64(gone)
}

// ebbedUp is ebbed since the start of the bucket, rounded up.
func (d Drain) ebbedUp(into int64) int64 {
	return roundUp(mulDiv(d.Limit, into, int64(d.Shape.BucketSize())))
}

// ebbedAll returns the parts that have drained since the start of the bucket of now, in which the
// limit has changed, if the level was high enough.
func (d Drain) ebbedAll(now int64) int64 {
	size := int64(d.Shape.BucketSize())
	start := eighths * d.Shape.Bucket(now)
	return int64(d.gone(start, start+elapsed(now, size)*eighths/size))
}

// drains returns the parts that drain in a bucket, if the level is high enough.
func (d Drain) drains(bucket int64) int64 {
	if n := len(d.Past); n > 0 && d.Past[n-1].Until > eighths*bucket {
		return int64(d.gone(eighths*bucket, eighths*(bucket+1)))
	}
	return d.Limit
}

// changed reports whether the limit changes in the bucket of now.
func (d Drain) changed(now int64) bool { return d.changedIn(d.Shape.Bucket(now)) }

// changedIn is changed of a bucket.
func (d Drain) changedIn(bucket int64) bool {
	n := len(d.Past)
	return n > 0 && d.Past[n-1].Until > eighths*bucket
}

// Count returns the hits that have not drained at now, with their fraction: the level, or for a
// leaky bucket the certain part of it. It is for people and alarms; decisions do not round.
func (d Drain) Count(l Level, counts []int64, now int64) float64 {
	return float64(d.queued(d.Level(l, counts, now))) / float64(d.Shape.Buckets)
}

// queued returns the parts of a level that count against Burst.
func (d Drain) queued(parts int64) int64 {
	if d.Shape.Kind == Leaky {
		return max(parts-d.Limit, 0)
	}
	return parts
}

// Use returns the part of the room that the level takes up at now, from 0 to more than 1. A leaky
// bucket has room for one hit at a time without a wait: it is in use while a wait is near.
func (d Drain) Use(l Level, counts []int64, now int64) float64 {
	if d.Shape.Kind == Leaky {
		return float64(d.Level(l, counts, now)) / float64(d.Limit)
	}
	return float64(d.Level(l, counts, now)) / float64(d.Shape.Buckets) / float64(d.Burst)
}

// Remaining is the largest cost for which there is room at now, at least 0.
func (d Drain) Remaining(l Level, counts []int64, now int64) int64 {
	return max(d.parts(d.Burst)-d.queued(d.Level(l, counts, now)), 0) / int64(d.Shape.Buckets)
}

// RetryAfter is the least wait after which there is room for the cost, if nothing else comes in the
// meantime, as [Shape.RetryAfter].
func (d Drain) RetryAfter(l Level, counts []int64, cost, now int64) (wait time.Duration, ok bool) {
	if cost > d.Burst {
		return 0, false
	}
	return d.ebb(l, counts, d.parts(d.Burst)-d.parts(cost), now), true
}

// Turn returns the time until a hit that joins the queue of a leaky bucket now has its turn, when
// the hits before it have drained. With counts that include the hit already, it is the time until
// the hit itself has drained. It may be early by up to the length of a bucket.
func (d Drain) Turn(l Level, counts []int64, now int64) time.Duration {
	return d.ebb(l, counts, 0, now)
}

// Reset returns the time until everything has drained, if no more hits come.
func (d Drain) Reset(l Level, counts []int64, now int64) time.Duration {
	return d.until(l, counts, 0, now)
}

// ebb returns the time until at most these parts count against Burst.
func (d Drain) ebb(l Level, counts []int64, parts, now int64) time.Duration {
	if d.Shape.Kind == Leaky {
		parts += d.Limit
	}
	return d.until(l, counts, parts, now)
}

// until returns the shortest wait after which the level is at most these parts.
func (d Drain) until(l Level, counts []int64, parts, now int64) time.Duration {
	level, from, added := d.at(l, counts, now)
	size := int64(d.Shape.BucketSize())
	into := elapsed(now, size)
	if d.changed(now) { // take what has drained as drained before at the rate of now
		level = max(level-d.ebbedAll(now), 0) + d.ebbed(into, 0)
		d.Past = nil
	}
	if level+added <= parts {
		return 0
	}
	if added <= parts { // while this bucket lasts only what drains in it does
		if end := from + d.span(level+added-parts); end <= size {
			return time.Duration(max(end-into, 0))
		}
	}
	// More than 0, or the wait would have ended above.
	rest := max(level-d.ebbed(size, from), 0) + added - parts
	return time.Duration(min(size-into+d.span(rest), longest))
}

// longest keeps a wait, and a time after it, within an int64.
const longest = int64(math.MaxInt64 / 4)

// span returns the time in which the parts drain, in ns, rounded up.
func (d Drain) span(parts int64) int64 {
	ns, rest := d.spanOf(parts)
	return min(roundUp(ns, rest), longest)
}

// spanOf is that time rounded down, and what remains.
func (d Drain) spanOf(parts int64) (ns, rest uint64) {
	hi, lo := bits.Mul64(uint64(parts), uint64(d.Shape.BucketSize()))
	if hi >= uint64(d.Limit) {
		return uint64(longest), 0
	}
	ns, rest = bits.Div64(hi, lo, uint64(d.Limit))
	return min(ns, uint64(longest)), rest
}
