package forecast

// Totals are of a bucket and of the one before it.
type Totals [2]int64

// grow raises totals to what an update says, whose bucket is so much newer, and returns by how
// much. Updates may come in another order than they were made.
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

// Fleet is what a forecast must know about the fleet.
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

// rounding is the variance of what error diffusion keeps back: each checker anything up to a hit.
func (f Fleet) rounding() float64 { return f.Checkers / 12 }

// Update is what an answer or an alarm says about a key.
type Update struct {
	// Now is when it came, Made when the newest of the reports that it covers was made.
	Now, Made int64
	// Round is the time between the rounds at which the key is reported now, in ns: a multiple of
	// the fleet's fast interval.
	Round int64
	// Bucket is the newest of the key's buckets, and Admitted and Denied what everybody has
	// admitted and denied in it and in the one before, as far as the update knows. Without
	// DeniedToo it says nothing of denied ones.
	Bucket           int64
	Admitted, Denied Totals
	DeniedToo        bool
	// Since is when the counting of these totals began.
	Since int64
	// Young is, where it is of less time than these totals, what came since a later time: the first
	// update that is heard of a key tells nothing else of how fast its hits come now.
	Young Young
	// News is how many hits of others this checker has not known of.
	News float64
}

// Young is what everybody has admitted and denied since a time. The zero value says nothing.
type Young struct{ Since, Admitted, Denied int64 }
