package counter

import (
	"math"
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/forecast"
	"github.com/offpath-io/offpath/pkg/window"
)

// Keys with small limits have no forecast: parts of hits mean nothing there. Their danger is that
// several checkers use the same room, since a hit is known elsewhere only after some ms. So just
// below such a limit a key's hits are *thinned*, as one says of a stochastic point process: a
// checker lets hits pass at a rate that falls with the room, such that hardly ever two checkers'
// hits pass before either has heard of the other's.
//
// Each checker takes its part of this rate by its part of the hits that have lately passed. So no
// checker needs to know how many hits the others are asked for, and the parts add up to one however
// unevenly the traffic is spread. While no hits of others are known, nothing is thinned: a burst of
// one caller at one checker passes up to the limit.

// thinning is what a counter has lately seen of a key with a small limit.
type thinning struct {
	last, denied int64   // when a hit was last considered, and when one did not fit
	heard        int64   // when others' hits last became known
	run          float32 // own hits since then
	own, others  float32 // which of the recentHits are own, and others'
	credit       float32 // of hits that may pass; a hit passes when half of its cost is there
}

const (
	// thinnedRoom is the room, in hits, from which on hits pass unthinned.
	thinnedRoom = 3
	// recentHits is how many hits tell whose part of the rate is how much.
	recentHits = 8
	// fewOthers is how many of these are as good as none.
	fewOthers = 0.1
	// chance is how much evidence, in nats, that others have stopped is put down to chance.
	chance = 1
	// seldomTwice is how many hits may pass within the lag however little room is left. It is
	// calmTwice at each checker where all hits have fitted for calmAfter lags: who calls ten times
	// by turns, under a limit of ten, is not to be denied the tenth.
	seldomTwice, calmTwice = 0.03, 0.5
	calmAfter              = 100
	// usualLag stands for the time of a report and its answer until one has been measured, in ns.
	usualLag = int64(8e6)
)

// thins returns whether hits of the group's keys are thinned just below these limits.
func (g *Group) thins(t *Limits) bool {
	return g.isShared() && t.Capacity < FewestForForecast && g.Shape.Kind != window.Leaky &&
		!g.Host.Config.NoForecast
}

// thinning returns what the counter's hits are thinned by, nil if no hits of others are known.
func (c Locked) thinning() *thinning {
	if c.more == nil {
		return nil
	}
	return c.more.thinning
}

// noteOthers records hits of others that have become known, of a key beyond half of its limit: most
// keys never are, and need no memory for it. The counter is current, and they are in its counts.
func (c Locked) noteOthers(t *Limits, at, news int64) {
	if news <= 0 || !c.Group.thins(t) {
		return
	}
	h := c.thinning()
	if h == nil {
		used := c.Count(t, at)
		if used < float64(t.Capacity)/2 {
			return
		}
		h = &thinning{last: at, credit: 0.5} // one hit passes
		c.needMore().thinning = h
		// Whose the hits before were is not known: as many of each checker, in the mean.
		h.own = float32(min(used, recentHits)) / float32(c.checkers())
		h.others = float32(min(used, recentHits)) - h.own
	}
	h.heard, h.run = at, 0
	h.others += h.forget(news)
}

// noteOwn records a hit that was charged here.
func (c Locked) noteOwn(cost int64, thinned bool) {
	h := c.thinning()
	if h == nil {
		return
	}
	h.run++
	h.own += h.forget(cost)
	if thinned { // who waits for a turn needs no credit, and others are not to wait for all of them
		h.credit = max(h.credit-float32(cost), -float32(cost))
	}
}

// forget makes room for some hits among the recent ones. It returns how many of them are.
func (h *thinning) forget(hits int64) float32 {
	old := float32(math.Exp(-float64(hits) / recentHits))
	h.own, h.others = h.own*old, h.others*old
	return recentHits * (1 - old)
}

// thin returns whether a hit that fits by the known counts is thinned, and if so, whether it may
// pass. The counter is current.
func (c Locked) thin(t *Limits, at, cost int64) (thinned, passes bool) {
	h := c.thinning()
	if h == nil || !c.Group.thins(t) {
		return false, true
	}
	since := float64(max(at-h.last, 0))
	h.last = at
	if float64(t.Capacity)-c.Count(t, at) >= float64(cost-1+thinnedRoom) ||
		float64(h.others)*c.stillAsking(t, h, at) < fewOthers {
		return false, true
	}
	h.credit = float32(min(float64(h.credit)+since*c.thinnedRate(t, h, at, cost), 1.5*float64(cost)))
	return true, h.credit >= float32(cost)/2
}

// stillAsking is which part of the others' recent hits counts: less, the more it seems that they
// have stopped. That is told by own hits in a row, as each could have been any checker's, and by
// time, as others' hits come at their part of the limit.
func (c Locked) stillAsking(t *Limits, h *thinning, at int64) float64 {
	part := float64(h.others / (h.own + h.others))
	expected := part * float64(t.Limit) * float64(max(at-h.heard, 0)) / float64(c.Group.Shape.Length)
	evidence := float64(h.run)*math.Log(c.checkers()) + expected
	return math.Exp(-max(evidence-chance, 0))
}

// checkers is the number of live checkers, at least 2: one alone thins nothing.
func (c Locked) checkers() float64 { return float64(max(c.Group.Host.Size.Load(), 2)) }

// thinnedRate returns how many hits per ns may pass here, when a hit of this cost has passed: in
// the fleet so many that at most a third of the room is used before others hear of it, but as many
// as keep up with the limit while half a hit has room. The counter is current.
func (c Locked) thinnedRate(t *Limits, h *thinning, at, cost int64) float64 {
	host, length := c.Group.Host, float64(c.Group.Shape.Length)
	lag := float64(host.Rounds.Trip.Load())
	if lag == 0 {
		lag = float64(usualLag)
	}
	if host.OnTimerOnly() {
		lag = max(lag, float64(host.Config.FlushEvery))
	}
	limit, used := float64(t.Capacity), c.Count(t, at)
	room := limit - used - float64(cost)
	// Where whole hits leave, half of one is on its way in the mean; and in a token bucket others'
	// hits are dated late.
	if forecast.LeavesAtOnce(c.Group.Shape) || c.Group.Shape.Kind == window.Token {
		room += 0.5
	}
	// Checkers of which no hit is known may ask, too: each counts as one hit at the limit.
	others := float64(h.others) + (c.checkers()-1)*min(used/limit, 1)
	part := float64(h.own+1) / (float64(h.own+1) + others*c.stillAsking(t, h, at))
	perLag := float64(cost) / lag
	rate := part * max(min(room, room*room)*max(1/(3*lag), 4*float64(t.Limit)/length), seldomTwice*perLag)
	if float64(at-h.denied) > calmAfter*lag {
		rate = max(rate, calmTwice*perLag)
	}
	return rate
}

// thinnedFor returns for how long a hit that was thinned would be thinned, if nothing else came.
func (c Locked) thinnedFor(t *Limits, at, cost int64) time.Duration {
	h := c.thinning()
	lacking := float64(cost)/2 - float64(h.credit)
	return time.Duration(lacking / c.thinnedRate(t, h, at, cost))
}
