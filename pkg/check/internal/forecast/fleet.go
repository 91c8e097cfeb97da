package forecast

// Totals are the totals of a bucket and of the one before it.
type Totals [2]float64

// grow raises totals to those of an update, whose bucket is newer by this many buckets, and returns
// by how much. Updates may come in another order than that in which they were made.
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
		n += more
	}
	return n
}

// Fleet is the state of the fleet that a forecast needs.
type Fleet struct {
	// Checkers is the number of live checkers, at least 1.
	Checkers float64
	// FastInterval is the time between the shortest rounds, in ns. Every round is at a multiple of
	// it.
	FastInterval int64
	// Trail is how long after the first update of a round the last one may come, in ns: as long as
	// there are several aggregators, each with a part of the round's reports, or updates are sent
	// at a bounded rate.
	Trail int64
}

// interval returns a time within which a key has an update, in ns: a fast interval, doubled until
// it spans the time between two alarms of a large fleet. It grows in such steps because a longer
// one clears the history: one more checker must not.
func (f Fleet) interval() int64 {
	t := f.FastInterval
	for 0 < t && t < f.Trail {
		t *= 2
	}
	return t
}

// late returns by how much the time between two alarms exceeds a fast interval, in ns.
func (f Fleet) late() int64 { return max(f.Trail-f.FastInterval, 0) }

// rounding returns the variance of the hits that error diffusion holds back: at each checker,
// between 0 and 1 hit.
func (f Fleet) rounding() float64 { return f.Checkers / 12 }

// Update is the part of an answer or an alarm about one key.
type Update struct {
	// Now is when it came, Made when the newest of the reports that it covers was made.
	Now, Made int64
	// Round is the time between the rounds at which the key is reported now, in ns: a multiple of
	// the fleet's fast interval.
	Round int64
	// Bucket is the newest of the key's buckets. Admitted and Denied are the fleet's hits in it and
	// in the one before, as far as the update knows. Without DeniedToo it has no denied hits.
	Bucket           int64
	Admitted, Denied Totals
	DeniedToo        bool
	// Since is the time from which these totals count.
	Since int64
	// Young, if not zero, has the hits since a time later than Since. In a key's first update, only
	// Young shows how fast its hits come now.
	Young Young
	// News is how many of the update's hits of others this checker had not known.
	News float64
}

// Young is how many hits the fleet has admitted and denied since a time. The zero value is none.
type Young struct {
	Since            int64
	Admitted, Denied float64
}

// per returns the update in units.
func (w Update) per(unit float64) Update {
	for _, n := range []*float64{
		&w.Admitted[0], &w.Admitted[1], &w.Denied[0], &w.Denied[1],
		&w.Young.Admitted, &w.Young.Denied, &w.News,
	} {
		*n /= unit
	}
	return w
}
