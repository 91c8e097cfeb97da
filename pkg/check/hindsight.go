package check

import (
	"math"
	"time"

	"github.com/offpath-io/offpath/pkg/window"
)

// A denial that only the forecast was for can turn out to be false: the hit would have fitted, had this checker known of all others.
// Words tell afterwards what the count was. Each round of reports is complete up to a moment, so it gives a *point*: the
// count at that moment, and how many hits were added until then. A point counts only when the next round's word has come,
// since by then nearly all words of its own round have, from however many aggregators. Between two points,
//
//	count(t) = count before + what was added by t − freed × (the part that had left by t)
//
// and it is never below what was known at t. Own hits have their times. Others' are placed as own ones are, as far as these are
// a fair sample: as many as this checker's part of the fleet. The rest is taken to have come before the denial, as it has where
// a caller's traffic wanders from one checker to another.
//
// Tried: a straight line from count to count (30 times too many found false in bursts, which are over long before the next point);
// all that was added before the denial (next to none found where words take 80 ms); all of others' hits as own ones (as many as every
// fifth denial where traffic wanders, of which none was false); what was known, and others' news since (the same as the second).
//
// What no word follows is not judged: denials while nobody answers. Nor are those by a share of the limit. Denials by what is known are
// never false, since that is never too high. How far off it is: docs/operations.md, and TestEstimates in loadtest/sim.

// hindsight is what a cell with a forecast keeps for this.
type hindsight struct {
	own, others  int64 // hits admitted, and heard of, so far
	before, last point
	doubts       *doubts // nil until something was denied
}

// point is what is known of a time of the fleet's: everybody's count, and how many hits had been added since some
// beginning, by this checker and by others. The zero point is none.
type point struct {
	at          int64
	count       float64
	own, others int64
}

// doubts are denials that nothing is known of yet, in the order of their times. When there are too many, neighbours are taken
// together, so that they are told apart as well as can be over however long a time.
type doubts struct {
	n     int
	apart int64 // how far they are apart at least, in ns
	all   [8]doubt
}

// doubt is some denials of about one time, of hits that cost so much at most; what was known then, and how many own hits had been
// admitted.
type doubt struct {
	at, cost, denials int64
	own               int64
	known             float64
}

const (
	// oneDoubt is how far apart denials are that are taken together if there is room, in ns.
	oneDoubt = int64(2 * time.Millisecond)
	// farthestPoint is how far apart two points may be, or a quarter of the window if that is more. Beyond it, nobody
	// knows what was between.
	farthestPoint = int64(time.Second)
	// fewHits are as many own hits as are half a sample. Without it, of 32 checkers' few hits each, up to twenty times too many
	// denials were found false.
	fewHits = 4
	// wrongBy is by which part of the limit a decision has to be off to be called wrong; a hit at least.
	wrongBy = 0.02
)

// doubt takes in denials that were made at a time within the cell's newest bucket, or taken as if they were. The lock is held, the
// cell settled.
func (c *cell) doubt(t *terms, at, cost, denials int64) {
	h := &c.ahead().hindsight
	if one := h.doubt(at, cost, denials); one != nil {
		one.own, one.known = h.own, c.count(t, min(at, c.end()-1))
	}
}

// doubt takes in denials. It returns the doubt that they are the first of; nil if there is one of about their time.
func (h *hindsight) doubt(at, cost, denials int64) *doubt {
	if denials <= 0 {
		return nil
	}
	if h.doubts == nil {
		h.doubts = new(doubts)
	}
	d := h.doubts
	if d.n == 0 {
		d.apart = oneDoubt
	}
	for {
		if d.n > 0 && at-d.all[d.n-1].at < d.apart {
			d.all[d.n-1].join(cost, denials)
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

func (d *doubt) join(cost, denials int64) {
	d.denials += denials
	d.cost = max(d.cost, cost)
}

// thin takes neighbours together that are less than twice as far apart as they were.
func (d *doubts) thin() {
	d.apart *= 2
	kept := 1
	for _, one := range d.all[1:d.n] {
		if last := &d.all[kept-1]; one.at-last.at < d.apart {
			last.join(one.cost, one.denials)
			continue
		}
		d.all[kept] = one
		kept++
	}
	d.n = kept
}

// learn takes in a point: of a whole round, which is half a tick wide, or of one that is whole only if the last point is of it. It
// returns how many denials turn out to have been false, under a limit and in a fleet of so many checkers.
func (h *hindsight) learn(p point, whole bool, tick int64, shape window.Shape, limit, fleet int64) (falsely int64) {
	switch off := p.at - h.last.at; {
	case off < -tick/2: // a late word
		return 0
	case off <= tick/2: // another word of the same round
		h.last.count = max(h.last.count, p.count)
		h.last.others = max(h.last.others, p.others)
		return 0
	case !whole:
		return 0
	}
	falsely = h.judge(shape, float64(limit)-max(math.Round(wrongBy*float64(limit)), 1), fleet)
	h.before, h.last = h.last, p
	return falsely
}

// judge ends the doubts up to the last point.
func (h *hindsight) judge(shape window.Shape, room float64, fleet int64) (falsely int64) {
	d := h.doubts
	if d == nil || d.n == 0 {
		return 0
	}
	known := h.before.at > 0 && h.last.at-h.before.at <= max(farthestPoint, int64(shape.Length)/4)
	judged := 0
	for ; judged < d.n && d.all[judged].at <= h.last.at; judged++ {
		one := &d.all[judged]
		if known && one.at >= h.before.at && h.countAt(one, shape, fleet)+float64(one.cost) <= room {
			falsely += one.denials
		}
	}
	d.n = copy(d.all[:], d.all[judged:d.n])
	return falsely
}

// countAt is about everybody's count at the time of a doubt between the two points.
func (h *hindsight) countAt(d *doubt, shape window.Shape, fleet int64) float64 {
	a, b := &h.before, &h.last
	own := float64(b.own - a.own)
	added := max(own+float64(b.others-a.others), b.count-a.count)
	by := 1.0 // which part of the own ones had come by then
	if own > 0 {
		by = min(max(float64(d.own-a.own)/own, 0), 1)
	}
	fair := fairness(own, added, fleet)
	came := own*by + (added-own)*(fair*by+1-fair)
	freed := a.count + added - b.count
	return max(a.count+came-freed*partGone(a.at, d.at, b.at, shape), d.known)
}

// fairness is how good a sample own hits are of all, from 0 to 1: less the further they are off this checker's part of the fleet's, and
// the fewer they are.
func fairness(own, added float64, fleet int64) float64 {
	if own <= 0 {
		return 0
	}
	part := own / added * float64(fleet)
	return min(part, 1/part) * own / (own + fewHits)
}

// partGone is which part of what left a window between two times had left it by a time between them.
func partGone(from, at, to int64, shape window.Shape) float64 {
	if shape.Kind == window.Log || shape.Fixed {
		from, at, to = shape.Bucket(from), shape.Bucket(at), shape.Bucket(to)
	}
	if from == to {
		return 0
	}
	return float64(at-from) / float64(to-from)
}

// lookBack holds denials against what a word, made at a time, has told; whole says whether it is of a round in which everybody reports.
// The lock is held, the cell settled and rotated, and the word's totals merged.
func (c *cell) lookBack(t *terms, made, tick int64, whole bool) {
	l, h := c.limiter, &c.ahead().hindsight
	if !whole && made-h.last.at > tick/2 {
		return
	}
	var pending int64
	for _, n := range c.pending() {
		pending += n
	}
	at := max(made, l.shape.End(c.newest-1))
	p := point{at, c.count(t, at) - l.shape.Count(c.pending(), at), h.own - pending, h.others}
	if n := h.learn(p, whole, tick, l.shape, t.capacity, max(l.checker.fleet.Load(), 1)); n > 0 {
		l.falseDenials.Add(n)
	}
}
