package counter

// A key far below its limit is *quiet*: even if all checkers hold as many of its hits as this one
// it would not be near. Its hits may wait for their report longer than others', so that more of
// them share one. They still count here at once, and are reported exactly once; that they are not
// known elsewhere does no harm until the key comes near its limit, and then an alarm, or the first
// check that finds it so, ends the wait. No key is quiet before an answer or an alarm has told what
// others have admitted: a checker that has just started knows nothing of what is used up.

// mayDefer lets a counter's hits wait if its key is quiet. The counter is
// current, and just off its queue.
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

// EndDeferrals queues the counters whose hits have waited long enough; all of them if there is no
// time or no room to wait.
func (h *Host) EndDeferrals(fleet int64, all bool, enqueue func(*Counter)) {
	all = all || h.Crowded()
	for due := h.deferrals.Due(); due != notDue && (all || due <= fleet); due = h.deferrals.Due() {
		q := &h.deferrals.Peek().deferred
		c := q.Pop().counter.Lock()
		resumes := c.Is(deferred) // or else something has ended its deferral
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

// notDue is the due of an empty heap.
const notDue = int64(1<<63 - 1)

// patience is how long hits of a quiet key may wait from the first flush that meets them; negative
// if that makes no difference. That flush came up to FlushEvery after them, and so does the one
// that ends the wait.
func (g *Group) patience() int64 {
	o := &g.Host.Config
	return int64(min(g.Shape.Length/quietPart, o.QuietFor) - 2*o.FlushEvery)
}
