package counter

import (
	"math"
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/fleetstate"
	"github.com/offpath-io/offpath/pkg/check/internal/forecast"
	"github.com/offpath-io/offpath/pkg/check/internal/level"
	"github.com/offpath-io/offpath/pkg/window"
)

const (
	// FewestForForecast is the smallest limit that is worth a forecast: below, each hit matters,
	// and parts of hits mean nothing.
	FewestForForecast = 100
	// forecastThreshold is the part of its limit from which a key gets a forecast. It counts as if
	// every checker had as many unreported hits as this one.
	forecastThreshold = 0.25
	// forecastPart: at most one in so many of the keys that there may be has a forecast, which
	// takes several times the memory of its counter, as callers choose how many keys there are. A
	// key that is not known to have reached the threshold gets one only while there are fewer than
	// half as many: in a large fleet any key may be beyond it with its first hit, as every checker
	// might have one.
	forecastPart = 4
)

// foresees returns whether the group's keys get forecasts under these limits.
func (g *Group) foresees(t *Limits) bool {
	return g.isShared() && t.Capacity >= FewestForForecast && g.Shape.Kind != window.Leaky && !g.Host.Config.NoForecast
}

// unforeseen returns how many more hits may pass without a forecast and without the lock. room is
// how many fit. With forecasts, these are the hits up to the forecast threshold, if every checker
// had admitted as many unreported ones; without, the hits up to the alarm threshold, from which on
// others should hear of the key.
func (c Locked) unforeseen(t *Limits, room int64) int64 {
	g := c.Group
	checkers := g.Host.Size.Load()
	switch {
	case g.foresees(t), g.mayThin(t, 1):
		return int64((t.toThreshold(room) - float64((checkers-1)*c.recent())) / float64(checkers))
	case g.isShared():
		return unheard(t, room)
	}
	return room
}

// toThreshold returns how many hits are missing from the forecast threshold, by the known counts,
// where so many fit; negative beyond it.
func (t *Limits) toThreshold(room int64) float64 {
	return forecastThreshold*float64(t.Capacity) - float64(t.Capacity-room)
}

// unheard returns how many of the hits that fit may pass without the lock where there are no
// forecasts: up to the alarm threshold, from which on others should hear of the key, and all
// beyond.
func unheard(t *Limits, room int64) int64 {
	if room > t.Capacity/2 {
		return room - t.Capacity/2
	}
	return room
}

// withoutForecast returns how many hits may pass without the lock if there are too many forecasts
// for the counter, which has this much room, to get one: until it may, or as where there are none.
// It returns 0 if it may now.
func (c Locked) withoutForecast(t *Limits, room int64) int64 {
	if !c.Group.foresees(t) || c.Group.Host.forecastCount.Load() < c.mostForecasts(t, room) {
		return 0
	}
	if missing := t.toThreshold(room); missing > 0 {
		return int64(math.Ceil(missing))
	}
	return unheard(t, room)
}

// recent returns how many of the pending hits are in buckets in which a deferred key may have
// pending hits.
func (c Locked) recent() (n int64) {
	pending := c.Pending()
	for _, hits := range pending[:min(len(pending), c.Group.Shape.Buckets/deferralPart+2)] {
		n += hits
	}
	return n
}

// ensureForecast returns the counter's forecast, and makes it if the key has reached the forecast
// threshold and there are not too many; nil if there is none. room is how many hits fit, and cost
// that of the request that is considered; 0 if none is.
func (c Locked) ensureForecast(t *Limits, at, room, cost int64) *Forecast {
	a := c.Forecast()
	if cost > room { // it passes nowhere
		cost = 0
	}
	switch {
	case a == nil && c.Group.foresees(t) && c.unforeseen(t, room) <= 0:
		c.endDeferral()
		if !c.reserveForecast(t, room) {
			return nil
		}
		a = &Forecast{Part: 1, inFlight: make([]int64, c.Group.Live)}
		c.needMore().forecast = a
	case a == nil, cost == 0, !areFar(float64(cost), a.Unit()),
		!areFar(c.Group.usualCost(cost), a.Unit()):
		return a
	}
	// The phase differs between checkers, by a hash; keys of one checker may have the same.
	phase := float64(c.Group.Host.Config.Epoch*0x9e3779b97f4a7c15>>11) / (1 << 53)
	a.Key = *forecast.New(at, c.Group.Host.ForecastFleet(), phase, c.Group.usualCost(cost))
	return a
}

// reserveForecast returns whether the counter, which has this much room, may get a forecast, and
// counts it then. That of a view is not counted.
func (c Locked) reserveForecast(t *Limits, room int64) bool {
	h := c.Group.Host
	if h.forecastCount.Load() >= c.mostForecasts(t, room) {
		return false
	}
	if !c.Is(Viewed) {
		h.forecastCount.Add(1)
	}
	return true
}

// mostForecasts returns the number of forecasts from which on the counter, with this much room,
// gets none.
func (c Locked) mostForecasts(t *Limits, room int64) int64 {
	most := max(c.Group.Host.Config.MaxLiveKeys/forecastPart, 1)
	if t.toThreshold(room) > 0 {
		most /= 2
	}
	return most
}

// areFar returns whether two costs are so far apart that a forecast in units of one is no good for
// requests of the other.
func areFar(a, b float64) bool { return a > 4*b || b > 4*a }

// usualCost returns what a request of the group costs in the mean, as far as it is known: that of
// requests that have been admitted here, and of one more.
func (g *Group) usualCost(cost int64) float64 {
	requests, hits := min(cost, 1), cost
	for i := range g.Tallies {
		allowed := g.Tallies[i].Allowed.Load()
		requests, hits = requests+allowed, hits+allowed+g.Tallies[i].Further.Load()
	}
	if requests == 0 {
		return 1
	}
	return float64(hits) / float64(requests)
}

// Window returns the state of the counter's window, by the known counts. The counter is current.
func (c Locked) Window(t *Limits, at int64) forecast.Window {
	g := c.Group
	limit := float64(t.Capacity)
	w := forecast.Window{
		Limit: limit, Pace: float64(t.Limit) / float64(g.Shape.Length),
		Free: limit - c.Count(t, at), Freed: c.freed(t, at),
	}
	if c.Forecast() != nil {
		w.Unreported = g.Shape.Count(c.Forecast().inFlight, at)
	}
	w.Unreported += g.Shape.Count(c.Pending(), at)
	if g.Shape.Kind == window.Log {
		w.Soon = forecast.LeavesSoon(g.Shape, c.net())
	}
	return w
}

// Look recomputes which part of the hits may pass. The counter is current.
func (c Locked) Look(t *Limits, at int64) (forecast.Outlook, forecast.Window) {
	w := c.Window(t, at)
	o := c.Forecast().Look(at, w, c.Group.Host.ForecastFleet())
	c.Forecast().Part = o.Part
	return o, w
}

// foresee decides whether a hit that fits by the known counts may pass, given the hits that others
// have probably admitted, and how many more may pass then. The counter is current.
func (c Locked) foresee(t *Limits, at, room, cost int64) (passes bool, left int64) {
	o, w := c.Look(t, at)
	left = min(room, int64(max(math.Floor(o.Free), 0)))
	if o.Part < 1 && !c.Forecast().Pass(o.Part, cost) {
		return false, left
	}
	c.requestReport(at, o, w)
	return true, max(left-cost, 0)
}

// foreseeShare is foresee for a class with a share of the limit: its hits pass while the hits of
// all classes leave room within that share.
func (c Locked) foreseeShare(t, full *Limits, at, room, cost int64) (passes bool, left int64) {
	o, w := c.Look(full, at)
	free := o.Free - float64(full.Capacity-t.Capacity)
	left = min(room, int64(max(math.Floor(free), 0)))
	if left < cost {
		return false, left
	}
	c.requestReport(at, o, w)
	return true, left - cost
}

// requestReport asks for a flush that reports a hit that passes, in the fast or the normal round.
func (c Locked) requestReport(at int64, o forecast.Outlook, w forecast.Window) {
	if c.Is(Viewed) {
		return
	}
	h := c.Group.Host
	if c.Forecast().Urgent(at, o, w, h.ForecastFleet(), h.Rounds.Normal.Load()) {
		h.Want(fleetstate.NextFast)
	} else {
		h.Want(fleetstate.NextNormal)
	}
}

// retryAfter returns how long until a hit that fits by the known counts, and was denied by the
// forecast, should be tried again: until as many hits have left the window. A hit that was thinned
// may pass before.
func (c Locked) retryAfter(t *Limits, at, cost int64) time.Duration {
	wait := c.End() - at
	if c.thinning() != nil && c.Group.mayThin(t, cost) {
		wait = min(wait, int64(c.creditIn(t, at, cost)))
	}
	if freed := c.Window(t, at).Freed; freed > 0 {
		wait = min(wait, int64(float64(cost)/freed))
	}
	return time.Duration(max(wait, RefusalTime))
}

// leaveForecastAllowance leaves an allowance of the hits that may pass without another look; most
// is its bound, and left is how many hits may still pass. The counter is current.
func (c Locked) leaveForecastAllowance(t *Limits, at, most, left int64) {
	if c.Forecast().Part < 1 {
		return
	}
	hits, span := c.Forecast().Ease()
	c.leaveAllowanceUntil(t, min(most, hits), left, level.Datable(&t.Drain, at, min(c.End(), at+span)))
}

// refuseMore makes checks deny the next hits without the lock, as many as the forecast would
// certainly deny. The counter is current.
func (c Locked) refuseMore(t *Limits, at int64) {
	if n := min(c.Forecast().Denials(c.Forecast().Part), mostLeft); n > 0 && !t.Restless {
		c.endAt(min(c.End(), at+min(RefusalTime, int64(c.Group.Shape.Length)/refusalPart)))
		c.Allowance.Store(Blocked | t.Stamp | uint64(n))
	}
}

// awaitFullRound asks for a report of denied hits in the next full round, if that is one in which
// the group's keys report them.
func (c Locked) awaitFullRound(at int64) {
	if g := c.Group; at/forecast.FullInterval%g.FullRounds == g.FullRounds-1 {
		c.queue()
		g.Host.Want(fleetstate.NextFull)
	}
}

// RefusalTime is how long, in ns, hits are denied without another look, at most: the room may grow
// meanwhile.
const RefusalTime = int64(4e6)

// refusalPart divides the window: room for more than a hundredth of the limit does not grow unseen.
const refusalPart = 100

// observeForecast gives the forecast what a message says about the counter; news is how many hits
// of others were not known before. The counter is current, and the message's totals merged.
func (c Locked) observeForecast(t *Limits, at int64, w Update, news int64) {
	a := c.Forecast()
	a.falseDenials.Observe(news)
	if w.Made == 0 { // older totals, sent again
		c.Look(t, at)
		return
	}
	f := c.Group.Host.ForecastFleet()
	made := w.Made
	if made < 0 || made > at+int64(time.Second) {
		made = 0 // no clock is that wrong, and all later messages would seem older
	}
	told := forecast.Update{
		Now: at, Made: made, Round: f.FastInterval,
		News: float64(news), DeniedToo: len(w.Denied.Age) > 0,
	}
	told.SetTotals(c.Group.Shape, c.Newest, w.Admitted.series(), w.Denied.series())
	a.AnyDenied = a.AnyDenied || told.DeniedToo
	o, s := c.Look(t, at)
	if normal := c.Group.Host.UpdateNormalInterval(); !a.Urgent(at, o, s, f, normal) && !c.Group.Host.FlushesInEachFast() {
		told.Round = normal
	}
	everybody := w.Made%told.Round <= f.FastInterval/2
	c.findFalseDenials(t, w.Made, f.FastInterval, everybody)
	a.Observe(told, f)
	c.Look(t, at)
}

// foreseeLeaving tells the forecast which hits leave with the next rotation, by this many buckets.
func (c Locked) foreseeLeaving(by int64) {
	if a, shape := c.Forecast(), c.Group.Shape; a != nil && forecast.LeavesAtOnce(shape) {
		a.Rotate(shape, c.Newest, by, c.net())
	}
}

// recordDenials records denials. at lies within the counter's newest bucket; a later time counts as
// the bucket's end. The allowance is withdrawn.
func (c Locked) recordDenials(t *Limits, at, cost, denials int64) {
	known := func() float64 { return c.Count(t, min(at, c.End()-1)) }
	c.Forecast().falseDenials.Denied(at, cost, denials, known)
}

// findFalseDenials compares denials with the totals of a message, which was made at a time; whole
// means that all checkers report in its round. The counter is current, and the message's totals
// merged.
func (c Locked) findFalseDenials(t *Limits, made, fast int64, whole bool) {
	g, f := c.Group, &c.Forecast().falseDenials
	if f.Ignores(made, fast, whole) {
		return
	}
	var pending int64
	for _, n := range c.Pending() {
		pending += n
	}
	at := max(made, g.Shape.End(c.Newest-1))
	r := forecast.Round{
		At: at, Count: c.Count(t, at) - g.Shape.Count(c.Pending(), at), Pending: pending,
		Whole: whole, FastInterval: fast,
	}
	if n := f.Judge(r, g.Shape, t.Capacity, max(g.Host.Size.Load(), 1)); n > 0 {
		g.FalseDenials.Add(n)
	}
}

// adjustCounts asks for an early report of a key that has reached the forecast or alarm threshold
// under new limits. The counter is current.
func (c Locked) adjustCounts(t *Limits, room, at int64) {
	if !c.Group.isShared() || !c.hasPending() {
		return
	}
	if c.ensureForecast(t, at, room, 0) != nil || room <= t.Capacity/2 || c.unforeseen(t, room) <= 0 {
		c.endDeferral()
		c.Group.Host.Want(fleetstate.NextFast)
	}
}

// deferralPart divides the window: a deferred key's hits may wait for a tenth of it, at most.
const deferralPart = 10
