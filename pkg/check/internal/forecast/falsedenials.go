package forecast

import (
	"math"
	"time"

	"github.com/offpath-io/offpath/pkg/window"
)

// FalseDenials estimates how many denials were false: denials by the forecast alone, of hits that
// would have fitted if this checker had known all hits. The zero value is ready.
//
// Later messages show the count. Each round of reports is complete up to a moment, and so gives a
// *point*: the count at that moment, and how many hits were added until then. A point is used only
// when the next round's message has come, since nearly all messages of its own round have come by
// then, even from several aggregators. Between two points,
//
//	count(t) = count before + what was added by t − freed × (the part that had left by t)
//
// and it is never below the count that was known at t. The times of own hits are known. Others'
// hits get the same times as far as own hits are a fair sample, that is as many as this checker's
// part of the fleet. The rest is taken to have come before the denial, which is right when a
// caller's traffic moves from one checker to another.
//
// Tried: a straight line from count to count (it found 30 times too many in bursts, which are over
// long before the next point); all that was added before the denial (it found next to none where
// messages take 80 ms); all of others' hits as own ones (every fifth denial where traffic wanders,
// of which none was false); the known count, plus others' hits in updates since (the same as the
// second).
//
// Denials that no message follows are not judged, such as those made while no aggregator answers;
// nor are denials by a share of the limit. Denials by the known count are never false, since it is
// never too high. The error of the estimate is in docs/operations_metrics.md, and in TestEstimates
// in loadtest/sim.
type FalseDenials struct {
	own, others  int64 // own hits admitted, and others' hits known by updates, so far
	before, last point
	pending      *pendingDenials // nil until something was denied
}

// Round is what a message shows about a round of reports.
type Round struct {
	At    int64   // when the reports were made
	Count float64 // the fleet's hits in the window then, as far as they were reported
	// Pending is how many own hits were not reported.
	Pending int64
	// Whole means that all checkers have reported; otherwise the round is used only if the last one
	// was the same.
	Whole        bool
	FastInterval int64 // of the fleet, in ns: a round is half of that wide
}

// point is the known state at a time: the fleet's count, and how many hits had been added since
// some beginning, by this checker and by others. The zero point is none.
type point struct {
	at          int64
	count       float64
	own, others int64
}

// pendingDenials are denials that have not been judged yet, in the order of their times. When there
// are too many groups, neighbours are merged, so that the groups cover any time as evenly as
// possible.
type pendingDenials struct {
	n     int
	apart int64 // the least time between two groups, in ns
	all   [8]denialGroup
}

// denialGroup is some denials of about one time, of hits of at most this cost; and the known count
// and the number of own hits admitted at that time.
type denialGroup struct {
	at, cost, denials int64
	own               int64
	known             float64
}

const (
	// mergeWithin is the time within which denials are merged even if there is room, in ns.
	mergeWithin = int64(2 * time.Millisecond)
	// farthestPoint is how far apart two points may be, or a quarter of the window if that is more.
	// If they are farther apart, too little is known of the time between them.
	farthestPoint = int64(time.Second)
	// halfSample is how many own hits count as half a sample. Without it, with 32 checkers and few
	// hits each, up to twenty times too many denials were found false.
	halfSample = 4
	// wrongBy is by which part of the limit a decision has to be off to be called wrong; a hit at
	// least.
	wrongBy = 0.02
)

// Admitted records own hits that were admitted.
func (f *FalseDenials) Admitted(hits int64) { f.own += hits }

// Observe records others' hits from a message.
func (f *FalseDenials) Observe(hits int64) { f.others += hits }

// Denied records denials of hits of this cost, made at about one time. known returns the known
// count at that time; it is called only if needed.
func (f *FalseDenials) Denied(at, cost, denials int64, known func() float64) {
	if one := f.addPending(at, cost, denials); one != nil {
		one.own, one.known = f.own, known()
	}
}

// addPending adds denials. It returns the group that they begin; nil if they were added to one of
// about their time.
func (f *FalseDenials) addPending(at, cost, denials int64) *denialGroup {
	if denials <= 0 {
		return nil
	}
	if f.pending == nil {
		f.pending = new(pendingDenials)
	}
	d := f.pending
	if d.n == 0 {
		d.apart = mergeWithin
	}
	for {
		if d.n > 0 && at-d.all[d.n-1].at < d.apart {
			d.all[d.n-1].merge(cost, denials)
			return nil
		}
		if d.n < len(d.all) {
			d.all[d.n] = denialGroup{at: at, cost: cost, denials: denials}
			d.n++
			return &d.all[d.n-1]
		}
		d.thin()
	}
}

func (d *denialGroup) merge(cost, denials int64) {
	d.denials += denials
	d.cost = max(d.cost, cost)
}

// thin doubles the least time between two groups, and merges neighbours that are closer.
func (d *pendingDenials) thin() {
	d.apart *= 2
	kept := 1
	for _, one := range d.all[1:d.n] {
		if last := &d.all[kept-1]; one.at-last.at < d.apart {
			last.merge(one.cost, one.denials)
			continue
		}
		d.all[kept] = one
		kept++
	}
	d.n = kept
}

// Ignores returns whether Judge ignores a round of reports made at a time.
func (f *FalseDenials) Ignores(made, fast int64, whole bool) bool {
	return !whole && made-f.last.at > fast/2
}

// Judge processes a round. It returns how many denials turn out to have been false, under a limit
// and in a fleet of this many checkers.
func (f *FalseDenials) Judge(r Round, shape window.Shape, limit, checkers int64) (falsely int64) {
	p := point{r.At, r.Count, f.own - r.Pending, f.others}
	switch off := p.at - f.last.at; {
	case off < -r.FastInterval/2: // a late message
		return 0
	case off <= r.FastInterval/2: // another message of the same round
		f.last.count = max(f.last.count, p.count)
		f.last.others = max(f.last.others, p.others)
		return 0
	case !r.Whole:
		return 0
	}
	room := float64(limit) - max(math.Round(wrongBy*float64(limit)), 1)
	falsely = f.judgePending(shape, room, checkers)
	f.before, f.last = f.last, p
	return falsely
}

// judgePending judges and removes the denials up to the last point, and returns how many were
// false.
func (f *FalseDenials) judgePending(shape window.Shape, room float64, checkers int64) (falsely int64) {
	d := f.pending
	if d == nil || d.n == 0 {
		return 0
	}
	farthest := max(farthestPoint, int64(shape.Length)/4)
	known := f.before.at > 0 && f.last.at-f.before.at <= farthest
	judged := 0
	for ; judged < d.n && d.all[judged].at <= f.last.at; judged++ {
		one := &d.all[judged]
		if known && one.at >= f.before.at && f.countAt(one, shape, checkers)+float64(one.cost) <= room {
			falsely += one.denials
		}
	}
	d.n = copy(d.all[:], d.all[judged:d.n])
	return falsely
}

// countAt estimates the fleet's count at the time of denials between the two points.
func (f *FalseDenials) countAt(d *denialGroup, shape window.Shape, checkers int64) float64 {
	a, b := &f.before, &f.last
	own := float64(b.own - a.own)
	added := max(own+float64(b.others-a.others), b.count-a.count)
	by := 1.0 // the part of the own hits that had come by then
	if own > 0 {
		by = min(max(float64(d.own-a.own)/own, 0), 1)
	}
	fair := fairness(own, added, checkers)
	came := own*by + (added-own)*(fair*by+1-fair)
	freed := a.count + added - b.count
	return max(a.count+came-freed*partGone(a.at, d.at, b.at, shape), d.known)
}

// fairness returns how good a sample of all hits the own hits are, from 0 to 1: less the further
// their number is from this checker's part of the fleet's, and the fewer they are.
func fairness(own, added float64, checkers int64) float64 {
	if own <= 0 {
		return 0
	}
	part := own / added * float64(checkers)
	return min(part, 1/part) * own / (own + halfSample)
}

// partGone returns the part of the hits that left a window between two times that had left it by a
// time between them.
func partGone(from, at, to int64, shape window.Shape) float64 {
	if LeavesAtOnce(shape) {
		from, at, to = shape.Bucket(from), shape.Bucket(at), shape.Bucket(to)
	}
	if from == to {
		return 0
	}
	return float64(at-from) / float64(to-from)
}
