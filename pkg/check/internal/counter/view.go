package counter

import "github.com/offpath-io/offpath/pkg/check/internal/level"

// View is a copy of a counter, with which a decision can be tried out. The counter and its
// allowance do not change, and no other goroutine can reach the view.
type View struct {
	strictCounter // used as the counter of any group
	more          more
	forecast      Forecast
	thinning      thinning
	counts        []int64
	inFlight      []int64
	refunds       []int64
	level         level.State
}

// Of makes the view a copy of the counter of a key, or of the counts that the idle cache remembers,
// and returns it as a counter. The key's text must outlive its use.
func (v *View) Of(g *Group, key string, now int64) Locked {
	if counter := g.Host.Table.Load(g, key); counter != nil {
		c := counter.Lock()
		defer c.Unlock()
		if !c.Is(Dead) {
			v.copy(c, now)
			return v.self()
		}
	}
	v.blank(g, key, g.Shape.Bucket(now))
	if old := g.Recall(key); old.Counter != nil {
		v.self().Learn(old)
	}
	return v.self()
}

// blank makes the view a counter without hits.
func (v *View) blank(g *Group, key string, bucket int64) {
	v.Group, v.Newest, v.generation, v.overflow = g, bucket, 0, false
	v.setKey(key)
	v.State = Viewed | queued // marked as queued, so that nothing queues it
	v.counts = append(v.counts[:0], make([]int64, 2*g.Live)...)
	v.more = more{counts: v.counts}
	v.Counter.more = &v.more
	if g.Shape.Drains() {
		v.level.Reset(bucket - int64(g.Live))
		v.more.level = &v.level
	}
	v.Allowance.Store(0)
	v.Until.Store(0)
	v.permits.Reset()
	if g.Strict != nil {
		v.permits.Forget(g.Strict.Forgotten.Load())
	}
}

// self returns the view as a counter, which no other goroutine can reach.
func (v *View) self() Locked { return Locked{&v.Counter} }

// copy makes the view a copy of a counter.
func (v *View) copy(c Locked, now int64) {
	g := c.Group
	v.blank(g, c.Key(), c.Newest)
	v.generation, v.overflow = c.generation, c.overflow
	copy(v.self().Totals(), c.Totals())
	copy(v.self().Pending(), c.Pending())
	if l := c.level(); l != nil {
		v.level.Copy(l)
	}
	if r := c.refunded(); r != nil {
		v.refunds = append(v.refunds[:0], r...)
		v.more.refunded, v.more.net = v.refunds, make([]int64, len(r))
	}
	if a := c.Forecast(); a != nil {
		v.forecast = *a
		v.inFlight = append(v.inFlight[:0], a.inFlight...)
		v.forecast.inFlight = v.inFlight
		v.more.forecast = &v.forecast
	}
	if th := c.thinning(); th != nil {
		v.thinning = *th
		v.more.thinning = &v.thinning
	}
	if p := c.Permits(); p != nil {
		v.permits.Copy(p)
	}
	v.withdrawCopy(c.Allowance.Load(), now, c.Until.Load())
}

// withdrawCopy does in the view what Withdraw does in a counter; the counter keeps its allowance.
func (v *View) withdrawCopy(word uint64, now, until int64) {
	left, taken := int64(word&LeftMask), int64(word/oneTaken&LeftMask)
	a := v.more.forecast
	switch {
	case left|taken == 0:
	case word&Blocked != 0:
		a.Denied(a.Part, taken)
		a.note(now, 0, taken)
	default:
		v.self().add(-left)
		v.self().level().Date(&v.Group.Limits.Load().Drain, v.Newest, min(now, until), taken)
		if a != nil {
			a.note(now, taken, 0)
		}
		if v.Group.Strict != nil {
			v.permits.Spend(v.Newest, -left)
		}
	}
}

// Used returns how many hits lie in the window of a viewed counter, including those that others are
// expected to have admitted.
func (c Locked) Used(t *Limits, now int64) float64 {
	at := c.rotate(now)
	if c.Forecast() == nil {
		return c.Count(t, at)
	}
	o, w := c.Look(t, at)
	return w.Limit - o.Free
}
