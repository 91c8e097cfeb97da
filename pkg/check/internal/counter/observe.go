package counter

import (
	"math"
	"slices"

	"github.com/offpath-io/offpath/pkg/check/internal/level"
)

// How answers, alarms and settlements change a counter.

// merge raises a bucket's total to that of a message, and returns by how much: these are hits of
// others that were not known. The counter is current.
func (c Locked) merge(bucket, total int64) (news int64) {
	i := c.Newest - bucket
	totals := c.Totals()
	if i < 0 || i >= int64(len(totals)) {
		return 0
	}
	if l := c.level(); l != nil && l.Covers(bucket) {
		return 0
	}
	news = max(total+c.Pending()[i]-totals[i], 0)
	totals[i] += news
	return news
}

// forgetBase keeps only the pending hits: the store has lost data, and its new totals replace the
// old ones. The allowance is withdrawn.
func (c Locked) forgetBase() {
	copy(c.Totals(), c.Pending())
	clear(c.refunded())
	if l := c.level(); l != nil {
		l.Forget(c.Newest - int64(c.Group.Live))
	}
}

// enter brings a counter into the shard's generation: the base of an older one no longer counts.
// Its allowance is withdrawn. It has no hits in flight, or they have just been answered in that
// generation.
func (c Locked) enter(generation uint8) {
	if c.generation != generation {
		c.forgetBase()
		c.generation = generation
	}
}

// MergeInto raises a counter's totals to those of the message, and returns by how much.
func (w Update) MergeInto(c Locked) (news int64) {
	if l := c.level(); l != nil {
		vague := c.Is(Informed) && c.hidesRefunds(w) // the counter's own hits may be net of refunds
		l.Observe(c.situation(c.Group.Limits.Load(), new(level.Situation)), w.Admitted.Level, w.net, vague)
	}
	t := w.Admitted
	for i, age := range t.Age {
		news += c.merge(t.Newest-age, int64(t.Value[i]))
	}
	return news
}

// ObserveAnswer processes the answer to the counter's report; generation is its shard's. If valid
// is false, the answer is from a store that has lost data since, and only ends the report.
// overflows means that the store had no room for the key.
func (counter *Counter) ObserveAnswer(generation uint8, valid, overflows bool, w Update) {
	c := counter.Lock()
	defer c.Unlock()
	c.landLocked(w.Fleet)
	if valid {
		c.CatchUp(w.Fleet)
	}
	switch {
	case valid && overflows: // the answer has no totals then; in another period there may be room again
		shape := c.Group.Shape
		c.overflow = shape.Period(shape.Bucket(w.Made)) == shape.Period(c.Newest)
		c.State |= Informed
	case valid:
		c.enter(generation)
		c.observe(w)
	}
	if w.Refunding {
		c.askForRefunds()
	}
}

// observe merges a key's totals into its counts and its forecast. The counter is current.
func (c Locked) observe(w Update) {
	news := w.MergeInto(c)
	c.overflow = c.overflow && len(w.Admitted.Age) == 0
	if l := c.level(); l != nil {
		l.ObserveOthers(w.Fleet, news)
	}
	c.noteOthers(c.Group.Limits.Load(), w.Fleet, news)
	c.observeRefunds(w)
	if len(w.Admitted.Age) == 0 && len(w.Refunded.Age) > 0 {
		return // it has refunds only
	}
	if !c.Is(Informed) && c.level() != nil && c.hidesRefunds(w) { // the level in the message may include refunded hits
		c.askForRefunds()
	}
	c.State |= Informed
	t := c.Group.Limits.Load()
	room, at := c.Room(t, w.Fleet)
	if c.ensureForecast(t, at, room, 0) != nil {
		c.ageForecast(w.Fleet)
		c.observeForecast(t, at, w, news)
	}
}

// ObserveAlarm processes an alarm for one key; generation is its shard's. It returns true if the
// key should be reported in the next fast round: it has pending hits, and these were deferred, or
// it has no forecast that would ask for the round it needs.
func (g *Group) ObserveAlarm(key []byte, generation uint8, w Update) (eager bool) {
	counter, fleet := g.Lookup(key), w.Fleet
	if counter == nil {
		if g.Strict != nil { // permits decide there, not counts
			return false
		}
		if counter = g.noteUnknown(string(key), generation, w); counter == nil {
			return false
		}
	}
	c := counter.Lock()
	defer c.Unlock()
	if c.Is(Dead) {
		return false
	}
	c.CatchUp(fleet)
	// The report in flight may or may not be in these totals, so they are a lower bound. While it
	// is in flight, only the base of the old generation counts its hits.
	if !c.Is(InFlight) {
		c.enter(generation)
	}
	waits := c.Is(deferred)
	c.endDeferral()
	c.observe(w)
	// A key with a forecast asks for the rounds that it needs.
	return c.hasPending() && (waits || c.Forecast() == nil)
}

// noteUnknown records an alarm for a key without a live counter. If the key has no room left, or
// the table is not crowded, it makes a counter and returns it; otherwise it puts the totals into
// the idle cache and returns nil.
func (g *Group) noteUnknown(key string, generation uint8, w Update) *Counter {
	c := New(g, key, w.Fleet)
	if old := g.Recall(key); old.Counter != nil {
		c.Learn(old)
	}
	c.rotate(w.Fleet)
	c.enter(generation)
	w.MergeInto(c)
	c.observeRefunds(w)
	if room, _ := c.Room(g.Limits.Load(), w.Fleet); room < 1 || !g.Host.Crowded() {
		if live := g.make(w.Fleet, key); live != nil {
			return live
		}
	}
	c.State = Dead
	g.remember(c)
	return nil
}

// Settle processes a settlement of hits of a bucket, and returns whether it should be reported
// soon. With a link, the counter learns of the new totals from an answer.
func (counter *Counter) Settle(bucket, hits, fleet int64) (soon bool) {
	c := counter.Lock()
	defer c.Unlock()
	if c.Is(Dead) {
		return false
	}
	t := c.Group.Limits.Load()
	room, at := c.Room(t, fleet)
	if c.Group.Host.Config.Local {
		c.correct(t, bucket, hits)
		c.level().BringTurnForward(c.situation(t, new(level.Situation)), at)
		return false
	}
	c.askForRefunds()
	return c.Forecast() != nil || room <= t.Limit/2
}

// Rebucket moves the counter's pending hits when the clock is corrected by a step: to the nearest
// bucket, and at most to that of now. What was reported stays where the store has it. Hits that
// have spent permits stay in the permits' bucket.
func (counter *Counter) Rebucket(step, fleet int64) {
	c := counter.Lock()
	defer c.Unlock()
	c.Withdraw(fleet)
	c.Touch(fleet)    // it may have been active in the future
	c.forgetTraffic() // its past may lie there, too
	if p := c.Permits(); p != nil {
		p.Rebucket(c.Group.Shape.Bucket(fleet))
		if p.Newest() != math.MinInt64 {
			return
		}
	}
	if step < 0 && c.Newest <= c.Group.Shape.Bucket(fleet) {
		return // a check has moved them since the step, or they are older than it
	}
	size := int64(c.Group.Shape.BucketSize())
	by := floorDiv(step+size/2, size)
	switch l := c.level(); {
	case !c.Is(Informed | InFlight): // nothing has been reported
		c.Newest += by
		if l != nil {
			l.Rebucket(by, step)
		}
		c.endBy(fleet)
	case l == nil && c.hasPending():
		c.movePending(by, fleet)
	default:
		c.endBy(fleet)
	}
}

// endBy moves the hits of buckets after that of a fleet time into it.
func (c Locked) endBy(fleet int64) {
	if ahead := c.Newest - c.Group.Shape.Bucket(fleet); ahead > 0 {
		c.pullBack(ahead)
	}
}

// movePending moves the pending hits into buckets that are later by so many, at most that of a
// fleet time; what has left every window is late.
func (c Locked) movePending(by, fleet int64) {
	newest, hits := c.Newest+by, slices.Clone(c.Pending())
	for age, n := range hits {
		c.Totals()[age] -= n
	}
	clear(c.Pending())
	c.endBy(fleet)
	c.rotate(fleet)
	for age, n := range hits {
		at := max(c.Newest-(newest-int64(age)), 0)
		if at < int64(len(hits)) {
			c.Totals()[at] += n
			c.Pending()[at] += n
		} else if n > 0 {
			c.Group.addLate(n)
		}
	}
}

// Adjust adjusts the counter to new limits.
func (counter *Counter) Adjust(fleet int64) {
	c := counter.Lock()
	defer c.Unlock()
	if c.Is(Dead) {
		return
	}
	t := c.Group.Limits.Load()
	room, at := c.Room(t, fleet) // withdraws the allowance or block of the old limits
	if p := c.Permits(); p != nil {
		p.Adjust(at, t.Wire, c.Group.Retired.Load())
		c.AskIfNeeded(p, at)
		return
	}
	c.adjustCounts(t, room, at)
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// Land notes that the counter's report has ended without a valid answer.
func (counter *Counter) Land(fleet int64) {
	c := counter.Lock()
	defer c.Unlock()
	c.landLocked(fleet)
}

// landLocked puts the counter into the queue of counters that may leave, unless it has new hits.
func (c Locked) landLocked(fleet int64) {
	c.State &^= InFlight
	if c.Forecast() != nil {
		clear(c.Forecast().inFlight)
	}
	if !c.Is(queued) {
		c.age(fleet)
	}
}
