package forecast

import "math"

// share is the part of the key's traffic that comes to this checker.
//
// It is computed from hits asked for, not from admitted ones: otherwise a checker that admits more
// than others would assume a larger share, and admit even more. Denied hits are reported less often
// than admitted ones, so the share is computed from *full round* to full round, in which all
// checkers report both.
type share struct {
	part     float64
	own, all float64 // hits asked for lately, here and in the fleet
	unrest   float64 // how unreliable the part was lately

	asked    float64 // own hits in all
	reported float64 // of them, in a report

	fullAt           int64   // time of the last full round
	atFull           float64 // own hits reported by that time
	minor            bool    // the part is less than half of an equal one
	open             bool    // it has not been used yet: further updates of it may come
	taken            int32   // full rounds that were used; negative after an outage
	baseOwn, baseAll float64 // at the full round before
	lastOwn, lastAll float32 // hits of the last full round
}

const (
	// FullInterval is the time between full rounds, in which denied hits are reported too, in ns.
	FullInterval = int64(128e6)
	// shareMemory is how many hits of the fleet are remembered, and unsteadyMemory how many while
	// the share is unsteady.
	shareMemory, unsteadyMemory = 10_000, 2_000
	// sharePrior is the weight of an equal share, in hits.
	sharePrior = 30
	// mostUnrest bounds what one full round adds to unrest. From restless on, the share is not
	// relied on.
	mostUnrest, restless = 100, 8
	// fewest is how many own hits are needed to know a share.
	fewest = 8
)

func newShare(checkers float64) share { return share{part: 1 / checkers} }

// isKnown returns whether the part is reliable.
func (s *share) isKnown() bool { return s.unrest < restless && s.own >= fewest }

// estimate returns how many hits there are in all, when m are expected and this checker has seen n.
// Far more than its part of m are growth if traffic is spread evenly. Where nearly all of it came
// to others, it has rather moved.
func (s *share) estimate(m, n float64) float64 {
	contradicts := s.contradicts(m, n)
	switch {
	case contradicts && (!s.isKnown() || s.minor):
		return max(m, n)
	case !s.isKnown():
		return m
	case contradicts:
		m = n / s.part
	}
	if m <= 0 {
		return 0
	}
	return (trust + n) / (trust/m + s.part)
}

// contradicts returns whether n own hits are too many for m in all.
func (s *share) contradicts(m, n float64) bool {
	e := m
	if s.isKnown() {
		e = s.part * m
	}
	return n > e+3*math.Sqrt(e)+2
}

// deviation returns the standard deviation of an estimate.
func (s *share) deviation(m, n float64) float64 {
	if !s.isKnown() {
		return math.Sqrt(m)
	}
	if s.contradicts(m, n) {
		m = n / s.part
	}
	return math.Sqrt(n+1) / (trust/max(m, 1) + s.part)
}

// report records that all own hits so far are in a report, made now.
func (s *share) report(now, fast int64) {
	later := now%FullInterval > fast/2 // than the report of the full round itself
	if later {
		s.cross(now)
	}
	s.reported = s.asked
	if !later {
		s.cross(now)
		s.atFull = s.reported
	}
}

// cross records how many own hits had been reported at the last full round.
func (s *share) cross(now int64) {
	at := now - now%FullInterval
	switch {
	case s.fullAt == 0:
		s.fullAt, s.atFull = at, s.reported
	case at > s.fullAt:
		s.fullAt, s.atFull, s.open = at, s.reported, true
	}
}

// observe processes an update. all is how many hits the fleet had asked for by the update before.
func (s *share) observe(w Update, f Fleet, all float64) {
	s.cross(w.Now)
	if !s.open || w.Made <= s.fullAt+f.FastInterval/2 {
		return
	}
	own, every := s.atFull-s.baseOwn, all-s.baseAll
	s.baseOwn, s.baseAll, s.open = s.atFull, all, false
	if s.taken++; s.taken > 1 { // part of the first one was before the forecast began
		s.learn(own, max(own, every), f.Checkers)
	}
}

// wait keeps the share as it is for the next full rounds: what checkers have kept in an outage
// comes in their reports, and updates have not told of all hits. Else each checker would take its
// own hits of the outage for nearly all that there were.
func (s *share) wait() {
	if s.taken >= 0 { // or it would never learn behind a backlog that lasts
		s.taken = -outageRounds
	}
}

// outageRounds are 2 s at least: by then all have delivered what they have kept.
const outageRounds = 16

// learn updates the part with the hits of a full round, own and all.
func (s *share) learn(own, all, checkers float64) {
	if all <= 0 {
		return
	}
	// Hits that were reported on the wrong side of a full round are missing in the next one, or the
	// other way round, so two full rounds are taken together.
	own2, all2 := own+float64(s.lastOwn), all+float64(s.lastAll)
	s.lastOwn, s.lastAll = float32(own), float32(all)
	e := s.part * all2
	off := (own2 - e) * (own2 - e) / (e*(1-s.part) + e*e/16 + 1)
	if off = min(off, mostUnrest); own > 0 || off > s.unrest {
		s.unrest += 0.2 * min(1, max(own2, e)/8) * (off - s.unrest)
	}
	memory := float64(shareMemory)
	if s.unrest >= restless {
		memory = unsteadyMemory
	}
	keep := math.Exp(-all / memory)
	s.own, s.all = s.own*keep+own, s.all*keep+all
	s.part = (s.own + sharePrior/checkers) / (s.all + sharePrior)
	s.minor = 2*s.part*checkers < 1
}

// trust is the weight of an expectation against the own hits seen, in hits.
const trust = 3
