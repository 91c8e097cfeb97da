package forecast

import "math"

// share is which part of the key's traffic comes to this checker.
//
// It is taken from hits that were asked for, not from admitted ones: who admits more than others
// would think that more comes to it, and admit even more. Denied hits are reported less often than
// admitted ones, so it is worked out from *full round* to full round, in which everybody reports
// both.
type share struct {
	part     float64
	own, all float64 // hits lately asked for here, and by everybody
	unrest   float64 // how little the part was to be relied on lately

	asked    float64 // own hits in all
	reported float64 // of them, in a report

	fullAt           int64   // the last one
	atFull           float64 // own hits reported by then
	open             bool    // further updates of it may come
	baseOwn, baseAll float64 // at the full round before
	taken            int     // how often a full round has been worked out
	lastOwn, lastAll float64 // of the last one
}

const (
	// FullInterval is the time between two rounds in which denied hits are reported too, in ns.
	FullInterval = int64(128e6)
	// shareMemory is how many hits of everybody are remembered, and unsteadyMemory how many when
	// the share is unsteady.
	shareMemory, unsteadyMemory = 10_000, 2_000
	// sharePrior is the weight of an equal share, in hits.
	sharePrior = 30
	// mostUnrest bounds what one full round adds to unrest. From restless on, the share is not
	// relied on.
	mostUnrest, restless = 100, 8
	// fewest is how many own hits it takes to know a share.
	fewest = 8
)

func newShare(checkers float64) share { return share{part: 1 / checkers} }

// isKnown says whether the part can be relied on.
func (s *share) isKnown() bool { return s.unrest < restless && s.own >= fewest }

// estimate is how many hits there are in all, when m are expected, and this checker sees n.
func (s *share) estimate(m, n float64) float64 {
	switch {
	case s.isKnown() && s.contradicts(m, n):
		m = n / s.part
	case s.isKnown():
	case s.contradicts(m, n):
		return n
	default:
		return m
	}
	if m <= 0 {
		return 0
	}
	return (trust + n) / (trust/m + s.part)
}

// contradicts says whether n own hits are too many for m in all.
func (s *share) contradicts(m, n float64) bool {
	e := m
	if s.isKnown() {
		e = s.part * m
	}
	return n > e+3*math.Sqrt(e)+2
}

// doubt is by how much an estimate may be off.
func (s *share) doubt(m, n float64) float64 {
	if !s.isKnown() {
		return math.Sqrt(m)
	}
	if s.contradicts(m, n) {
		m = n / s.part
	}
	return math.Sqrt(n+1) / (trust/max(m, 1) + s.part)
}

// report takes in that all own hits so far are in a report, made now.
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

// cross notes how many own hits had been reported when the last full round came.
func (s *share) cross(now int64) {
	at := now - now%FullInterval
	switch {
	case s.fullAt == 0:
		s.fullAt, s.atFull = at, s.reported
	case at > s.fullAt:
		s.fullAt, s.atFull, s.open = at, s.reported, true
	}
}

// observe takes in an update. all is how many hits everybody had asked for by the update before.
func (s *share) observe(w Update, f Fleet, all float64) {
	s.cross(w.Now)
	if !s.open || w.Made <= s.fullAt+f.FastInterval/2 {
		return
	}
	own, every := s.atFull-s.baseOwn, all-s.baseAll
	s.baseOwn, s.baseAll, s.open = s.atFull, all, false
	if s.taken++; s.taken > 1 { // some of the first was before there was a forecast
		s.learn(own, max(own, every), f.Checkers)
	}
}

// learn takes in that so many of all hits came here.
func (s *share) learn(own, all, checkers float64) {
	if all <= 0 {
		return
	}
	// What was reported on the wrong side of a full round makes up for itself in the next one, so
	// two are looked at together.
	own2, all2 := own+s.lastOwn, all+s.lastAll
	s.lastOwn, s.lastAll = own, all
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
}

// trust is the weight of an expectation, in hits, against what this checker sees.
const trust = 3
