package forecast

// Observe processes an update.
func (k *Key) Observe(w Update, f Fleet) {
	k.expect(w.Now)
	w = w.per(k.Unit())
	if r := k.reports[0]; r.at != 0 && r.since >= fewest {
		if ago := int32(micros(w.Now) - r.at); ago > outage { // negative: it was made meanwhile
			k.share.wait()
		}
	}
	k.history.fit(f.interval())
	k.demand.fit(f.interval())
	k.share.observe(w, f, k.demand.all)
	complete := k.moveAnchor(w, f)
	expected := 0.0
	if w.Made > k.demand.asOf {
		expected = k.between(k.demand.asOf, w.Made).expected
	}
	k.demand.learn(w, expected, complete)
}

// outage is how long ago the last own report was made, in µs, if hits have waited since then: in an
// outage, or behind a long backlog.
const outage = 1e6

// Reported records that all own hits so far are in a report, made now.
func (k *Key) Reported(now int64, f Fleet) {
	copy(k.reports[1:], k.reports[:])
	k.reports[0] = ownReport{at: micros(now)}
	k.share.report(now, f.FastInterval)
}

func (k *Key) between(from, to int64) sums {
	return k.history.since(from).minus(k.history.since(to))
}

// moveAnchor moves the anchor to a round in which all checkers have reported. Its updates may come
// one after the other: expected hits that are missing in the first one are carried on for a while.
// It returns whether this was the first one.
func (k *Key) moveAnchor(w Update, f Fleet) (moved bool) {
	round := w.Made - w.Made%w.Round
	if w.Now >= k.carryUntil { // hits that have not come by now were never admitted
		k.carry = 0
	}
	switch {
	case k.round <= w.Made && w.Made-k.round <= f.FastInterval/2: // another update of the last one
		k.carry = max(k.carry-w.News, 0)
		return false
	case w.Made-round > f.FastInterval/2 || round < k.round: // not of a round
		part := min(k.carry, w.News)
		k.carry -= part
		k.learnt += w.News - part
		return false
	}
	unanswered := min(k.ownSince(round, w.Made, f), k.unanswered)
	s := k.between(k.anchor, w.Made)
	if w.Now-k.anchor <= k.history.horizon() { // expected hits are not known for longer either
		s.admitted = k.unanswered - unanswered
	}
	unheard := k.share.estimate(s.expected, s.admitted) - s.admitted - k.learnt + k.carry/2
	k.carry = max(unheard-w.News-carryHits-carryMargin*k.share.deviation(s.expected, s.admitted), 0)
	k.carryUntil = w.Now + f.Trail
	k.round, k.anchor, k.unanswered, k.learnt = round, w.Made, unanswered, 0
	return true
}

// ownSince returns how many own hits have been admitted since a round, whose updates were made at a
// time: since the own report of the round or, if there was none, since then.
func (k *Key) ownSince(round, made int64, f Fleet) float64 {
	for _, r := range k.reports {
		if r.at-micros(round) <= micros(f.FastInterval/2) {
			return float64(r.since)
		}
	}
	return k.history.since(made).admitted
}

func micros(at int64) uint32 { return uint32(at / 1000) }

// carryHits and carryMargin standard deviations of the estimate are taken off carry: it is never
// negative, and would otherwise be too large on average. The hits matter to keys with few of them.
const carryHits, carryMargin = 2, 0.3
