package forecast

import (
	"math"
	"time"

	"github.com/offpath-io/offpath/pkg/window"
)

// FalseDenials estimates how many denials were false: made because of a forecast only, of hits that
// would have fitted, had this checker known of all others'. The zero value is ready.
//
// Messages tell afterwards what the count was. Each round of reports is complete up to a moment,
// and so gives a *point*: the count at that moment, and how many hits were added until then. A
// point counts only when the next round's message has come, since by then nearly all messages of
// its own round have, from however many aggregators. Between two points,
//
//	count(t) = count before + what was added by t − freed × (the part that had left by t)
//
// and it is never below what was known at t. Own hits have their times. Others' are placed as own
// ones are, as far as these are a fair sample: as many as this checker's part of the fleet. The
// rest is taken to have come before the denial, as it has where a caller's traffic wanders from one
// checker to another.
//
// Tried: a straight line from count to count (it found 30 times too many in bursts, which are over
// long before the next point); all that was added before the denial (it found next to none where
// messages take 80 ms); all of others' hits as own ones (every fifth denial where traffic wanders,
// of which none was false); what was known, and others' news since (the same as the second).
//
// Denials that no message follows are not judged: those made while nobody answers. Nor are those by
// a share of the limit. Denials by what is known are never false, since that is never too high. How
// far off the estimate is: docs/operations.md, and TestEstimates in loadtest/sim.
type FalseDenials struct {
	own, others  int64 // hits admitted, and known by updates, so far
	before, last point
	doubts       *doubts // nil until something was denied
}

// Round is what is known when a message was about a round of reports.
type Round struct {
	At    int64   // when the reports were made
	Count float64 // everybody's hits in the window then, as far as they were reported
	// Pending is how many own hits were not reported.
	Pending int64
	// Whole says that everybody has reported; else the round counts only if the last one was the
	// same.
	Whole        bool
	FastInterval int64 // of the fleet, in ns: a round is half of that wide
}

// point is what is known of a time: everybody's count, and how many hits had been added since some
// beginning, by this checker and by others. The zero point is none.
type point struct {
	at          int64
	count       float64
	own, others int64
}

// doubts are denials that nothing is known of yet, in the order of their times. When there are too
// many, neighbours are merged, so that they are told apart as well as can be over however long a
// time.
type doubts struct {
	n     int
	apart int64 // how far they are apart at least, in ns
	all   [8]doubt
}

// doubt is some denials of about one time, of hits that cost so much at most; what was known then,
// and how many own hits had been admitted.
type doubt struct {
	at, cost, denials int64
	own               int64
	known             float64
}

const (
	// oneDoubt is how far apart denials are that are merged if there is room, in ns.
	oneDoubt = int64(2 * time.Millisecond)
	// farthestPoint is how far apart two points may be, or a quarter of the window if that is more.
	// Beyond it, nobody knows what was between.
	farthestPoint = int64(time.Second)
	// halfSample is how many own hits are half a sample. Without it, of 32 checkers' few hits each,
	// up to twenty times too many denials were found false.
	halfSample = 4
	// wrongBy is by which part of the limit a decision has to be off to be called wrong; a hit at
	// least.
	wrongBy = 0.02
)

// Admitted takes in that own hits were admitted.
func (f *FalseDenials) Admitted(hits int64) { f.own += hits }

// Observe takes in others' hits that a message has brought.
func (f *FalseDenials) Observe(hits int64) { f.others += hits }

// Denied takes in denials of hits that cost so much, made at about one time. known is called if
// what was in use at that time, by what was known, matters.
func (f *FalseDenials) Denied(at, cost, denials int64, known func() float64) {
	if one := f.doubt(at, cost, denials); one != nil {
		one.own, one.known = f.own, known()
	}
}

// doubt takes in denials. It returns the doubt that they are the first of; nil if there is one of
// about their time.
func (f *FalseDenials) doubt(at, cost, denials int64) *doubt {
	if denials <= 0 {
		return nil
	}
	if f.doubts == nil {
		f.doubts = new(doubts)
	}
	d := f.doubts
	if d.n == 0 {
		d.apart = oneDoubt
	}
	for {
		if d.n > 0 && at-d.all[d.n-1].at < d.apart {
			d.all[d.n-1].merge(cost, denials)
			return nil
		}
		if d.n < len(d.all) {
			d.all[d.n] = doubt{at: at, cost: cost, denials: denials}
			d.n++
			return &d.all[d.n-1]
		}
		d.thin()
	}
}

func (d *doubt) merge(cost, denials int64) {
	d.denials += denials
	d.cost = max(d.cost, cost)
}

// thin merges neighbours that are less than twice as far apart as they were.
func (d *doubts) thin() {
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

// Ignores says whether a round of reports made at a time means nothing to Judge.
func (f *FalseDenials) Ignores(made, fast int64, whole bool) bool {
	return !whole && made-f.last.at > fast/2
}

// Judge takes in a round. It returns how many denials turn out to have been false, under a limit
// and in a fleet of so many checkers.
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
	falsely = f.endDoubts(shape, room, checkers)
	f.before, f.last = f.last, p
	return falsely
}

// endDoubts ends the doubts up to the last point, and returns how many denials were false.
func (f *FalseDenials) endDoubts(shape window.Shape, room float64, checkers int64) (falsely int64) {
	d := f.doubts
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

// countAt is about everybody's count at the time of a doubt between the two points.
func (f *FalseDenials) countAt(d *doubt, shape window.Shape, checkers int64) float64 {
	a, b := &f.before, &f.last
	own := float64(b.own - a.own)
	added := max(own+float64(b.others-a.others), b.count-a.count)
	by := 1.0 // which part of the own ones had come by then
	if own > 0 {
		by = min(max(float64(d.own-a.own)/own, 0), 1)
	}
	fair := fairness(own, added, checkers)
	came := own*by + (added-own)*(fair*by+1-fair)
	freed := a.count + added - b.count
	return max(a.count+came-freed*partGone(a.at, d.at, b.at, shape), d.known)
}

// fairness is how good a sample own hits are of all, from 0 to 1: less the further they are off
// this checker's part of the fleet's, and the fewer they are.
func fairness(own, added float64, checkers int64) float64 {
	if own <= 0 {
		return 0
	}
	part := own / added * float64(checkers)
	return min(part, 1/part) * own / (own + halfSample)
}

// partGone is which part of the hits that left a window between two times had left it by a time
// between them.
func partGone(from, at, to int64, shape window.Shape) float64 {
	if LeavesAtOnce(shape) {
		from, at, to = shape.Bucket(from), shape.Bucket(at), shape.Bucket(to)
	}
	if from == to {
		return 0
	}
	return float64(at-from) / float64(to-from)
}
