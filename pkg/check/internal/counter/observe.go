package counter

import "github.com/offpath-io/offpath/pkg/check/internal/level"

// What answers, alarms and settlements change in a counter.

// merge raises the totals to what a message says, and returns by how much: hits of others that were
// not known of. The counter is current.
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

// forgetBase leaves only the pending hits: the store has lost data, and its new totals replace the
// old ones. The allowance is withdrawn.
func (c Locked) forgetBase() {
	copy(c.Totals(), c.Pending())
	clear(c.refunded())
	if l := c.level(); l != nil {
		l.Forget(c.Newest - int64(c.Group.Live))
	}
}

// enter brings a counter into the shard's generation: the base of an older one no longer counts.
// Its allowance is withdrawn, and nothing of it is in flight, or else
// what is has just been answered in that generation.
func (c Locked) enter(generation uint8) {
	if c.generation != generation {
		c.forgetBase()
		c.generation = generation
	}
}

// MergeInto raises a counter's totals, and returns by how much.
func (w Update) MergeInto(c Locked) (news int64) {
	if l := c.level(); l != nil {
		vague := c.Is(Informed) && c.hidesRefunds(w) // what the counter has may be net of refunds
		l.Observe(c.situation(c.Group.Limits.Load(), new(level.Situation)), w.Admitted.Level, w.net, vague)
	}
	t := w.Admitted
	for i, age := range t.Age {
		news += c.merge(t.Newest-age, int64(t.Value[i]))
	}
	return news
}

// ObserveAnswer takes in the answer to the counter's report, of its shard in a generation. If current is
// false, the answer is of a store that has lost data since, and only ends the report. If overflows,
// the store had no room for the key.
func (counter *Counter) ObserveAnswer(generation uint8, current, overflows bool, w Update) {
	c := counter.Lock()
	defer c.Unlock()
	c.landLocked(w.Fleet)
	if current {
		c.CatchUp(w.Fleet)
	}
	switch {
	case current && overflows: // it tells nothing else; in another period there may be room again
		shape := c.Group.Shape
		c.overflow = shape.Period(shape.Bucket(w.Made)) == shape.Period(c.Newest)
		c.State |= Informed
	case current:
		c.enter(generation)
		c.observe(w)
	}
	if w.Refunding {
		c.askForRefunds()
	}
}

// observe takes in a key's totals, for its counts and its forecast. The counter is locked and
// current.
func (c Locked) observe(w Update) {
	news := w.MergeInto(c)
	c.overflow = c.overflow && len(w.Admitted.Age) == 0
	if l := c.level(); l != nil {
		l.ObserveOthers(w.Fleet, news)
	}
	c.observeRefunds(w)
	if len(w.Admitted.Age) == 0 && len(w.Refunded.Age) > 0 {
		return // it says nothing of hits
	}
	if !c.Is(Informed) && c.level() != nil && c.hidesRefunds(w) { // its level may be too high by them
		c.askForRefunds()
	}
	c.State |= Informed
	t := c.Group.Limits.Load()
	room, at := c.Room(t, w.Fleet)
	if c.ensureForecast(t, at, room) != nil {
		c.ageForecast(w.Fleet)
		c.observeForecast(t, at, w, news)
	}
}

// ObserveAlarm takes in an alarm for one key, whose shard is in a generation. It returns true if this
// checker holds pending hits of the key, which the fleet should hear of soon.
func (g *Group) ObserveAlarm(key []byte, generation uint8, w Update) (eager bool) {
	counter, fleet := g.Holds(key), w.Fleet
	if counter == nil {
		if g.Strict != nil { // counts decide nothing there
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
	// The report in flight may or may not be in these totals. They are a floor, and as long as it
	// is in flight the old generation's base is the only place where its hits are counted.
	if !c.Is(InFlight) {
		c.enter(generation)
	}
	waits := c.Is(deferred)
	c.endDeferral()
	c.observe(w)
	// A key that had a forecast before is reported in the rounds that it needs.
	return c.hasPending() && (waits || c.Forecast() == nil)
}

// noteUnknown remembers an alarm for a key without a live counter. It gets one, which is returned,
// if it is blocked or there is plenty of room; otherwise it goes to the idle cache.
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

// Settle lets a settlement change the hits of a bucket, and returns whether others should hear of
// it soon. A counter that reports its hits is told the new totals by an answer.
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

// Rebucket moves the counter to where the clock, corrected by a step, says that its hits belong: to
// the nearest bucket, but not beyond the one of now.
func (counter *Counter) Rebucket(step, fleet int64) {
	c := counter.Lock()
	defer c.Unlock()
	size := int64(c.Group.Shape.BucketSize())
	c.Withdraw(fleet)
	by := floorDiv(step+size/2, size)
	c.Newest += by
	if l := c.level(); l != nil {
		l.Rebucket(by, step)
	}
	if ahead := c.Newest - c.Group.Shape.Bucket(fleet); ahead > 0 {
		c.pullBack(ahead)
	}
}

// Adjust brings the counter in line with new limits.
func (counter *Counter) Adjust(fleet int64) {
	c := counter.Lock()
	defer c.Unlock()
	if c.Is(Dead) {
		return
	}
	t := c.Group.Limits.Load()
	room, at := c.Room(t, fleet) // withdraws what the old limits have left behind
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

// Land notes that the counter's report has ended without an answer that counts.
func (counter *Counter) Land(fleet int64) {
	c := counter.Lock()
	defer c.Unlock()
	c.landLocked(fleet)
}

// landLocked lets the counter leave, unless it has new hits.
func (c Locked) landLocked(fleet int64) {
	c.State &^= InFlight
	if c.Forecast() != nil {
		clear(c.Forecast().inFlight)
	}
	if !c.Is(queued) {
		c.age(fleet)
	}
}
