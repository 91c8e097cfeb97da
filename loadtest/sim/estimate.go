package sim

import (
	"github.com/offpath-io/offpath/loadtest/result"
	"github.com/offpath-io/offpath/pkg/aggregate"
)

// excess is what the workers find to be beyond a limit, as an aggregator's metrics tell it.
type excess struct{ hits, most, unheard float64 }

// note is for aggregate.Options.OnApply.
func (e *excess) note(info aggregate.ApplyInfo) {
	for i := range info.Batch.Rules {
		e.unheard = max(e.unheard, info.Delay.Seconds()/info.Batch.Rules[i].Shape.Length.Seconds())
	}
	for _, x := range info.Excess {
		e.hits += x.Hits
		e.most = max(e.most, x.Most)
	}
}

// reckon is what the fleet thinks of itself, in hits until now.
func (w *world) reckon() result.Estimate {
	e := result.Estimate{OverWorstWindow: w.excess.most, WrongAllowShare: w.excess.hits, Unheard: w.excess.unheard}
	for _, c := range w.checkers {
		for _, r := range c.Stats().Rules {
			e.FalseDenialShare += float64(r.FalseDenials)
		}
	}
	return e
}

// estimate is that of the measured part, as shares of all its hits.
func (w *world) estimate(hits int64) result.Estimate {
	from, to := w.reckoned[0], w.reckoned[1]
	n := float64(max(hits, 1))
	return result.Estimate{
		OverWorstWindow:  to.OverWorstWindow,
		Unheard:          to.Unheard,
		WrongAllowShare:  (to.WrongAllowShare - from.WrongAllowShare) / n,
		FalseDenialShare: (to.FalseDenialShare - from.FalseDenialShare) / n,
	}
}
