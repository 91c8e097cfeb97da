package counter

import "github.com/offpath-io/offpath/pkg/check/internal/level"

// Refunds, the hits that settlements have given back, are a second count per bucket beside the
// totals. It only grows, too, and messages contain it in the same way; the difference of the two
// counts. Most counters have no refunds.
//
// A group's reports ask for refunds once there may be some: a receipt of its hits was made here, or
// a message says so.

// mergeRefunds raises a counter's refunds to those of a message, and returns whether any was
// raised. The counter is current.
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

// observeRefunds merges a message's refunds. Their room can be used at once: the counter's block
// was withdrawn when it became current, and permits are asked for again. The counter is current.
func (c Locked) observeRefunds(w Update) {
	g := c.Group
	if len(w.Refunded.Age) > 0 && !g.Refunds.Load() { // also if the counter no longer has these buckets
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

// askForRefunds makes the next report ask for refunds, even if it has no hits of the key.
func (c Locked) askForRefunds() {
	c.needMore().asks = true
	c.endDeferral()
	c.queue()
}

// asksForRefunds returns whether the report that is being made is to ask for refunds, and resets
// that.
func (c Locked) asksForRefunds() bool {
	if c.more == nil || !c.more.asks {
		return false
	}
	c.more.asks = false
	return true
}
