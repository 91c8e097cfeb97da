package check

import "github.com/offpath-io/offpath/pkg/window"

// view is a copy of a counter, to look at and to decide with as if it were the counter; nobody else
// sees it, and the counter stays as it is, with the allowance that lies in it. Nothing that is done
// with it reaches anything but itself.
type view struct {
	strictCounter // the counter of a limiter of any kind
	more          more
	ahead         keyForecast
	counts        []int64
	inFlight      []int64
	refunds       []int64
	level         levelState
}

// of makes the view one of the counter of a key, or of what is remembered of it, and returns it as
// a counter. The key's text must outlive its use.
func (v *view) of(l *Limiter, key string, now int64) *counter {
	if c := l.checker.table.load(l, key); c != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.is(dead) {
			v.copy(c, now)
			return &v.counter
		}
	}
	v.blank(l, key, l.shape.Bucket(now))
	if old := l.recall(key); old != nil {
		v.learn(old)
	}
	return &v.counter
}

// blank makes it that of a key without hits.
func (v *view) blank(l *Limiter, key string, bucket int64) {
	v.limiter, v.newest, v.generation, v.overflow = l, bucket, 0, false
	v.setKey(key)
	v.state = viewed | queued // it is in no queue, and gets into none
	v.counts = append(v.counts[:0], make([]int64, 2*l.live)...)
	v.more = more{counts: v.counts}
	v.counter.more = &v.more
	if l.shape.Drains() {
		none := window.Level{Bucket: bucket - int64(l.live)}
		v.level.dates.Clear()
		v.level = levelState{level: none, own: none, dates: v.level.dates}
		v.more.drained = &v.level
	}
	v.allowance.Store(0)
	v.until.Store(0)
	v.permits.Reset()
	if l.strict != nil {
		v.permits.Forget(l.strict.forgotten.Load())
	}
}

// copy makes it that of a counter, which is locked.
func (v *view) copy(c *counter, now int64) {
	l := c.limiter
	v.blank(l, c.key(), c.newest)
	v.generation, v.overflow = c.generation, c.overflow
	copy(v.totals(), c.totals())
	copy(v.pending(), c.pending())
	if d := c.levelState(); d != nil {
		v.level.copy(d)
	}
	if r := c.refunded(); r != nil {
		v.refunds = append(v.refunds[:0], r...)
		v.more.refunded, v.more.net = v.refunds, make([]int64, len(r))
	}
	if a := c.keyForecast(); a != nil {
		v.ahead = *a
		v.inFlight = append(v.inFlight[:0], a.inFlight...)
		v.ahead.inFlight = v.inFlight
		v.more.ahead = &v.ahead
	}
	if p := c.permits(); p != nil {
		v.permits.Copy(p)
	}
	v.settleCopy(c.allowance.Load(), now, c.until.Load())
}

// settleCopy is settle for an allowance that stays where it is.
func (v *view) settleCopy(word uint64, now, until int64) {
	left, taken := int64(word&leftMask), int64(word/oneTaken&leftMask)
	a := v.more.ahead
	switch {
	case left|taken == 0:
	case word&blocked != 0:
		a.Denied(a.part, taken)
		a.note(now, 0, taken)
	default:
		v.add(-left)
		v.date(v.limiter.limits.Load(), min(now, until), taken)
		if a != nil {
			a.note(now, taken, 0)
		}
		if v.limiter.strict != nil {
			v.permits.Spend(v.newest, -left)
		}
	}
}
