// Package forecast estimates the hits that other checkers have admitted and this one does not know
// of: how many there are, and which part of the next hits may therefore pass.
//
// All checkers of a fleet report a key with a forecast at the same moments of the fleet's time, its
// *rounds*. So an update (from an answer or an alarm) of a round has totals that are complete up to
// that moment, the *anchor*, and only the hits since then have to be estimated. A [Key] has two
// sources for that. One is the hits *expected* of the whole fleet: the demand, which updates show,
// times the part that may pass, which all checkers compute alike. The other is the hits that this
// checker has seen itself, divided by its share of the key's traffic. The first is the mean of a
// gamma distribution, which the second updates as evidence (a gamma prior of a Poisson rate; see
// any text on Bayesian inference). If the two contradict each other, the traffic has changed: then
// the second counts alone, but only if the share is known and has been steady. Otherwise the
// traffic has more probably moved between the checkers than grown.
//
// Just below the limit only a part of the hits passes, so that the room shrinks exponentially.
// Error diffusion decides which hits pass: a part of 0.2 is exactly every fifth hit, without
// randomness. This range, and the reserve for chance, are no larger than the number of hits that
// can be unknown: where hits are rare, all that fit pass.
//
// The package also has two other estimates that need no counter: which denials were false
// ([FalseDenials]), and how fast others' hits pass a leaky bucket ([Outflow]).
//
// Everything here is a function of the time that it is given. Times are nanoseconds of the fleet's
// clock, rates are hits per nanosecond. Nothing here is safe for concurrent use.
package forecast

import "math"

// Window is the known state of a key's window at a time.
type Window struct {
	// Free is the limit less the known count, own hits included. Freed is how many hits per ns
	// leave the window gradually, and Soon how many per ns will leave it together: see
	// [LeavesAtOnce].
	Free, Freed, Soon float64
	// Limit is the limit, and Pace how many hits it is per ns of the window's length.
	Limit, Pace float64
	// Unreported is how many own hits are in no answer.
	Unreported float64
}

// per returns the window in units.
func (w Window) per(unit float64) Window {
	return Window{
		w.Free / unit, w.Freed / unit, w.Soon / unit, w.Limit / unit, w.Pace / unit, w.Unreported / unit,
	}
}

// Outlook is the result of a forecast.
type Outlook struct {
	// Free is how many hits of the whole fleet may still pass: the window's room, less the hits
	// that others are expected to have admitted. It may be negative.
	Free float64
	// Part is the part of the next hits that may pass: all if it is 1 or more, none if it is 0 or
	// less.
	Part float64
	// Demand is how many hits the fleet asks for, per ns.
	Demand float64
}

// Key is the forecast of one key. All that it holds is in units, except credit: what a request
// usually costs is a unit, since it is requests that come by chance, and that are evidence.
type Key struct {
	history history

	// round is the last round that had updates, and anchor is about when its reports were made.
	// learnt is how many hits of others have become known since, and carry how many expected hits
	// are still missing: they may come in further updates of the round, until carryUntil.
	round, anchor int64
	carryUntil    int64
	learnt, carry float64

	// unanswered is how many admitted own hits are not in the round's updates: those since this
	// checker's report of that round.
	unanswered float64
	reports    [keptReports]ownReport // the last ones, newest first

	demand demand
	share  share

	// The state at the last look, from which expectations continue.
	room, freed, band float64

	credit float64 // of error diffusion, in hits
}

// ownReport is a report of this checker: when it was made, and how many own hits have been admitted
// since. The history cannot tell these exactly: hits that an allowance has let pass are noted only
// when the report is made, though all are in it.
type ownReport struct {
	at    uint32 // µs, modulo 2³²: the forecast of a key that is silent does not live that long
	since float32
}

// keptReports is as many reports as may have been made when the answer to the first one comes.
const keptReports = 3

const (
	// fewHits is how many hits of a checker per normal round are so few that each needs a report of
	// its own.
	fewHits = 0.05
	large   = 100 // checkers; in a smaller fleet each has many keys to report at once
	// band is the part of the limit over which the part of hits that pass goes from 1 to 0.
	band = 0.015
	// Where updates are late, the band is at least as wide as latePart of the hits that are asked
	// for meanwhile: all checkers decide by the same old counts, so any error in these would make
	// all hits pass, or none, until the next update. (Without it, the count went 16 % over with
	// 10,000 checkers, and 14 % of the hits were falsely denied.) It is at most mostLate of the
	// limit, so that all may pass while the window is far from full.
	latePart, mostLate = 0.3, 0.25
	// The count is kept below the limit by a reserve, so that chance seldom takes it above: the
	// standard deviation of the rounding at each checker times aim, and at most the part mostAim of
	// the limit.
	aim, mostAim = 2.5, 0.004
)

// New returns the forecast of a key about which only the size of the fleet is known, and unit, how
// many hits a request usually costs. The checkers of a fleet should have different phases, spread
// over [0, 1), so that they do not all round in the same direction.
func New(now int64, f Fleet, phase, unit float64) *Key {
	return &Key{
		history: newHistory(now, f.interval()), round: now, anchor: now,
		demand: newDemand(now, f.interval(), unit),
		share:  newShare(f.Checkers), room: math.MaxFloat64, credit: (phase - 0.5) * unit,
	}
}

// Unit returns how many hits a request was said to cost.
func (k *Key) Unit() float64 { return float64(k.demand.unit) }

// Note records own hits: how many were asked for since the last call, and how many of them were
// admitted.
func (k *Key) Note(now, asked, admitted int64) {
	k.expect(now)
	more, passed := float64(asked)/k.Unit(), float64(admitted)/k.Unit()
	k.history.add(more, passed)
	k.share.asked += more
	k.unanswered += passed
	for i := range k.reports {
		k.reports[i].since += float32(passed)
	}
}

// Look computes the outlook.
func (k *Key) Look(now int64, w Window, f Fleet) Outlook {
	k.expect(now)
	w = w.per(k.Unit())
	d := k.demandAt(now)
	fresh := max(d, k.demand.mayReturn(now)) * float64(k.history.horizon()) // hits that some checkers may not know
	spare := min(aim*math.Sqrt(f.rounding()), mostAim*w.Limit, fresh)
	o := Outlook{Free: w.Free - spare - k.others(now, w.Unreported), Part: 1, Demand: d}
	late := min(latePart*d*float64(f.late()), mostLate*w.Limit)
	k.room, k.freed, k.band = o.Free, w.Freed, max(min(bandOf(w), fresh), late)
	switch {
	case d > 0:
		o.Part = o.Free/k.band + w.Freed/d
	case o.Free <= 0:
		o.Part = 0
	}
	o.Free, o.Demand = o.Free*k.Unit(), o.Demand*k.Unit()
	return o
}

// bandOf returns the band of a window, in hits. It is half as wide if hits leave at once: that room
// can be used up before more hits leave.
func bandOf(w Window) float64 {
	if w.Soon > 0 {
		return max(band/2*w.Limit, 1)
	}
	return max(band*w.Limit, 1)
}

// others returns how many unknown hits others are expected to have admitted.
func (k *Key) others(now int64, unreported float64) float64 {
	s, learnt := k.sinceUpdate(), k.learnt
	if now-k.anchor > k.history.horizon() { // no round: only the hits in no answer are certainly unknown, also to others
		s.admitted, learnt = unreported, 0
	}
	n := max(k.share.estimate(s.expected, s.admitted)-s.admitted-learnt, 0)
	if now < k.carryUntil {
		n += k.carry
	}
	return n
}

// sinceUpdate returns the hits since the last round that had updates.
func (k *Key) sinceUpdate() sums {
	s := k.history.since(k.anchor)
	s.admitted = k.unanswered
	return s
}

// demandAt returns how many hits the fleet asks for, per ns, according to updates and to own hits
// since.
func (k *Key) demandAt(now int64) float64 {
	span := float64(max(now-k.demand.asOf, leastSpan))
	d := k.demand.after(span)
	return k.share.estimate(d*span, k.history.since(k.demand.asOf).asked) / span
}

// leastSpan keeps a few hits within a short time from counting as a rate.
const leastSpan = int64(1e6)

// expect adds the hits that are expected of the fleet until now.
func (k *Key) expect(now int64) {
	if now <= k.history.now {
		return
	}
	d := k.demandAt(now)
	glide := func(span float64) float64 { return k.glide(d, span) }
	if k.carry > 0 && k.carryUntil <= now { // from then on all checkers let hits pass in their place
		k.history.advance(max(k.carryUntil, k.history.now), glide)
		k.room, k.carry = k.room+k.carry, 0
	}
	k.history.advance(now, glide)
}

// glide advances the room by a span of time, and returns how many hits the fleet admits in it: all
// hits while there is much room, and in the band below the limit a part of them, such that the room
// shrinks exponentially.
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

// Pass decides for a hit of this cost, when the part of the hits that may pass is less than 1.
func (k *Key) Pass(part float64, cost int64) bool {
	if part <= 0 { // whatever credit hits of a high cost have left
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

// Return reverses the effect of Pass for a hit that passed here and was then denied by another
// rule. If all hits may pass, there is none. The credit that the hit itself brought is removed,
// too: otherwise many such hits would save up credit, with which as many others would pass in a
// row.
func (k *Key) Return(part float64, cost int64) {
	if part < 1 {
		k.credit += (1 - max(part, 0)) * float64(cost)
	}
}

// Denials returns how many further hits of cost 1 will not pass, as long as the part stays the
// same.
func (k *Key) Denials(part float64) int64 {
	switch {
	case part >= 1: // whatever debt a hit of a high cost has left
		return 0
	case part <= 0:
		return math.MaxInt32
	}
	return int64(min(max(math.Ceil((0.5-k.credit)/part)-1, 0), math.MaxInt32))
}

// Denied records that this many hits of cost 1 did not pass, without a call of Pass.
func (k *Key) Denied(part float64, hits int64) {
	k.credit += max(part, 0) * float64(hits)
}

// Urgent returns whether the fleet should report the key in its next fast round rather than in its
// next normal round; normal is the time between these. It should if there was no update for long;
// if there may be more hits than expected; if the room could be used up before the normal round's
// updates come; if chance could change the count by a per cent until then; or if the limit leaves
// each checker so few hits that normal rounds would save no report.
func (k *Key) Urgent(now int64, o Outlook, w Window, f Fleet, normal int64) bool {
	w, o.Free, o.Demand = w.per(k.Unit()), o.Free/k.Unit(), o.Demand/k.Unit()
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
	// The variance of the admitted hits: that of random arrivals, and that of the rounding at each
	// checker.
	variance := part*part*asked + min(part*(1-part)*asked, f.rounding())
	stray := max(o.Free, 0.01*w.Limit, 6)
	return 9*variance > stray*stray
}

// Ease returns how many hits may pass here before the next look, and for how many ns, when all may
// pass: an eighth of the hits, or of the time, until the count reaches the band.
func (k *Key) Ease() (hits, span int64) {
	slack := (k.room - k.band) / 8
	if slack <= 0 {
		return 0, 0
	}
	span = math.MaxInt64 / 4
	if d := k.demand.rate(); d > 0 {
		span = int64(min(slack/d, float64(span)))
	}
	return int64(min(slack*k.share.part*k.Unit(), math.MaxInt32)), span
}
