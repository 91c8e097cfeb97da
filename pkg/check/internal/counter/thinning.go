package counter

import (
	"math"
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/forecast"
	"github.com/offpath-io/offpath/pkg/window"
)

// Keys with small limits have no forecast: parts of hits mean nothing there. A request that costs
// more than a hundredth of its limit is decided without one, too: others have admitted some such
// requests or none, and seldom what is expected in the mean. The danger of both is that several
// checkers use the same room, since a hit is known elsewhere only after some ms. So just below such
// a limit a key's hits are *thinned* (the term is from point processes): a checker lets hits pass
// at a rate that falls with the room, so that two checkers' hits seldom pass before either has
// heard of the other's.
//
// Each checker takes its part of this rate by its part of the hits that have lately passed. So no
// checker needs to know how many hits the others are asked for, and the parts add up to one however
// unevenly the traffic is spread. While no hits of others are known, nothing is thinned: a burst of
// one caller at one checker passes up to the limit.

// thinning is what a counter has lately seen of a key with a small limit, or costly requests.
type thinning struct {
	last, denied int64   // when a hit was last considered, and when one did not fit
	heard        int64   // when others' hits last became known
	run          float32 // own hits since then
	own, others  float32 // which of the recentHits are own, and others', in units
	credit       float32 // of requests that may pass; one passes when half of it is there
}

const (
	// thinnedRoom is the room after a hit, in units, from which on hits pass unthinned.
	thinnedRoom = 2
	// recentHits is how many recent units a checker's part of the rate is computed from.
	recentHits = 8
	// fewOthers: fewer recent hits of others than this count as none.
	fewOthers = 0.1
	// chance is how much evidence, in nats, that others have stopped is put down to chance.
	chance = 1
	// leastPerAnswer and leastWhenCalm are the least hits per answer time, however little room is
	// left: the first for the fleet, the second for each checker where all hits have fitted for
	// calmAfter answer times. So ten calls in turn, under a limit of ten, all pass.
	leastPerAnswer, leastWhenCalm = 0.03, 0.5
	calmAfter                     = 100
	// usualAnswerTime stands for the time of a report and its answer until one has been measured,
	// in ns.
	usualAnswerTime = int64(8e6)
)

// mayThin returns whether hits of this cost are thinned just below these limits: where fewer fit
// than FewestForForecast.
func (g *Group) mayThin(t *Limits, cost int64) bool {
	return g.isShared() && t.Capacity/FewestForForecast < cost && g.Shape.Kind != window.Leaky &&
		!g.Host.Config.NoForecast
}

// unit returns how many hits thinning takes for one: a limit is at most FewestForForecast units.
func (t *Limits) unit() float64 { return max(float64(t.Capacity)/FewestForForecast, 1) }

// thinning returns what the counter's hits are thinned by; nil if no hits of others have become
// known while half of the limit was used.
func (c Locked) thinning() *thinning {
	if c.more == nil {
		return nil
	}
	return c.more.thinning
}

// noteOthers records hits of others that have become known, of a key beyond half of its limit: most
// keys never are, and need no memory for it. The counter is current, and they are in its counts.
func (c Locked) noteOthers(t *Limits, at, news int64) {
	th := c.thinning()
	if news <= 0 || th == nil && !c.Group.mayThin(t, 1) {
		return
	}
	if th == nil {
		used := c.Count(t, at)
		if used < float64(t.Capacity)/2 {
			return
		}
		th = &thinning{last: at, credit: 0.5} // one hit passes
		c.needMore().thinning = th
		// The checkers of the hits before are not known: as many of each, in the mean.
		th.own = float32(min(used, recentHits)) / float32(c.checkers())
		th.others = float32(min(used, recentHits)) - th.own
	}
	th.heard, th.run = at, 0
	th.others += th.forget(float64(news) / t.unit())
}

// noteOwn records a request that was charged here. After the first costly one of a key that has a
// forecast, others' hits are recorded, too.
func (c Locked) noteOwn(t *Limits, at, cost int64, thinned bool) {
	th, units := c.thinning(), float64(cost)/t.unit()
	if th == nil {
		if !c.Is(Informed) || c.Forecast() == nil || !c.Group.mayThin(t, cost) {
			return
		}
		th = &thinning{last: at, credit: 0.5}
		c.needMore().thinning = th
	}
	th.run++
	th.own += th.forget(units)
	// A reservation is charged without credit. The floor keeps many of them from holding up later
	// hits.
	if thinned {
		th.credit = max(th.credit-1, -1)
	}
}

// forget makes room among the recent units for some new ones, and returns how many of these to add.
func (th *thinning) forget(units float64) float32 {
	old := float32(math.Exp(-units / recentHits))
	th.own, th.others = th.own*old, th.others*old
	return recentHits * (1 - old)
}

// applyThinning returns whether a hit that fits by the known counts is thinned, and if so, whether
// it may pass. The counter is current.
func (c Locked) applyThinning(t *Limits, at, cost int64) (thinned, passes bool) {
	th := c.thinning()
	if th == nil || !c.Group.mayThin(t, cost) {
		return false, true
	}
	since := float64(max(at-th.last, 0))
	th.last = at
	if float64(t.Capacity)-c.Count(t, at) >= float64(cost)+thinnedRoom*t.unit() ||
		float64(th.others)*c.weightOfOthers(t, th, at, cost) < fewOthers {
		return false, true
	}
	th.credit = float32(min(float64(th.credit)+since*c.passRate(t, th, at, cost), 1.5))
	return true, th.credit >= 0.5
}

// weightOfOthers is the part of the others' recent hits that counts: less, the more evidence there
// is that they have stopped. The evidence is own hits in a row, as each could have been any
// checker's, and time, as others' hits, which cost as much, come at their part of the limit.
func (c Locked) weightOfOthers(t *Limits, th *thinning, at, cost int64) float64 {
	part := float64(th.others / (th.own + th.others))
	expected := part * float64(t.Limit) * float64(max(at-th.heard, 0)) / float64(c.Group.Shape.Length)
	expected /= float64(cost)
	evidence := float64(th.run)*math.Log(c.checkers()) + expected
	return math.Exp(-max(evidence-chance, 0))
}

// checkers is the number of live checkers, at least 2: one alone thins nothing.
func (c Locked) checkers() float64 { return float64(max(c.Group.Host.Size.Load(), 2)) }

// passRate returns how many requests of this cost may pass here per ns, when one has passed: in the
// fleet so many that at most a third of the room is used before others hear of it, but as many as
// keep up with the limit while half a hit has room. The counter is current.
func (c Locked) passRate(t *Limits, th *thinning, at, cost int64) float64 {
	host, length := c.Group.Host, float64(c.Group.Shape.Length)
	answerTime := float64(host.Rounds.Trip.Load())
	if answerTime == 0 {
		answerTime = float64(usualAnswerTime)
	}
	if host.OnTimerOnly() {
		answerTime = max(answerTime, float64(host.Config.FlushEvery))
	}
	units := float64(cost) / t.unit()
	each := float64(cost) // what room is counted in
	if t.Capacity < FewestForForecast {
		each = 1 // in requests that cost 3, 6 % of them were falsely denied under a limit of 50
	}
	limit, used := float64(t.Capacity)/each, c.Count(t, at)/each
	roomAfter := limit - used - float64(cost)/each
	// Where whole hits leave, half of one is on its way in the mean; and in a token bucket others'
	// hits are dated late.
	if forecast.LeavesAtOnce(c.Group.Shape) || c.Group.Shape.Kind == window.Token {
		roomAfter += 0.5
	}
	// Checkers of which no hit is known may ask, too: each counts as one hit at the limit.
	own := float64(th.own + float32(units))
	others := float64(th.others) + units*(c.checkers()-1)*min(used/limit, 1)
	part := own / (own + others*c.weightOfOthers(t, th, at, cost))
	byRoom := min(roomAfter, roomAfter*roomAfter) * max(1/(3*answerTime), 4*float64(t.Limit)/each/length) * each / float64(cost)
	rate := part * max(byRoom, leastPerAnswer/answerTime)
	if float64(at-th.denied) > calmAfter*answerTime {
		rate = max(rate, leastWhenCalm/answerTime)
	}
	return rate
}

// creditIn returns how long until a thinned hit has enough credit, if nothing else comes.
func (c Locked) creditIn(t *Limits, at, cost int64) time.Duration {
	th := c.thinning()
	lacking := 0.5 - float64(th.credit)
	return time.Duration(lacking / c.passRate(t, th, at, cost))
}
