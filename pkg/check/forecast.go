package check

import (
	"math"
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/forecast"
	"github.com/offpath-io/offpath/pkg/window"
)

// keyForecast is what a counter has beside its counts once its key has come near its limit: the
// forecast of what others have admitted unheard.
type keyForecast struct {
	forecast.Key
	part      float64 // of the hits that may pass, as of the last look
	inFlight  []int64 // hits per bucket, as the counter's pending
	denied    int64   // own hits denied, in no report yet
	anyDenied bool    // by anybody, as far as is known
	ageing    bool    // waiting in the queue of forecasts that may leave
	counted   uint32  // hits taken off the allowance that have been counted, see putDown

	falseDenials forecast.FalseDenials
}

const (
	// fewestForForecast is the smallest limit that is worth a forecast: below, each hit matters,
	// and parts of hits mean nothing.
	fewestForForecast = 100
	// nearLimit is how near a key must have come to its limit to get one: a quarter, or what makes
	// that if all checkers have seen as many hits.
	nearLimit = 0.25
)

// isShared says whether others decide for this limiter's keys too, by counts: a checker alone knows
// everything, and permits are nobody else's.
func (l *Limiter) isShared() bool { return l.strict == nil && l.checker.fleet.Load() > 1 }

// foresees says whether this limiter forecasts at all.
func (l *Limiter) foresees(t *limits) bool {
	return l.isShared() && t.capacity >= fewestForForecast && l.shape.Kind != window.Leaky && !l.checker.o.Tuning.NoForecast
}

// unforeseen is how many more hits may pass without a forecast and without a look, when there is
// room for so many: until the key would be near its limit if every checker had admitted as many
// that nobody knows of. Where there are no forecasts there is a look at half of the limit, from
// which on others should hear of it. The lock is held.
func (c *counter) unforeseen(t *limits, room int64) int64 {
	l := c.limiter
	checkers := l.checker.fleet.Load()
	switch limit := t.capacity; {
	case l.foresees(t):
		free := nearLimit*float64(limit) - float64(limit-room)
		return int64((free - float64((checkers-1)*c.recent())) / float64(checkers))
	case l.isShared() && room > limit/2:
		return room - limit/2
	}
	return room
}

// recent is how many of the pending hits are in buckets in which a quiet key's may be. The lock is
// held.
func (c *counter) recent() (n int64) {
	pending := c.pending()
	for _, hits := range pending[:min(len(pending), c.limiter.shape.Buckets/quietPart+2)] {
		n += hits
	}
	return n
}

// ensureForecast returns the counter's forecast, if it has one or should have one now that there is room
// for so many hits. The lock is held.
func (c *counter) ensureForecast(t *limits, at, room int64) *keyForecast {
	if c.keyForecast() == nil && c.limiter.foresees(t) && c.unforeseen(t, room) <= 0 {
		k := c.limiter.checker
		// Checkers' phases are spread by a hash, keys' need not be.
		phase := float64(k.o.Epoch*0x9e3779b97f4a7c15>>11) / (1 << 53)
		c.endDeferral()
		c.setForecast(&keyForecast{
			Key: *forecast.New(at, k.rounds.fleet(k), phase), part: 1,
			inFlight: make([]int64, c.limiter.live),
		})
	}
	return c.keyForecast()
}

// window is how the counter's window stands by what is known. The lock is held, the counter
// current.
func (c *counter) window(t *limits, at int64) forecast.Window {
	l := c.limiter
	limit := float64(t.capacity)
	w := forecast.Window{
		Limit: limit, Pace: float64(t.limit) / float64(l.shape.Length),
		Free: limit - c.count(t, at), Freed: c.freed(t, at),
	}
	if c.keyForecast() != nil {
		w.Unreported = l.shape.Count(c.keyForecast().inFlight, at)
	}
	w.Unreported += l.shape.Count(c.pending(), at)
	if l.shape.Kind == window.Log {
		w.Soon = forecast.LeavesSoon(l.shape, c.net())
	}
	return w
}

// look works out anew which part of the hits may pass. The lock is held, the counter current
// .
func (c *counter) look(t *limits, at int64) (forecast.Outlook, forecast.Window) {
	w := c.window(t, at)
	k := c.limiter.checker
	o := c.keyForecast().Look(at, w, k.rounds.fleet(k))
	c.keyForecast().part = o.Part
	return o, w
}

// foresee decides whether a hit that fits by what is known may pass, in view of what others have
// probably taken, and how many more may then. The lock is held, the counter current.
func (c *counter) foresee(t *limits, at, room, cost int64) (passes bool, left int64) {
	o, w := c.look(t, at)
	left = min(room, int64(max(math.Floor(o.Free), 0)))
	if o.Part < 1 && !c.keyForecast().Pass(o.Part, cost) {
		return false, left
	}
	c.urge(at, o, w)
	return true, max(left-cost, 0)
}

// foreseeShare is foresee for those who have only a share of the limit: they pass while others
// leave as much as they need of that share.
func (c *counter) foreseeShare(t *limits, at, room, cost int64) (passes bool, left int64) {
	o, w := c.look(t.full, at)
	free := o.Free - float64(t.full.capacity-t.capacity)
	left = min(room, int64(max(math.Floor(free), 0)))
	if left < cost {
		return false, left
	}
	c.urge(at, o, w)
	return true, left - cost
}

// urge asks for a report of a hit that passes, as soon as the fleet should know.
func (c *counter) urge(at int64, o forecast.Outlook, w forecast.Window) {
	if c.is(viewed) {
		return
	}
	k := c.limiter.checker
	if c.keyForecast().Urgent(at, o, w, k.rounds.fleet(k), k.rounds.normal.Load()) {
		k.want(nextFast)
	} else {
		k.want(nextNormal)
	}
}

// retryAfter is how long until a hit that fits by what is known should be tried again, if others
// may have taken its place: until as many hits have left the window. The lock is held.
func (c *counter) retryAfter(t *limits, at, cost int64) time.Duration {
	wait := c.end() - at
	if freed := c.window(t, at).Freed; freed > 0 {
		wait = min(wait, int64(float64(cost)/freed))
	}
	return time.Duration(max(wait, refusalTime))
}

// note takes in own hits of a counter near its limit. The lock is held.
func (a *keyForecast) note(now, admitted, denied int64) {
	a.Note(now, admitted+denied, admitted)
	a.denied += denied
	a.falseDenials.Admitted(admitted)
}

// ease leaves an allowance for the next hits, as many as may pass without another look, and at most
// so many of those that are left. The lock is held, the counter current.
func (c *counter) ease(t *limits, at, most, left int64) {
	if c.keyForecast().part < 1 {
		return
	}
	hits, span := c.keyForecast().Ease()
	c.armUntil(t, min(most, hits), left, min(c.datable(t, at), at+span))
}

// refuseMore lets further hits be turned away without the lock, for as long as they surely would
// be. The lock is held, the counter current.
func (c *counter) refuseMore(t *limits, at int64) {
	if n := min(c.keyForecast().Denials(c.keyForecast().part), mostLeft); n > 0 && !t.restless {
		c.endAt(min(c.end(), at+refusalTime))
		c.allowance.Store(blocked | t.stamp | uint64(n))
	}
}

// awaitFullRound lets others know of denied hits in the next full round that takes them. The lock
// is held.
func (c *counter) awaitFullRound(at int64) {
	if l := c.limiter; at/forecast.FullInterval%l.fullRounds == l.fullRounds-1 {
		c.queue()
		l.checker.want(nextFull)
	}
}

// refusalTime is how long hits are turned away without a look, at the most: the room may grow
// meanwhile.
const refusalTime = int64(4e6)

// observeForecast takes in what a message says of a counter near its limit, by which others' hits were news.
// The lock is held, the counter current, and the message's totals merged.
func (c *counter) observeForecast(b *reporter, t *limits, at int64, w update, news int64) {
	a := c.keyForecast()
	a.falseDenials.Observe(news)
	if w.made == 0 { // totals of some time ago, told again
		c.look(t, at)
		return
	}
	f := b.checker.rounds.fleet(b.checker)
	made := w.made
	if made < 0 || made > at+int64(time.Second) {
		made = 0 // no clock is that wrong: all that is to come would seem older
	}
	told := forecast.Update{
		Now: at, Made: made, Round: f.FastInterval,
		News: float64(news), DeniedToo: len(w.denied.age) > 0,
	}
	told.SetTotals(c.limiter.shape, c.newest, w.admitted.series(), w.denied.series())
	a.anyDenied = a.anyDenied || told.DeniedToo
	o, s := c.look(t, at)
	if normal := b.normalInterval(); !a.Urgent(at, o, s, f, normal) {
		told.Round = normal
	}
	everybody := w.made%told.Round <= f.FastInterval/2
	c.findFalseDenials(t, w.made, f.FastInterval, everybody)
	a.Observe(told, f)
	c.look(t, at)
}

// within is now or, if that is later, the last moment before hits leave at once: what was taken off
// an allowance was taken before. The lock is held, the counter not rotated.
func (c *counter) within(now int64) int64 {
	if forecast.LeavesAtOnce(c.limiter.shape) {
		return min(now, c.end()-1)
	}
	return now
}

// foreseeLeaving tells the forecast which hits leave when so many new buckets come, which the
// counter has not taken in yet. The lock is held.
func (c *counter) foreseeLeaving(by int64) {
	if a, shape := c.keyForecast(), c.limiter.shape; a != nil && forecast.LeavesAtOnce(shape) {
		a.Rotate(shape, c.newest, by, c.net())
	}
}

// doubt takes in denials that were made at a time within the counter's newest bucket, or taken as
// if they were. The lock is held, the allowance withdrawn.
func (c *counter) doubt(t *limits, at, cost, denials int64) {
	known := func() float64 { return c.count(t, min(at, c.end()-1)) }
	c.keyForecast().falseDenials.Denied(at, cost, denials, known)
}

// findFalseDenials compares denials with what a message, made at a time, has told; whole says
// whether everybody reports in its round. The lock is held, the counter current, and
// the message's totals merged.
func (c *counter) findFalseDenials(t *limits, made, fast int64, whole bool) {
	l, f := c.limiter, &c.keyForecast().falseDenials
	if f.Ignores(made, fast, whole) {
		return
	}
	var pending int64
	for _, n := range c.pending() {
		pending += n
	}
	at := max(made, l.shape.End(c.newest-1))
	r := forecast.Round{
		At: at, Count: c.count(t, at) - l.shape.Count(c.pending(), at), Pending: pending,
		Whole: whole, FastInterval: fast,
	}
	if n := f.Judge(r, l.shape, t.capacity, max(l.checker.fleet.Load(), 1)); n > 0 {
		l.falseDenials.Add(n)
	}
}

// series are the totals as forecasts take them.
func (t totals) series() forecast.Series {
	return forecast.Series{Newest: t.newest, Age: t.age, Value: t.value}
}
