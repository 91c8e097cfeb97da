// Package level computes the level of one key of a token or leaky bucket, as far as a checker knows
// it.
//
// Hits raise the *level*, and it drains at a constant rate. It is computed from a total of hits per
// bucket of time, as in windows, and from a *settled level*: the hits that had not drained at the
// end of an earlier bucket. The settled level in answers and alarms is final, since no report can
// add to the buckets before it any more. A [State] keeps the newest one that it has received, and
// computes a later one from its own counts when buckets leave the counts. The arithmetic is in
// [window.Drain]; a State adds what only the checker knows:
//
//   - when its own hits of a token bucket came, so that tokens come back in time;
//   - when the next of its own hits in the queue of a leaky bucket has its turn;
//   - the level of its own hits alone, for the time without aggregators, when it keeps to its
//     share.
//
// A State belongs to a counter, whose lock guards it, but has no reference to it: each call passes
// the state of the counter in a [Situation]. A time is the fleet's, in ns, and lies in the
// counter's newest bucket.
package level

import (
	"github.com/offpath-io/offpath/pkg/check/internal/fleetclock"
	"github.com/offpath-io/offpath/pkg/check/internal/forecast"
	"github.com/offpath-io/offpath/pkg/window"
)

// State is the level of a counter of a token or leaky bucket, beside its counts. Other counters
// have none; methods that say so can be called on a nil State.
type State struct {
	level window.Level // of a bucket before the newest
	// dates are the times at which own hits of a token bucket came. With them the level is lower by
	// slack parts than by counts alone.
	dates window.Dates
	slack int64
	// own is the level of the own hits that only this checker counts. Each counts once per checker
	// of the fleet, so that they drain at this checker's share of the rate. It is used while this
	// checker keeps to its share.
	own window.Level
	// turn is the fleet time at which the last own hit in the queue of a leaky bucket has drained.
	// Others' hits are known by bucket, own hits to the nanosecond.
	turn   int64
	others forecast.Outflow
}

// Situation is the part of its counter and of the fleet that a State needs. Counts are per bucket,
// newest first, and must not be written.
type Situation struct {
	Drain    *window.Drain // of the limits that apply, without dates; it is not changed
	Newest   int64         // bucket of the first counts
	Net      []int64       // totals less refunds
	Refunded []int64       // refunds; nil if there are none
	Own      []int64       // own hits that only this checker counts
	Checkers int64         // size of the fleet
	Shared   bool          // other checkers admit hits of the key, too
	Apart    bool          // for now, no other checker learns of own hits
	Share    bool          // so this checker keeps to its share of the rate
}

// Reset makes it the state of a key without hits, settled at the end of a bucket. It reuses its
// memory.
func (l *State) Reset(bucket int64) {
	l.Forget(bucket)
	*l = State{level: l.level, own: l.level, dates: l.dates}
}

// Forget makes the settled level 0 at the end of a bucket: the store has lost its data.
func (l *State) Forget(bucket int64) {
	l.level, l.slack = window.Level{Bucket: bucket}, 0
	l.dates.Clear()
}

// Copy makes it a copy of another State. It reuses its memory.
func (l *State) Copy(of *State) {
	dates := l.dates
	dates.Copy(&of.dates)
	*l = *of
	l.dates = dates
}

// Rebucket moves the level after the clock was corrected by a step, which moves hits by this many
// buckets.
func (l *State) Rebucket(by, step int64) {
	l.level.Bucket += by
	l.own.Bucket += by
	l.turn += step
	l.dates.Clear()
}

// PullBack adjusts the level after an earlier bucket has become the newest one, with the hits of
// later buckets.
func (l *State) PullBack(newest int64) {
	l.dates.Clear()
	l.hold(newest)
}

// hold keeps the level before the newest bucket: a level of a later bucket, by a clock that was
// ahead, has not drained yet.
func (l *State) hold(newest int64) {
	l.level.Bucket = min(l.level.Bucket, newest-1)
	l.own.Bucket = min(l.own.Bucket, newest-1)
}

// Date records when own hits of the newest bucket came. A nil State ignores them.
func (l *State) Date(by *window.Drain, newest, at, hits int64) {
	if l != nil && by.Shape.Kind == window.Token {
		l.dates.Add(*by, newest, at, hits)
	}
}

// Datable returns until when an allowance from a time on may last: at most until end. Under a token
// bucket all of its hits get the date of its end, so it lasts at most a tenth of the time in which
// a hit drains, or a tick of the clock if that is more.
func Datable(by *window.Drain, at, end int64) int64 {
	if by.Shape.Kind != window.Token {
		return end
	}
	takes := int64(by.Shape.Length) / max(by.Limit, 1)
	return min(end, at+max(takes/10, int64(fleetclock.TickEvery)))
}

// Undate removes the dates of own hits of a bucket with this age, which came after this many other
// hits of the bucket. A nil State ignores them.
func (l *State) Undate(by *window.Drain, age, hits, after int64) {
	if l != nil && by.Shape.Kind == window.Token {
		l.dates.Remove(*by, age, hits, after)
	}
}

// drain returns the arithmetic for the net counts, with the dates of own hits.
func (l *State) drain(s *Situation) window.Drain {
	by := *s.Drain
	if by.Shape.Kind == window.Token {
		l.dates.Taken = s.Refunded
		by.Dates = &l.dates
	}
	return by
}

// Advance brings the levels forward before the counter rotates by this many buckets: the counts of
// the buckets that leave go into them.
func (l *State) Advance(s *Situation, by int64) {
	live := len(s.Net)
	to := s.Newest + by - int64(live)
	l.bringForward(s, to)
	l.dates.Advance(*s.Drain, s.Newest, by, live)
	if s.Apart {
		l.own = s.Drain.Settle(l.own, s.scaledOwn(), s.Newest, to)
	} else {
		l.own = window.Level{Bucket: to}
	}
}

// bringForward brings the level forward to the end of a bucket.
func (l *State) bringForward(s *Situation, bucket int64) {
	late := l.level
	late.Parts += l.slack
	l.level = l.drain(s).Settle(l.level, s.Net, s.Newest, bucket)
	l.slack = s.Drain.Settle(late, s.Net, s.Newest, bucket).Parts - l.level.Parts
}

// scaledOwn returns own hits times the number of checkers, up to the largest count.
func (s *Situation) scaledOwn() []int64 {
	scaled := make([]int64, len(s.Own))
	for i, n := range s.Own {
		scaled[i] = min(n, window.MaxCount/s.Checkers) * s.Checkers
	}
	return scaled
}

// Observe merges a settled level from a message; a negative one is ignored. hits returns the
// message's hits of a bucket; if vague, the counter's own counts are better than these.
func (l *State) Observe(s *Situation, told window.Level, hits func(int64) int64, vague bool) {
	if told.Parts < 0 {
		return
	}
	if told.Bucket < s.Newest {
		l.bringForward(s, told.Bucket)
	} else {
		l.slack = 0
	}
	if told.Bucket < l.level.Bucket {
		if vague {
			return
		}
		// Bring it forward with the message's hits, which may not be all hits, and are none for
		// buckets of long ago.
		if far := l.level.Bucket - 2*int64(len(s.Net)); told.Bucket < far {
			told = s.Drain.Settle(told, nil, far, far)
		}
		for next := told.Bucket + 1; next <= l.level.Bucket; next++ {
			told = s.Drain.Settle(told, []int64{hits(next)}, next, next)
		}
		told.Parts = max(told.Parts, l.level.Parts+l.slack)
	}
	// Up to the level by counts alone, the parts are of known hits, some of which have drained
	// earlier.
	early := told
	if l.slack > 0 && told.Parts <= l.level.Parts+l.slack {
		early.Parts = min(told.Parts, l.level.Parts)
	}
	l.level, l.slack = early, told.Parts-early.Parts
	l.hold(s.Newest)
}

// Covers returns whether the settled level includes the hits of a bucket.
func (l *State) Covers(bucket int64) bool { return bucket <= l.level.Bucket }

// IsEmpty returns whether the settled level is 0. A nil State is empty.
func (l *State) IsEmpty() bool { return l == nil || l.level.Parts == 0 }
