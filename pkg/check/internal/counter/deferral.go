package counter

// A key far below its limit is *deferred*: it would stay below the forecast threshold even if all
// checkers held as many of its hits as this one. Its hits wait longer for their report than others,
// so that one report contains more of them. They still count here at once, and are reported exactly
// once. Other checkers need them only when the key comes near the forecast threshold; then an
// alarm, or the first check that finds it there, ends the deferral. No key is deferred before an
// answer or an alarm has said how many hits others have admitted: a checker that has just started
// does not know how much of a limit is used up.

// mayDefer defers the counter's hits if its key is far below its limit, and returns whether it has.
// The counter is current, and has just been taken off its queue.
func (c Locked) mayDefer(fleet int64, mayWait bool) bool {
	g := c.Group
	patience, t := g.patience(), g.Limits.Load()
	if c.Is(notDeferred) || !c.Is(Informed) || c.Forecast() != nil || patience < 0 ||
		!mayWait || g.Host.Crowded() || !g.foresees(t) || !c.hasPending() {
		c.State &^= notDeferred
		return false
	}
	if room, _ := c.Room(t, fleet); c.unforeseen(t, room) <= 0 {
		return false
	}
	c.State |= queued | deferred
	g.deferred.Push(aged{c.Counter, fleet + patience})
	if g.deferred.Len() == 1 {
		g.Host.deferrals.Push(fleet+patience, g)
	}
	return true
}

// EndDeferrals calls enqueue with the counters whose deferral ends by this time of the fleet; with
// all deferred counters if all is set or the table is crowded.
func (h *Host) EndDeferrals(fleet int64, all bool, enqueue func(*Counter)) {
	all = all || h.Crowded()
	for due := h.deferrals.Due(); due != notDue && (all || due <= fleet); due = h.deferrals.Due() {
		q := &h.deferrals.Peek().deferred
		c := q.Pop().counter.Lock()
		resumes := c.Is(deferred) // otherwise its deferral has ended already
		if resumes {
			c.State = c.State&^deferred | notDeferred
		}
		c.Unlock()
		if resumes {
			enqueue(c.Counter)
		}
		if q.Len() > 0 {
			h.deferrals.Defer(q.Peek().Due)
		} else {
			h.deferrals.Pop()
		}
	}
}

// notDue is the due time of an empty heap.
const notDue = int64(1<<63 - 1)

// patience is how long hits of a deferred key may wait after the first flush that sees them;
// negative if a deferral would save nothing. That flush comes up to FlushEvery after the hits, and
// the flush that ends the deferral up to FlushEvery late.
func (g *Group) patience() int64 {
	o := &g.Host.Config
	return int64(min(g.Shape.Length/deferralPart, o.QuietFor) - 2*o.FlushEvery)
}
