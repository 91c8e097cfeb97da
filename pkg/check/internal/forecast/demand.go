package forecast

import "math"

// demand is how many hits everybody asks for, as updates show.
type demand struct {
	passed, turned rate    // hits admitted, and denied; of these fewer updates tell, each of more time
	lately         rate    // what is not in passed yet
	latelyTurned   rate    // nor in turned
	expected       float64 // to be admitted in the time of lately
	least          float64 // ns for which rates are remembered, and believed in without an update, at least

	asOf, asOfToo         int64 // when the last update was made, and the last that told of denied hits too
	bucket                int64 // of the last update
	admitted, denied      Totals
	observed, observedToo bool    // of anything, and of denied hits too
	all                   float64 // hits asked for in all, as far as updates show
}

// rate is hits by everybody in a stretch of time.
type rate struct{ hits, span float64 }

// per is how many there are per ns.
func (r rate) per() float64 {
	if r.span <= 0 {
		return 0
	}
	return r.hits / r.span
}

// fold takes in more, of which this much of what there was is kept.
func (r *rate) fold(more rate, memory float64) {
	keep := math.Exp(-more.span / memory)
	*r = rate{r.hits*keep + more.hits, r.span*keep + more.span}
}

const (
	// leastMemory and memoryRounds make up for how many ns rates are remembered at least, and
	// memoryHits for how many hits.
	leastMemory, memoryRounds, memoryHits = 60e6, 3, 30
	// leastLately is the least time that a rate is taken from. For mostLately, a part of the
	// memory, one waits for a round to be complete: updates in between tell of some checkers' last
	// ms and of others' last normal round.
	leastLately, mostLately = 3e6, 2.0 / 3
	// fadeHits is how many admitted hits must be missed before a demand is believed in no more.
	fadeHits = 6
	// burstMemory is for how many ns something is kept in reserve for a burst after the last one.
	burstMemory = 1e9
)

func newDemand(now, fast int64) demand {
	d := demand{asOf: now}
	d.fit(fast)
	return d
}

// fit makes the demand that of a fleet with such fast rounds, in ns.
func (d *demand) fit(fast int64) { d.least = max(leastMemory, memoryRounds*float64(fast)) }

// rate is the demand per ns.
func (d *demand) rate() float64 { return d.passed.per() + d.turned.per() }

// memory is for how long rates are remembered.
func (d *demand) memory() float64 {
	if r := d.rate(); r > 0 {
		return max(d.least, memoryHits/r)
	}
	return d.least
}

// believed is for how long the rate is taken to last without an update.
func (d *demand) believed() float64 {
	if r := d.passed.per(); r > 0 {
		return max(d.least, fadeHits/r)
	}
	return d.least
}

// after is the rate when there has been no update for so long.
func (d *demand) after(span float64) float64 {
	believed := d.believed()
	if span <= believed {
		return d.rate()
	}
	return d.rate() * math.Exp(-2*(span-believed)/believed)
}

// mayReturn is the rate that is reckoned with when a burst has ended: the next one may follow. It
// is any rate while no update has shown one.
func (d *demand) mayReturn(now int64) float64 {
	if !d.observed {
		return math.Inf(1)
	}
	return d.rate() * math.Exp(-float64(max(now-d.asOf, 0))/burstMemory)
}

// learn takes in an update. expected is how many hits everybody was to admit since the last one was
// made; complete says that the update is the first of a round, so that what came until then makes a
// rate.
func (d *demand) learn(w Update, expected float64, complete bool) {
	if w.Bucket < d.bucket && d.observed {
		return
	}
	admitted, denied := d.admitted.grow(w.Admitted, w.Bucket-d.bucket), d.denied.grow(w.Denied, w.Bucket-d.bucket)
	if d.observed && !d.observedToo {
		denied = 0 // they are of some time before
	}
	switch {
	case d.observed:
		d.all += admitted + denied
		d.lately.hits += admitted
		d.lately.span += float64(max(w.Made-d.asOf, 0))
		d.expected += expected
		if w.DeniedToo && d.observedToo {
			d.latelyTurned.hits += denied
			d.latelyTurned.span += float64(max(w.Made-max(d.asOfToo, w.Since), 0))
		}
		if complete || d.lately.span > mostLately*d.least {
			d.settle()
		}
		d.settleTurned()
	case w.Young.Since != 0:
		d.guess(w.Made-w.Young.Since, float64(w.Young.Admitted), float64(w.Young.Denied))
	default:
		d.guess(w.Made-w.Since, admitted, denied)
	}
	d.asOf = max(d.asOf, w.Made)
	if w.DeniedToo {
		d.asOfToo = max(d.asOfToo, w.Made)
	}
	d.bucket, d.observed, d.observedToo = w.Bucket, true, d.observedToo || w.DeniedToo
}

// guess takes the hits of so many ns for the rate, while nothing better is known.
func (d *demand) guess(span int64, admitted, denied float64) {
	if span > 0 {
		share := d.least / float64(span)
		d.passed, d.turned = rate{share * admitted, d.least}, rate{share * denied, d.least}
	}
}

// settle takes the hits that were admitted lately into their rate, once that is of enough time. If
// there were more than anybody could expect, they take the place of what was remembered.
func (d *demand) settle() {
	n, e := d.lately, d.expected
	if n.span < leastLately {
		return
	}
	d.lately, d.expected = rate{}, 0
	if was := d.rate(); n.hits > e+4*math.Sqrt(e)+4 && was > 0 && n.per() > was {
		d.passed, d.turned, d.latelyTurned = n, rate{}, rate{} // denied hits are reported in lumps, of a longer time
		return
	}
	d.passed.fold(n, d.memory())
}

// settleTurned does the same for denied hits.
func (d *demand) settleTurned() {
	if n := d.latelyTurned; n.span >= leastLately {
		d.latelyTurned = rate{}
		d.turned.fold(n, d.memory())
	}
}
