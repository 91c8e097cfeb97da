// Package level keeps what a checker knows of the level of one key of a token or leaky bucket.
//
// Hits raise the *level*, and it drains at a constant rate. It is reckoned from what windows have
// too, a total of hits per bucket of time, and from a *settled level*: what had not drained at the
// end of an earlier bucket. Answers and alarms tell of one that is final, since no report can add
// to the buckets before it any more. A [State] keeps the newest that it was told, and brings it
// forward itself, by what the checker knows, when buckets leave the counts. The arithmetic is
// [window.Drain]'s; a State adds what only the checker has:
//
//   - when its own hits of a token bucket came, so that tokens come back in time;
//   - when the next of its own hits in the queue of a leaky bucket has its turn;
//   - the level of its own hits alone, for when it hears from nobody and keeps to its share.
//
// A State belongs to a counter, whose lock guards it, and knows nothing of it: what it needs of the
// counter comes with each call, in a [Situation]. A time is one of the fleet, in ns, and of the
// counter's newest bucket.
package level

import (
	"github.com/offpath-io/offpath/pkg/check/internal/fleetclock"
	"github.com/offpath-io/offpath/pkg/check/internal/forecast"
	"github.com/offpath-io/offpath/pkg/window"
)

// State is what the counter of a key of a token or leaky bucket has beside its counts. Other
// counters have none; those methods that say so can be called on a nil State.
type State struct {
	level window.Level // of a bucket before the newest
	// dates are when own hits of a token bucket came, for which level is lower, by so many parts,
	// than by counts alone.
	dates window.Dates
	slack int64
	// own is that of own hits alone which nobody else counts, each counted as often as there are
	// checkers, so that they drain at this checker's share of the rate. It is of use while this
	// checker keeps to its share.
	own window.Level
	// turn is when the last own hit in the queue of a leaky bucket has drained; fleet time. Others'
	// hits are known by bucket, own ones to the nanosecond.
	turn   int64
	others forecast.Outflow
}

// Situation is what a State has to know of its counter when it is asked, and of the fleet. Counts
// are per bucket, newest first, and only to be read.
type Situation struct {
	Drain    *window.Drain // of the limits that apply, without dates; it is not changed
	Newest   int64         // bucket of the first counts
	Net      []int64       // hits that count: less those that were given back
	Refunded []int64       // those that were given back; nil if none were
	Own      []int64       // own hits that nobody else counts
	Checkers int64         // size of the fleet
	Shared   bool          // others let hits of the key pass, too
	Apart    bool          // for now, nobody else hears of own hits
	Share    bool          // so this checker keeps to its share of the rate
}

// Reset makes it the state of a key without hits, settled at the end of a bucket. It keeps its
// memory.
func (l *State) Reset(bucket int64) {
	l.Forget(bucket)
	*l = State{level: l.level, own: l.level, dates: l.dates}
}

// Forget makes the settled level that of no hits at the end of a bucket: what the store knew is
// lost.
func (l *State) Forget(bucket int64) {
	l.level, l.slack = window.Level{Bucket: bucket}, 0
	l.dates.Clear()
}

// Copy makes it a copy of another. It keeps its memory.
func (l *State) Copy(of *State) {
	dates := l.dates
	dates.Copy(&of.dates)
	*l = *of
	l.dates = dates
}

// Rebucket takes in that the clock was corrected by a step, and that hits belong to so many buckets
// later.
func (l *State) Rebucket(by, step int64) {
	l.level.Bucket += by
	l.own.Bucket += by
	l.turn += step
	l.dates.Clear()
}

// PullBack takes in that the newest bucket is an earlier one now, which has the hits of those after
// it.
func (l *State) PullBack(newest int64) {
	l.dates.Clear()
	l.hold(newest)
}

// hold keeps the level before the newest bucket: what is of later ones, by a clock that was ahead,
// has not drained yet.
func (l *State) hold(newest int64) {
	l.level.Bucket = min(l.level.Bucket, newest-1)
	l.own.Bucket = min(l.own.Bucket, newest-1)
}

// Date notes own hits of the newest bucket, and when they came. A nil State does not.
func (l *State) Date(by *window.Drain, newest, at, hits int64) {
	if l != nil && by.Shape.Kind == window.Token {
		l.dates.Add(*by, newest, at, hits)
	}
}

// Datable is until when an allowance may last from a time on: to an end at most, and under a token
// bucket, whose hits are dated when it ends, not longer than a tenth of what one takes to drain, or
// a tick of the clock.
func Datable(by *window.Drain, at, end int64) int64 {
	if by.Shape.Kind != window.Token {
		return end
	}
	takes := int64(by.Shape.Length) / max(by.Limit, 1)
	return min(end, at+max(takes/10, int64(fleetclock.TickEvery)))
}

// Undate takes in that own hits of a bucket of some age, which came after so many others of it, are
// none any more. A nil State has none.
func (l *State) Undate(by *window.Drain, age, hits, after int64) {
	if l != nil && by.Shape.Kind == window.Token {
		l.dates.Remove(*by, age, hits, after)
	}
}

// drain is the arithmetic for the net counts, with what is known of when own hits came.
func (l *State) drain(s *Situation) window.Drain {
	by := *s.Drain
	if by.Shape.Kind == window.Token {
		l.dates.Taken = s.Refunded
		by.Dates = &l.dates
	}
	return by
}

// Advance brings the levels forward when so many new buckets are about to come: the counts of those
// that leave go into them.
func (l *State) Advance(s *Situation, by int64) {
	live := len(s.Net)
	to := s.Newest + by - int64(live)
	l.settle(s, to)
	l.dates.Advance(*s.Drain, s.Newest, by, live)
	if s.Apart {
		l.own = s.Drain.Settle(l.own, s.scaledOwn(), s.Newest, to)
	} else {
		l.own = window.Level{Bucket: to}
	}
}

// settle brings the level forward to the end of a bucket.
func (l *State) settle(s *Situation, bucket int64) {
	late := l.level
	late.Parts += l.slack
	l.level = l.drain(s).Settle(l.level, s.Net, s.Newest, bucket)
	l.slack = s.Drain.Settle(late, s.Net, s.Newest, bucket).Parts - l.level.Parts
}

// scaledOwn are own hits, each as often as there are checkers, up to what can be counted.
func (s *Situation) scaledOwn() []int64 {
	scaled := make([]int64, len(s.Own))
	for i, n := range s.Own {
		scaled[i] = min(n, window.MaxCount/s.Checkers) * s.Checkers
	}
	return scaled
}

// Observe takes in a settled level from a message; one below 0 says nothing. hits is how many hits
// of a bucket the message tells of; if vague, what the counter knows of these is better.
func (l *State) Observe(s *Situation, told window.Level, hits func(int64) int64, vague bool) {
	if told.Parts < 0 {
		return
	}
	if told.Bucket < s.Newest {
		l.settle(s, told.Bucket)
	} else {
		l.slack = 0
	}
	if told.Bucket < l.level.Bucket {
		if vague {
			return
		}
		// Bring it forward by what the message says, which may not be all, and is nothing about
		// buckets of long ago.
		if far := l.level.Bucket - 2*int64(len(s.Net)); told.Bucket < far {
			told = s.Drain.Settle(told, nil, far, far)
		}
		for next := told.Bucket + 1; next <= l.level.Bucket; next++ {
			told = s.Drain.Settle(told, []int64{hits(next)}, next, next)
		}
		told.Parts = max(told.Parts, l.level.Parts+l.slack)
	}
	// As many parts as by counts alone are of hits that are known, some of which have drained
	// sooner.
	early := told
	if l.slack > 0 && told.Parts <= l.level.Parts+l.slack {
		early.Parts = min(told.Parts, l.level.Parts)
	}
	l.level, l.slack = early, told.Parts-early.Parts
	l.hold(s.Newest)
}

// Covers says whether the settled level is newer than the hits of a bucket, and so has them.
func (l *State) Covers(bucket int64) bool { return bucket <= l.level.Bucket }

// IsEmpty says whether what was settled had all drained. A nil State is empty.
func (l *State) IsEmpty() bool { return l == nil || l.level.Parts == 0 }
