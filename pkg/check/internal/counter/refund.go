package counter

import "github.com/offpath-io/offpath/pkg/check/internal/level"

// What settlements have given back of a key's hits is a second count per bucket beside its totals,
// which only grows too, and comes with messages as they do: what counts is their difference. Most
// counters have none.
//
// A limiter asks for refunds along with its reports from the time on when it is known that there
// may be some: a receipt of its hits has been made here, or a message says so.

// mergeRefunds raises a counter's refunds to what a message says, and returns whether that was
// news. The counter is current.
func (t Totals) mergeRefunds(c Locked) (news bool) {
	for i, age := range t.Age {
		at, n := c.Newest-(t.Newest-age), int64(t.Value[i])
		if at < 0 || at >= int64(c.Group.Live) || n == 0 {
			continue
		}
		c.mayRefund()
		if n > c.more.refunded[at] {
			c.more.refunded[at] = n
			news = true
		}
	}
	return news
}

// observeRefunds takes in a message's refunds. Room that they give can be used at once: what kept
// others out was withdrawn when the counter was settled, and permits are asked for anew. The
// counter is current.
func (c Locked) observeRefunds(w Update) {
	g := c.Group
	if len(w.Refunded.Age) > 0 && !g.Refunds.Load() { // also of buckets that the counter has let go
		g.Refunds.Store(true)
	}
	if !w.Refunded.mergeRefunds(c) {
		return
	}
	at := c.rotate(w.Fleet)
	c.level().BringTurnForward(c.situation(g.Limits.Load(), new(level.Situation)), at)
	if p := c.Permits(); p != nil {
		p.Hasten()
		c.AskIfNeeded(p, w.Fleet)
	}
}

// askForRefunds lets the next report tell what was given back, if only by asking.
func (c Locked) askForRefunds() {
	if c.more == nil {
		c.more = &more{}
	}
	c.more.asks = true
	c.endDeferral()
	c.queue()
}

// asksForRefunds says whether the counter is to be told of refunds by the report in the making,
// hits or not.
func (c Locked) asksForRefunds() bool {
	if c.more == nil || !c.more.asks {
		return false
	}
	c.more.asks = false
	return true
}
