package forecast

import "math"

// demand is how many hits the whole fleet asks for, according to updates.
type demand struct {
	passed, turned rate    // of hits admitted, and denied; fewer updates have denied hits, each of a longer time
	lately         rate    // hits admitted that are not in passed yet
	latelyTurned   rate    // hits denied that are not in turned yet
	expected       float64 // to be admitted in the time of lately
	least          float64 // ns for which rates are remembered, and valid without an update, at least

	asOf, asOfToo         int64 // when the last update was made, and the last one with denied hits
	bucket                int64 // of the last update
	admitted, denied      Totals
	observed, observedToo bool    // any update, and one with denied hits
	unit                  float32 // of the Key, in hits; it takes no memory here
	all                   float64 // hits asked for in all, according to updates
}

// rate is the whole fleet's hits in a stretch of time.
type rate struct{ hits, span float64 }

// per returns the hits per ns.
func (r rate) per() float64 {
	if r.span <= 0 {
		return 0
	}
	return r.hits / r.span
}

// fold adds more to the rate, whose older hits fade with this memory, in ns.
func (r *rate) fold(more rate, memory float64) {
	keep := math.Exp(-more.span / memory)
	*r = rate{r.hits*keep + more.hits, r.span*keep + more.span}
}

const (
	// Rates are remembered for at least leastMemory ns, memoryUpdates updates, and memoryHits hits.
	leastMemory, memoryUpdates, memoryHits = 60e6, 3, 30
	// leastLately is the least time from which a rate is computed, in ns. A rate waits for a
	// complete round, but not for longer than mostLately, a part of the memory: updates in between
	// contain some checkers' last ms and others' last normal round.
	leastLately, mostLately = 3e6, 2.0 / 3
	// fadeHits is how many expected hits must be missing before the demand starts to fade.
	fadeHits = 6
	// mostFaded, of a natural logarithm, leaves numbers that can be divided by.
	mostFaded = 600
	// burstMemory is for how many ns after a burst a reserve is kept for another one.
	burstMemory = 1e9
)

func newDemand(now, interval int64, unit float64) demand {
	d := demand{asOf: now, unit: float32(unit)}
	d.fit(interval)
	return d
}

// fit adjusts the demand to the time between updates, in ns.
func (d *demand) fit(interval int64) { d.least = max(leastMemory, memoryUpdates*float64(interval)) }

// rate returns the demand per ns.
func (d *demand) rate() float64 { return d.passed.per() + d.turned.per() }

// memory returns for how many ns rates are remembered.
func (d *demand) memory() float64 {
	if r := d.rate(); r > 0 {
		return max(d.least, memoryHits/r)
	}
	return d.least
}

// believed returns for how many ns the rate is taken to last without an update.
func (d *demand) believed() float64 {
	if r := d.passed.per(); r > 0 {
		return max(d.least, fadeHits/r)
	}
	return d.least
}

// after returns the rate when there has been no update for this many ns.
func (d *demand) after(span float64) float64 {
	believed := d.believed()
	if span <= believed {
		return d.rate()
	}
	faded := 2 * (span - believed) / believed
	if faded > mostFaded {
		return 0
	}
	return d.rate() * math.Exp(-faded)
}

// mayReturn returns the rate to expect after a burst has ended, since another one may follow. It is
// infinite until the first update.
func (d *demand) mayReturn(now int64) float64 {
	if !d.observed {
		return math.Inf(1)
	}
	return d.rate() * math.Exp(-float64(max(now-d.asOf, 0))/burstMemory)
}

// learn processes an update. expected is how many hits the fleet was expected to admit since the
// last update was made; complete means that the update is the first of a round, so that the hits
// until then make a rate.
func (d *demand) learn(w Update, expected float64, complete bool) {
	if w.Bucket < d.bucket && d.observed {
		return
	}
	admitted, denied := d.admitted.grow(w.Admitted, w.Bucket-d.bucket), d.denied.grow(w.Denied, w.Bucket-d.bucket)
	if d.observed && !d.observedToo {
		denied = 0 // they came at some earlier time
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
			d.foldLately()
		}
		d.foldTurned()
	case w.Young.Since != 0:
		d.guess(w.Made-w.Young.Since, w.Young.Admitted, w.Young.Denied)
	default:
		d.guess(w.Made-w.Since, admitted, denied)
	}
	d.asOf = max(d.asOf, w.Made)
	if w.DeniedToo {
		d.asOfToo = max(d.asOfToo, w.Made)
	}
	d.bucket, d.observed, d.observedToo = w.Bucket, true, d.observedToo || w.DeniedToo
}

// guess takes the hits of this many ns as the rate, until there is a better one.
func (d *demand) guess(span int64, admitted, denied float64) {
	if span > 0 {
		share := d.least / float64(span)
		d.passed, d.turned = rate{share * admitted, d.least}, rate{share * denied, d.least}
	}
}

// foldLately folds lately into passed, once it covers enough time. If there were far more hits than
// expected, lately replaces all older rates.
func (d *demand) foldLately() {
	n, e := d.lately, d.expected
	if n.span < leastLately {
		return
	}
	d.lately, d.expected = rate{}, 0
	if was := d.rate(); n.hits > e+4*math.Sqrt(e)+4 && was > 0 && n.per() > was {
		d.passed, d.turned, d.latelyTurned = n, rate{}, rate{} // denied hits are reported together, for a longer time
		return
	}
	d.passed.fold(n, d.memory())
}

// foldTurned folds latelyTurned into turned.
func (d *demand) foldTurned() {
	if n := d.latelyTurned; n.span >= leastLately {
		d.latelyTurned = rate{}
		d.turned.fold(n, d.memory())
	}
}
