package forecast

// Word is what an answer or an alarm tells of a key.
type Word struct {
	// Now is when it came, Made when the newest of the reports that it tells of was made.
	Now, Made int64
	// Round is the time between the rounds at which the key is reported now, in ns: a multiple of the
	// fleet's tick.
	Round int64
	// Bucket is the newest of the key's buckets, and Admitted and Denied what everybody has admitted
	// and denied in it, as far as the word knows.
	Bucket           int64
	Admitted, Denied int64
	// News is how many hits of others this checker has not known of.
	News float64
}

// Told takes in a word.
func (k *Key) Told(w Word, f Fleet) {
	k.expect(w.Now)
	k.share.hear(w, f, k.demand.all)
	k.moveAnchor(w, f)
	expected := 0.0
	if w.Made > k.demand.asOf {
		expected = k.between(k.demand.asOf, w.Made).expected
	}
	k.demand.learn(w, expected)
}

// Reported takes in that all own hits so far are in a report, made now.
func (k *Key) Reported(now int64, f Fleet) { k.share.report(now, f.Tick) }

func (k *Key) between(from, to int64) sums {
	return k.history.since(from).minus(k.history.since(to))
}

// moveAnchor takes in that everybody has reported in a round. Its words may come one after the other:
// what was expected and is not in the first of them is carried on for a while.
func (k *Key) moveAnchor(w Word, f Fleet) {
	round := w.Made - w.Made%w.Round
	if w.Now >= k.carryUntil { // what has not come by now was never there
		k.carry = 0
	}
	switch {
	case round == k.anchor && w.Made-round <= f.Tick/2:
		k.carry = max(k.carry-w.News, 0)
		return
	case w.Made-round > f.Tick/2 || round < k.anchor: // not of a common report
		part := min(k.carry, w.News)
		k.carry -= part
		k.learnt += w.News - part
		return
	}
	s := k.between(k.anchor, round)
	unheard := k.share.estimate(s.expected, s.admitted) - s.admitted - k.learnt + k.carry/2
	k.carry = max(unheard-w.News-doubtful*k.share.doubt(s.expected, s.admitted), 0)
	k.carryUntil = w.Now + f.Trail
	k.anchor, k.learnt = round, 0
}

// doubtful is how much of an estimate's doubt is taken off what is carried on: that is never negative,
// and would else be too much on average.
const doubtful = 0.5
