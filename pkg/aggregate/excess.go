package aggregate

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate/internal/merge"
	"github.com/offpath-io/offpath/pkg/aggregate/internal/refund"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/window"
)

// delays measures how long a shard's reports take until they are counted. The zero value is ready;
// its methods are safe for concurrent use.
type delays struct {
	mu         sync.Mutex
	newest     int64 // when the newest report so far was made
	this, last delay // of this span and the one before
	began      int64
}

// delay is the sum of the delays of some reports, and their number.
type delay struct{ sum, reports time.Duration }

// delaySpan is for how long delays are remembered, at least; twice as long at most.
const delaySpan = int64(time.Minute)

// observe takes in the reports of a batch, and returns when the newest so far was made.
func (d *delays) observe(batch *storage.Batch, reports []*merge.Report) (newest int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if batch.Now-d.began >= delaySpan {
		d.this, d.last, d.began = delay{}, d.this, batch.Now
	}
	for _, r := range reports {
		if made := r.Message.GetMade(); made > 0 && !r.Repeated {
			d.this.sum += time.Duration(max(batch.Now-made, 0))
			d.this.reports++
		}
	}
	d.newest = max(d.newest, batch.Made)
	return d.newest
}

// estimate is about how long hits take at most from their admission until they are counted: as a
// checker has one report in flight, they wait for its way there and back, and then take a way
// themselves.
func (d *delays) estimate() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return 3 * (d.this.sum + d.last.sum) / max(d.this.reports+d.last.reports, 1)
}

// Band is how many hits a count may exceed a limit by before that is called wrong: at a limit that
// is used up, one hit more or less is noise.
func Band(limit int64) int64 { return max(1, int64(math.Round(0.02*float64(limit)))) }

// NearLimit is the part of its limit from which a key is in [ApplyInfo.Near].
const NearLimit = 0.8

// excessOf returns one Excess for each rule of an applied batch with keys beyond its limit, and the
// keys that are near theirs, or beyond it; nil, without an allocation, if there are none. Counts
// are read at the time at which the newest report so far was made, since by now some of the hits
// have left the window. An older report, which was lost on its way and sent again, does not turn
// that back: later hits are in the totals.
func excessOf(batch *storage.Batch, applied *storage.Applied, newest int64) (all []Excess, near []Near) {
	pairs := refund.PairsOf(batch)
	var counts []int64
	for i := range batch.Keys {
		key := &batch.Keys[i]
		rule := &batch.Rules[key.Rule]
		if rule.Kind != storage.Admitted || rule.Room() == 0 {
			continue
		}
		totals, least := applied.Totals[i], NearLimit*float64(rule.Room())
		if !rule.Drains() && float64(storage.Total(totals)) < least { // most keys
			continue
		}
		if back, ok := pairs.Of(key); ok {
			totals = refund.Net(nil, totals, applied.Totals[back], nil)
		}
		var level window.Level
		if rule.Drains() {
			level = applied.Levels[i]
		}
		at := max(newest, rule.Shape.End(rule.Shape.Bucket(batch.Now)-1))
		counts = storage.ByAge(counts, rule.Shape, totals, at)
		after := countAt(rule, counts, level, at)
		if after >= least {
			near = append(near, Near{i, after})
		}
		if after <= float64(rule.Room()) || rule.Loose {
			continue
		}
		totals = refund.Net(nil, totals, key.Cells, nil)
		counts = storage.ByAge(counts, rule.Shape, totals, at)
		before := countAt(rule, counts, level, at)
		all = addExcess(all, key.Rule, after, before, rule.Room())
	}
	return all, near
}

// addExcess adds a key whose count has gone from before to after, beyond the limit.
func addExcess(all []Excess, rule int, after, before float64, limit int64) []Excess {
	at := slices.IndexFunc(all, func(e Excess) bool { return e.Rule == rule })
	if at < 0 {
		at, all = len(all), append(all, Excess{Rule: rule})
	}
	e := &all[at]
	e.Hits += max(after-max(before, float64(limit+Band(limit))), 0)
	e.Most = max(e.Most, after/float64(limit)-1)
	return all
}

// countAt is a rule's own count at a time. That of a rule that drains is a lower bound: checkers
// know when in a bucket of time their hits came, and the totals do not.
func countAt(r *storage.Rule, counts []int64, level window.Level, at int64) float64 {
	switch {
	case !r.Drains():
		return r.Shape.Count(counts, at)
	case r.Shape.Kind == window.Token:
		drains := float64(r.Limit) / float64(r.Shape.Buckets)
		return max(r.Drain().Count(level, counts, at)-drains, 0)
	}
	return r.Drain().Count(level, counts, at)
}
