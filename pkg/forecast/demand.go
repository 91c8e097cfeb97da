package forecast

import "math"

// demand is what words told of how many hits everybody asks for.
type demand struct {
	rates
	lately   rates   // what is not in rates yet
	expected float64 // to be admitted in the time of lately

	asOf             int64 // when the last word was made
	bucket           int64 // its newest bucket
	admitted, denied Totals
	heard, heardToo  bool    // of anything, and of denied hits too
	all              float64 // hits asked for in all, as far as words told
}

// rates are hits by everybody in a stretch of time.
type rates struct{ admitted, asked, span float64 }

const (
	// demandMemory is how long rates are remembered at least, in ns, and memoryHits how many hits.
	demandMemory, memoryHits = 60e6, 30
	// leastLately is the least time that a rate is taken from, and mostLately how long one waits for a
	// round to be complete: words in between tell of some checkers' last ms and of others' last calm round.
	leastLately, mostLately = 3e6, 40e6
	// fadeAfter is how long a demand is believed in without a word at least, in ns, and fadeHits how many admitted
	// hits must be missed.
	fadeAfter, fadeHits = 60e6, 6
)

// rate is the demand per ns.
func (d *demand) rate() float64 {
	if d.span <= 0 {
		return 0
	}
	return d.asked / d.span
}

// believed is for how long the rate is taken to last without a word.
func (d *demand) believed() float64 {
	if d.rates.admitted > 0 {
		return max(fadeAfter, fadeHits*d.span/d.rates.admitted)
	}
	return fadeAfter
}

// after is the rate when there has been no word for so long.
func (d *demand) after(span float64) float64 {
	believed := d.believed()
	if span <= believed {
		return d.rate()
	}
	return d.rate() * math.Exp(-2*(span-believed)/believed)
}

// Totals are of a bucket and of the one before it.
type Totals [2]int64

// grow raises totals to what a word says, whose bucket is so much newer, and returns by how much. Words
// may come in another order than they were made.
func (t *Totals) grow(to Totals, newer int64) (n float64) {
	switch newer {
	case 0:
	case 1:
		*t = Totals{0, t[0]}
	default:
		*t = Totals{}
	}
	for i := range t {
		more := max(to[i]-t[i], 0)
		t[i] += more
		n += float64(more)
	}
	return n
}

// learn takes in a word. expected is how many hits everybody was to admit since the last one was made;
// complete says that the word is the first of a round, so that what came until then makes a rate.
func (d *demand) learn(w Word, expected float64, complete bool) {
	if w.Bucket < d.bucket && d.heard {
		return
	}
	admitted := d.admitted.grow(w.Admitted, w.Bucket-d.bucket)
	asked := admitted
	if denied := d.denied.grow(w.Denied, w.Bucket-d.bucket); d.heardToo || !d.heard {
		asked += denied // or else it is of some time before
	}
	switch {
	case d.heard:
		d.all += asked
		d.lately.admitted += admitted
		d.lately.asked += asked
		d.lately.span += float64(max(w.Made-d.asOf, 0))
		d.expected += expected
		if complete || d.lately.span > mostLately {
			d.settle()
		}
	case w.Made > w.Since: // nothing better is known yet
		share := demandMemory / float64(w.Made-w.Since)
		d.rates = rates{share * admitted, share * asked, demandMemory}
	}
	d.asOf = max(d.asOf, w.Made)
	d.bucket, d.heard, d.heardToo = w.Bucket, true, d.heardToo || w.DeniedToo
}

// settle takes what came lately into the rates, once that is long enough. If more was admitted than
// anybody could expect, it takes the place of what was remembered.
func (d *demand) settle() {
	n, e := d.lately, d.expected
	if n.span < leastLately {
		return
	}
	d.lately, d.expected = rates{}, 0
	if n.admitted > e+4*math.Sqrt(e)+4 && n.admitted*d.span > d.asked*n.span {
		d.rates = rates{n.admitted, n.admitted, n.span} // denied hits are told in lumps
		return
	}
	keep := math.Exp(-n.span / max(demandMemory, memoryHits*d.span/max(d.asked, 1)))
	d.rates = rates{d.rates.admitted*keep + n.admitted, d.rates.asked*keep + n.asked, d.span*keep + n.span}
}
