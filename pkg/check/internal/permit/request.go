package permit

import "time"

// Request is a request to the store: the permits wanted in the store's current bucket, and the
// permits known to have been granted in Bucket.
type Request struct{ Bucket, Known, Want int64 }

// Grant is the store's answer.
type Grant struct {
	Bucket, Granted int64         // the store's current bucket, and permits granted in it in all
	Named           int64         // permits granted in all in the request's Bucket
	Wait            time.Duration // until more permits can be free; 0 if some are free now
}

// ShouldAsk returns whether there are permits to ask for, or to return.
func (a *Account) ShouldAsk(m Moment) bool {
	switch {
	case a.Owes():
		return true
	case m.Now < a.askAt || m.Now >= m.expiry(m.Bucket):
		return false
	}
	return a.demand.refused > 0 || a.waiting > 0 ||
		a.demand.level > 0 && a.left(m.Bucket) <= a.demand.low
}

// Ask records that the owner makes a request. It returns false if the owner does so already.
func (a *Account) Ask() bool {
	asks := !a.asking
	a.asking = true
	return asks
}

// Request decides what to ask for; ok is false if there is nothing to ask for any more. limit is
// the limit within which permits are granted at present, trip about how long a request takes, and
// share how many permits this checker may ask for before they are needed. The last request asks for
// no permits: they would only have to be returned.
func (a *Account) Request(
	m Moment, limit int64, trip time.Duration, share int64, last bool,
) (r Request, ok bool) {
	a.close(&m)
	a.forget(&m)
	a.measure(&m, trip, share)
	repeats := a.unanswered
	r, inquires := a.wish(&m, limit)
	if last {
		r.Want, inquires = 0, false
	}
	if r.Want == 0 && !inquires && !repeats && !a.Owes() {
		a.asking = false
		return r, false
	}
	a.asked = limit
	if !repeats { // otherwise the unanswered request may have been granted
		a.limit = 0
	}
	a.limit = max(a.limit, limit)
	a.unanswered = repeats || r.Want > 0
	a.demand.sent, a.demand.refused = max(a.demand.sent, a.demand.refused), 0
	return r, true
}

// wish decides what to ask for. inquires is true if it must first learn how many permits were
// granted.
func (a *Account) wish(m *Moment, limit int64) (r Request, inquires bool) {
	if !a.unanswered {
		a.named = m.Bucket
		if n := len(a.leases); n > 0 { // the store's clock may be ahead
			a.named = max(a.named, a.leases[n-1].bucket)
		}
	}
	r.Bucket = a.named
	r.Known, _ = a.known(a.named)
	if m.Now < a.askAt || m.Now >= m.expiry(m.Bucket) {
		return r, false
	}
	want := a.demand.wanted(a.waiting) - a.left(m.Bucket)
	if want <= 0 {
		return r, false
	}
	// Permits that are granted in a bucket whose lease was forgotten would count as spent.
	if _, ok := a.known(m.Bucket); !ok {
		return r, true
	}
	r.Want = min(want, limit)
	return r, false
}

// SendReturns calls send for every bucket with returned permits that the store may not know of,
// with the number returned in all.
func (a *Account) SendReturns(send func(bucket, returned int64)) {
	for i := range a.leases {
		if l := &a.leases[i]; l.returned > l.acked {
			l.sent = l.returned
			send(l.bucket, l.returned)
		}
	}
}

// Answered processes the answer to a request, and wakes callers that wait. g is the grant; nil if
// the store has lost its data since. limit is as for Request. After the last request no permit is
// spent any more.
func (a *Account) Answered(m Moment, g *Grant, limit int64, last bool) {
	a.asking = false
	if g != nil {
		a.take(&m, g)
	}
	if limit < a.limit { // permits that were granted within a higher limit are returned
		a.giveBack()
	}
	if limit > a.asked { // there may be room within a higher limit
		a.Hasten()
	}
	a.close(&m)
	if last {
		a.End()
	}
	a.forget(&m)
	a.serve(&m)
}

func (a *Account) take(m *Moment, g *Grant) {
	known, _ := a.known(g.Bucket)
	a.learn(a.named, g.Named)
	a.learn(g.Bucket, g.Granted)
	a.unanswered, a.demand.sent = false, 0
	for i := range a.leases {
		a.leases[i].acked = max(a.leases[i].acked, a.leases[i].sent)
	}
	if g.Granted > known {
		a.backOff = 0
	}
	a.freeAt.Store(0)
	a.askAt = 0
	if g.Wait > 0 {
		a.backOff = max(2*a.backOff, 2*m.idleAfter())
		a.freeAt.Store(m.Now + int64(g.Wait))
		a.askAt = m.Now + int64(min(g.Wait, a.backOff))
	}
}

// Hasten allows asking at once, although the last answer said that it would be in vain.
func (a *Account) Hasten() {
	a.freeAt.Store(0)
	a.askAt, a.backOff = 0, 0
}

// Rebucket takes in that the clock was set, so that the current bucket is an earlier one than
// before. A request that names a later one would be refused until that has come. Its answer, if
// there is one after all, has absolute numbers, and does no harm.
func (a *Account) Rebucket(current int64) {
	a.Hasten()
	if a.named > current {
		a.unanswered = false
	}
}

// Adjust adjusts the account to a change of the rules: the store may answer differently now. If the
// limit has become lower, or the rule is no longer in force, all permits that are left are
// returned. Callers that wait are woken, and ask again.
func (a *Account) Adjust(now, limit int64, retired bool) {
	a.Hasten()
	if limit < a.limit || retired {
		a.giveBack()
	}
	// If the limit becomes lower again, permits may have been granted within this one.
	a.limit = max(a.limit, limit)
	if retired { // no hit is expected any more
		a.demand = demand{measured: now}
	}
	for _, p := range a.places {
		p.woken = true
		a.waiting -= p.cost
		p.waiter.Wake(false)
	}
	clear(a.places)
	a.places = a.places[:0]
}
