package level

import (
	"math"
	"time"

	"github.com/offpath-io/offpath/pkg/window"
)

// Remaining returns how many hits fit by the known counts; under a leaky bucket, how many fit
// without a wait.
func (l *State) Remaining(s *Situation, at int64) int64 {
	switch {
	case s.Drain.Shape.Kind == window.Token:
		return l.drain(s).Remaining(l.level, s.Net, at)
	case l.waitsFor(s, at) > 0:
		return 0
	}
	return s.Drain.Burst
}

// RetryIn returns how long until a hit fits by the known counts, if there are no more hits; false
// if it never does.
func (l *State) RetryIn(s *Situation, cost, at int64) (time.Duration, bool) {
	if s.Drain.Shape.Kind == window.Token {
		return l.drain(s).RetryAfter(l.level, s.Net, cost, at)
	}
	return l.waitsFor(s, at), cost <= s.Drain.Burst
}

// Count returns how much of the bucket is in use, by the known counts.
func (l *State) Count(s *Situation, at int64) float64 {
	return l.drain(s).Count(l.level, s.Net, at)
}

// Freed returns how many hits drain per ns at present.
func (l *State) Freed(s *Situation, at int64) float64 {
	if l.drain(s).Level(l.level, s.Net, at) == 0 {
		return 0
	}
	return float64(s.Drain.Limit) / float64(s.Drain.Shape.Length)
}

// OwnCount returns how much of the bucket the own hits that only this checker counts use, if each
// checker keeps to its share of the rate.
func (l *State) OwnCount(s *Situation, at int64) float64 {
	return s.Drain.Count(l.own, s.scaledOwn(), at) / float64(s.Checkers)
}

// ShareIn returns how long until a hit fits this checker's share of a token bucket, while it keeps
// to the share; false if it never does, or if the checker owes as many tokens already as the share
// can hold. For a leaky bucket it returns 0: the distance of its turns takes the share into
// account.
func (l *State) ShareIn(s *Situation, cost, at int64) (time.Duration, bool) {
	if s.Drain.Shape.Kind != window.Token || !s.Share {
		return 0, true
	}
	burst, n, own := s.Drain.Burst, s.Checkers, s.scaledOwn()
	if cost > burst/n || s.Drain.Count(l.own, own, at)+float64(cost*n) > 2*float64(burst) {
		return 0, false
	}
	return s.Drain.RetryAfter(l.own, own, cost*n, at)
}

// MayQueue returns whether the queue has room for a hit that does not fit now.
func (l *State) MayQueue(s *Situation, cost, at int64) bool {
	burst := s.Drain.Burst
	if s.Drain.Shape.Kind == window.Leaky {
		own := (l.turn - at) / max(l.gap(s, 1), 1) // hits of the queue, known to the nanosecond
		return min(s.Drain.Remaining(l.level, s.Net, at), burst-max(own, 0)) >= cost
	}
	return l.Count(s, at)+float64(cost) <= 2*float64(burst)
}

// LastBucket returns the last bucket that has to leave the counts before the state is empty, if
// there are no more hits.
func (l *State) LastBucket(s *Situation, at int64) int64 {
	last := s.Newest - int64(len(s.Net)) // has just left them
	if l.level.Parts > 0 {
		last++
	}
	if reset := s.Drain.Reset(l.level, s.Net, at); reset > 0 {
		last = max(last, s.Drain.Shape.Bucket(at+int64(reset)))
	}
	return last
}

// waitsFor returns how long until the turn of a hit that joins the queue of a leaky bucket.
func (l *State) waitsFor(s *Situation, at int64) time.Duration {
	wait := time.Duration(l.turn - at)
	if !s.Share { // under the share, the distance of turns is enough
		wait = max(wait, s.Drain.Turn(l.level, s.Net, at))
	}
	return max(wait, 0)
}

// Noted is a State's record of an own hit, so that it can be taken back.
type Noted struct {
	turn  int64 // after it
	gap   int64 // by which the turn came later for it
	after int64 // own hits of its bucket that came before it, of a token bucket
}

// Took records an own hit: when it came, and, in the queue of a leaky bucket, when it will have
// drained. The counts have it already; wait is how long until its turn.
func (l *State) Took(s *Situation, at, cost int64, wait time.Duration) Noted {
	if s.Drain.Shape.Kind == window.Token {
		l.Date(s.Drain, s.Newest, at, cost)
		return Noted{after: l.dates.Added() - cost}
	}
	gap := l.gap(s, cost)
	late := (gap - s.spacing(cost)) / madeUp // hits do not come just when their turn does
	l.turn = max(l.turn, at+int64(wait)-late) + gap
	l.others.Took(cost)
	return Noted{turn: l.turn, gap: gap}
}

// madeUp is a divisor: if a hit comes late for its turn, up to a quarter of the time that its gap
// leaves for others is made up for.
const madeUp = 4

// ObserveOthers records hits of others from a message.
func (l *State) ObserveOthers(at, news int64) { l.others.Observe(at, news) }

// gap returns the time from a hit's turn to the next turn of this checker, in ns: the time in which
// the hit drains, and the time for the hits that others probably admit meanwhile.
func (l *State) gap(s *Situation, cost int64) int64 {
	spacing := s.spacing(cost)
	if s.Share || !s.Shared {
		return spacing
	}
	return l.others.Gap(spacing, s.spacing(1), s.Checkers)
}

// spacing returns how long a hit takes to drain, in ns; at this checker's share of the rate, if it
// keeps to its share.
func (s *Situation) spacing(cost int64) int64 {
	spacing := float64(cost) / float64(s.Drain.Limit) * float64(s.Drain.Shape.Length)
	if s.Share {
		spacing *= float64(s.Checkers)
	}
	return int64(math.Ceil(min(spacing, float64(window.MaxLength))))
}

// BringTurnForward moves the next turn in the queue of a leaky bucket forward to the time at which
// everything has drained: own hits may have been settled at less than they were charged. A nil
// State has no queue.
func (l *State) BringTurnForward(s *Situation, at int64) {
	if l == nil || s.Share { // under the share, turns are farther apart than that
		return
	}
	l.turn = min(l.turn, at+int64(s.Drain.Reset(l.level, s.Net, at)))
}

// GiveBack takes back hits of a bucket with this age.
func (l *State) GiveBack(by *window.Drain, n Noted, age, hits int64) {
	l.Undate(by, age, hits, n.after)
	if l.turn == n.turn { // no hit has come after it
		l.turn -= n.gap
	}
}
