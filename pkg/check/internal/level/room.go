package level

import (
	"math"
	"time"

	"github.com/offpath-io/offpath/pkg/window"
)

// Remaining is how many hits fit by what is known: of a leaky bucket, without a wait.
func (l *State) Remaining(s *Situation, at int64) int64 {
	switch {
	case s.Drain.Shape.Kind == window.Token:
		return l.drain(s).Remaining(l.level, s.Net, at)
	case l.waitsFor(s, at) > 0:
		return 0
	}
	return s.Drain.Burst
}

// RetryIn is how long until a hit fits by what is known, if nothing else comes; false if it never
// does.
func (l *State) RetryIn(s *Situation, cost, at int64) (time.Duration, bool) {
	if s.Drain.Shape.Kind == window.Token {
		return l.drain(s).RetryAfter(l.level, s.Net, cost, at)
	}
	return l.waitsFor(s, at), cost <= s.Drain.Burst
}

// Count is how much is in use by what is known.
func (l *State) Count(s *Situation, at int64) float64 {
	return l.drain(s).Count(l.level, s.Net, at)
}

// Freed is how many hits drain per ns at present.
func (l *State) Freed(s *Situation, at int64) float64 {
	if l.drain(s).Level(l.level, s.Net, at) == 0 {
		return 0
	}
	return float64(s.Drain.Limit) / float64(s.Drain.Shape.Length)
}

// OwnCount is how much is in use by own hits that nobody else counts, if each checker keeps to its
// share of the rate.
func (l *State) OwnCount(s *Situation, at int64) float64 {
	return s.Drain.Count(l.own, s.scaledOwn(), at) / float64(s.Checkers)
}

// ShareIn is how long until a hit fits this checker's share of a token bucket, while it keeps to
// that; false if that is never, or if as much is owed already as the share can hold. A leaky
// bucket's turns are far enough apart for all.
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

// MayQueue says whether there is room for a hit that does not fit now to wait for its turn.
func (l *State) MayQueue(s *Situation, cost, at int64) bool {
	burst := s.Drain.Burst
	if s.Drain.Shape.Kind == window.Leaky {
		own := (l.turn - at) / max(l.gap(s, 1), 1) // hits of the queue, known to the nanosecond
		return min(s.Drain.Remaining(l.level, s.Net, at), burst-max(own, 0)) >= cost
	}
	return l.Count(s, at)+float64(cost) <= 2*float64(burst)
}

// LastBucket is the last bucket that has to leave the counts before nothing is left of what is
// known, if no more hits come.
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

// waitsFor is how long until a hit that joins the queue of a leaky bucket has its turn.
func (l *State) waitsFor(s *Situation, at int64) time.Duration {
	wait := time.Duration(l.turn - at)
	if !s.Share { // where turns are far enough apart for all
		wait = max(wait, s.Drain.Turn(l.level, s.Net, at))
	}
	return max(wait, 0)
}

// Charge is what a State has noted of an own hit, so that it can be taken back.
type Charge struct {
	turn  int64 // after it
	gap   int64 // by which the turn came later for it
	after int64 // own hits of its bucket that came before it, of a token bucket
}

// Took notes when an own hit came, and when it has drained in the queue of a leaky bucket. The
// counts have it already; its turn is after so long.
func (l *State) Took(s *Situation, at, cost int64, wait time.Duration) Charge {
	if s.Drain.Shape.Kind == window.Token {
		l.Date(s.Drain, s.Newest, at, cost)
		return Charge{after: l.dates.Added() - cost}
	}
	gap := l.gap(s, cost)
	late := (gap - s.spacing(cost)) / madeUp // hits do not come just when their turn does
	l.turn = max(l.turn, at+int64(wait)-late) + gap
	l.others.Took(cost)
	return Charge{turn: l.turn, gap: gap}
}

// madeUp is which part of a gap, one in so many, is made up for if a hit comes late for its turn.
const madeUp = 4

// ObserveOthers takes in hits of others that a message has brought.
func (l *State) ObserveOthers(at, news int64) { l.others.Observe(at, news) }

// gap is how long after a hit the next one of this checker has its turn, in ns: the time that it
// takes to drain, and that of the hits that others probably let pass meanwhile.
func (l *State) gap(s *Situation, cost int64) int64 {
	spacing := s.spacing(cost)
	if s.Share || !s.Shared {
		return spacing
	}
	return l.others.Gap(spacing, s.spacing(1), s.Checkers)
}

// spacing is how long a hit takes to drain, in ns; on its own, a checker spares time for others.
func (s *Situation) spacing(cost int64) int64 {
	spacing := float64(cost) / float64(s.Drain.Limit) * float64(s.Drain.Shape.Length)
	if s.Share {
		spacing *= float64(s.Checkers)
	}
	return int64(math.Ceil(min(spacing, float64(window.MaxLength))))
}

// BringTurnForward lets the next hit in the queue of a leaky bucket have its turn by when
// everything has drained: own hits may have been settled at less than they were charged. A nil
// State has no queue.
func (l *State) BringTurnForward(s *Situation, at int64) {
	if l == nil || s.Share { // where turns are farther apart than that
		return
	}
	l.turn = min(l.turn, at+int64(s.Drain.Reset(l.level, s.Net, at)))
}

// GiveBack takes back what was charged for hits of a bucket of some age.
func (l *State) GiveBack(by *window.Drain, p Charge, age, hits int64) {
	l.Undate(by, age, hits, p.after)
	if l.turn == p.turn { // nobody has come after it
		l.turn -= p.gap
	}
}
