// Package forecast estimates the hits that other checkers have admitted and this one does not know
// of: how many there are, and which part of the next hits may therefore pass.
//
// All checkers of a fleet report a key near its limit at the same moments of the fleet's time, its
// *rounds*. So when an update (from an answer or an alarm) is about a round, its totals are
// complete up to that moment, the *anchor*, and only the hits since then have to be estimated. A
// [Key] has two sources for that. One is what is *expected* of the whole fleet: the demand, which
// updates show, times the part that may pass, which all checkers work out alike. The other is what
// this checker has seen itself, divided by its share of the key's traffic. The first is the mean of
// a gamma distribution, which the second updates as evidence (a gamma prior of a Poisson rate; see
// any text on Bayesian inference). If the two contradict each other, the traffic has changed: then
// the second counts alone, but only if the share is known and has been steady. Otherwise the
// traffic has more probably moved between the checkers than grown.
//
// Near the limit hits do not pass until none may. Only a part of them passes, so that the room
// shrinks exponentially. Error diffusion decides which hits these are: a part of 0.2 is every fifth
// hit, and not a matter of chance. The range in which that is so, and the reserve for chance, are
// no larger than the number of hits that can be unknown: where hits are rare, all that fit pass.
//
// The package also holds what else can be said of other checkers without a counter: which denials
// were false ([FalseDenials]), and how fast others' hits pass a leaky bucket ([Outflow]).
//
// Everything here is a function of the time that it is given. Times are nanoseconds of the fleet's
// clock, rates are hits per nanosecond. Nothing here is safe for concurrent use.
package forecast

import "math"

// Window is what is known of a key's window at a time.
type Window struct {
	// Free is the limit less the count that is known, own hits included. Freed is how many hits
	// leave the window per ns, little by little, and Soon how many will per ns that leave many at
	// once: see [LeavesAtOnce].
	Free, Freed, Soon float64
	// Limit is the limit, and Pace how many hits it is per ns of the window's length.
	Limit, Pace float64
	// Unreported is how many own hits no answer has been about.
	Unreported float64
}

// Outlook is what a forecast comes to.
type Outlook struct {
	// Free is how many hits may still pass, by everybody: what the window has left, less what
	// others are expected to have taken of it. It may be negative.
	Free float64
	// Part is which part of the next hits may pass: all if it is 1 or more, none if it is 0 or
	// less.
	Part float64
	// Demand is how many hits everybody asks for, per ns.
	Demand float64
}

// Key is the forecast of one key.
type Key struct {
	history history

	// The last round that updates were about; the anchor, when about everybody's report of it was
	// made, and when this checker's own was. Then how many hits of others became known since, and
	// how many are missing of what was expected before: they may come in further updates of the
	// round, until carryUntil.
	round, anchor, from int64
	carryUntil          int64
	learnt, carry       float64

	reportedAt int64 // when the last own report was made

	demand demand
	share  share

	// How it looked last, from where expectations go on.
	room, freed, band float64

	credit float64 // of error diffusion, in hits
}

const (
	// fewHits is how few hits of a checker between two normal rounds are so few that each will be a
	// report.
	fewHits = 0.05
	large   = 100 // checkers; in a smaller fleet each has many keys to report at once
	// band is the part of the limit over which the part of hits that pass goes from 1 to 0.
	band = 0.015
	// aim and mostAim say by how much the count is kept below the limit, so that what chance adds
	// seldom goes beyond: what rounding at each checker comes to, times aim, and at most that part
	// of the limit.
	aim, mostAim = 2.5, 0.004
)

// New returns the forecast of a key of which nothing is known but the size of the fleet. Checkers
// of one fleet should be given different phases, spread over [0, 1): each admits its first part of
// a hit then.
func New(now int64, f Fleet, phase float64) *Key {
	return &Key{
		history: newHistory(now, f.FastInterval), round: now, anchor: now, from: now, demand: newDemand(now, f.FastInterval),
		share: newShare(f.Checkers), room: math.MaxFloat64, credit: phase - 0.5,
	}
}

// Note takes in own hits: how many were asked for since the last call, and how many of them
// admitted.
func (k *Key) Note(now, asked, admitted int64) {
	k.expect(now)
	k.history.add(float64(asked), float64(admitted))
	k.share.asked += float64(asked)
}

// Look works out how things stand.
func (k *Key) Look(now int64, w Window, f Fleet) Outlook {
	k.expect(now)
	d := k.demandAt(now)
	fresh := max(d, k.demand.mayReturn(now)) * float64(k.history.horizon()) // hits that some checker may not know of
	spare := min(aim*math.Sqrt(f.rounding()), mostAim*w.Limit, fresh)
	o := Outlook{Free: w.Free - spare - k.others(now, w.Unreported), Part: 1, Demand: d}
	k.room, k.freed, k.band = o.Free, w.Freed, min(bandOf(w), fresh)
	switch {
	case d > 0:
		o.Part = o.Free/k.band + w.Freed/d
	case o.Free <= 0:
		o.Part = 0
	}
	return o
}

// bandOf is the band of a window, in hits. What leaves at once is used up until more does, instead
// of staying free in part.
func bandOf(w Window) float64 {
	if w.Soon > 0 {
		return max(band/2*w.Limit, 1)
	}
	return max(band*w.Limit, 1)
}

// others is how many hits others are expected to have admitted that are not known.
func (k *Key) others(now int64, unreported float64) float64 {
	s, learnt := k.sinceUpdate(), k.learnt
	if now-k.anchor > k.history.horizon() { // no round: only what is in no answer is certainly unknown, to others too
		s.admitted, learnt = unreported, 0
	}
	n := max(k.share.estimate(s.expected, s.admitted)-s.admitted-learnt, 0)
	if now < k.carryUntil {
		n += k.carry
	}
	return n
}

// sinceUpdate is what has come since the last round that updates were about.
func (k *Key) sinceUpdate() sums {
	s := k.history.since(k.anchor)
	s.admitted = k.history.since(k.from).admitted
	return s
}

// demandAt is how many hits everybody asks for, per ns, by updates and by own hits
// since.
func (k *Key) demandAt(now int64) float64 {
	span := float64(max(now-k.demand.asOf, leastSpan))
	d := k.demand.after(span)
	return k.share.estimate(d*span, k.history.since(k.demand.asOf).asked) / span
}

// leastSpan keeps a few hits in a moment from looking like a rate.
const leastSpan = int64(1e6)

// expect moves what is expected of everybody on to now.
func (k *Key) expect(now int64) {
	if now <= k.history.now {
		return
	}
	d := k.demandAt(now)
	k.history.advance(now, func(span float64) float64 { return k.glide(d, span) })
}

// glide lets time pass, and returns how many hits everybody admits in it: all that are asked for
// while there is much room, and in the band below the limit a part such that the room shrinks
// exponentially.
func (k *Key) glide(d, span float64) (n float64) {
	if d <= k.freed {
		k.room -= (d - k.freed) * span
		return d * span
	}
	if top := k.band * (1 - k.freed/d); k.room > top {
		t := min(span, (k.room-top)/(d-k.freed))
		n += d * t
		k.room -= (d - k.freed) * t
		span -= t
	}
	if bottom := -k.freed * k.band / d; k.room < bottom {
		if k.freed <= 0 {
			return n
		}
		t := min(span, (bottom-k.room)/k.freed)
		k.room += k.freed * t
		span -= t
	}
	if span > 0 {
		left := k.room * math.Exp(-d*span/k.band)
		n += k.room - left + k.freed*span
		k.room = left
	}
	return n
}

// Pass decides for a hit of some cost, when a part of less than 1 of the hits may pass.
func (k *Key) Pass(part float64, cost int64) bool {
	if part <= 0 { // whatever credit dear hits have left
		return false
	}
	c := float64(cost)
	k.credit += part * c
	if k.credit < c/2 {
		return false
	}
	k.credit -= c
	return true
}

// Return takes back what Pass did for a hit that passed here and was then turned away elsewhere.
// When all hits may pass it did nothing. The part of the hit that could pass goes too: else many
// such hits would save up credit for as many others to pass one after the other.
func (k *Key) Return(part float64, cost int64) {
	if part < 1 {
		k.credit += (1 - max(part, 0)) * float64(cost)
	}
}

// Denials is how many further hits of cost 1 will not pass, as long as the part stays the same.
func (k *Key) Denials(part float64) int64 {
	switch {
	case part >= 1: // whatever debt a dear hit has left
		return 0
	case part <= 0:
		return math.MaxInt32
	}
	return int64(min(max(math.Ceil((0.5-k.credit)/part)-1, 0), math.MaxInt32))
}

// Denied takes in that so many hits of cost 1 did not pass, without Pass having been asked.
func (k *Key) Denied(part float64, hits int64) {
	k.credit += max(part, 0) * float64(hits)
}

// Urgent says whether the fleet should report the key at its next fast round, rather than in its
// next normal round, which are this far apart: when there was no update for long, when there may be
// more hits than expected, when the room could be used up before the normal round's updates are
// there, when so much is left to chance until then that the count would stray by a per cent, or
// when the limit leaves the checkers so few hits each that normal rounds would save no report.
func (k *Key) Urgent(now int64, o Outlook, w Window, f Fleet, normal int64) bool {
	if f.Checkers >= large && w.Pace*float64(normal) < f.Checkers*fewHits {
		return true
	}
	if o.Free < w.Limit/2 && float64(now-k.demand.asOf) > k.demand.believed() {
		return true
	}
	s := k.sinceUpdate()
	if k.share.contradicts(s.expected, s.admitted) && 4*s.admitted/k.share.part >= o.Free {
		return true
	}
	asked, part := o.Demand*float64(normal), 1.0
	switch {
	case asked <= 0:
		return false
	case o.Free < 2*k.band:
		part = min(part, (w.Freed+w.Soon)/o.Demand)
	case asked > o.Free/2:
		return true
	}
	// The variance of the hits that are admitted: what chance adds to the arrivals, and what is
	// lost in rounding at each checker.
	variance := part*part*asked + min(part*(1-part)*asked, f.rounding())
	stray := max(o.Free, 0.01*w.Limit, 6)
	return 9*variance > stray*stray
}

// Ease is how many hits may pass here before the next look, and for how many ns, when all may pass:
// an eighth of what that takes to come near the limit.
func (k *Key) Ease() (hits, span int64) {
	slack := (k.room - k.band) / 8
	if slack <= 0 {
		return 0, 0
	}
	span = math.MaxInt64 / 4
	if d := k.demand.rate(); d > 0 {
		span = int64(min(slack/d, float64(span)))
	}
	return int64(min(slack*k.share.part, math.MaxInt32)), span
}
