package aggregate

import (
	"math"
	"sync"
	"time"

	"github.com/offpath-io/offpath/pkg/window"
)

// Excess is by how much a fold has taken keys of one rule beyond their limit: an estimate of what was let pass although
// there was no room, since a worker hears of hits in batches, and of those of other batches later.
type Excess struct {
	// Rule is an index in the fold's rules.
	Rule int
	// Hits of the fold that came on top of limit + [Band].
	Hits float64
	// Most is the largest count of a key ÷ its limit − 1.
	Most float64
}

// hearsay knows how long a shard's reports take to be counted.
type hearsay struct {
	mu         sync.Mutex
	newest     int64 // when the newest report so far was made
	this, last ways  // of this span and the one before
	began      int64
}

// ways are how long reports took, together, and how many there were.
type ways struct{ took, reports time.Duration }

// waysSpan is for how long reports are remembered, at least; twice as long at most.
const waysSpan = int64(time.Minute)

// note takes in the reports of a fold, and returns when the newest so far was made.
func (h *hearsay) note(fold *Fold, requests []*request) (newest int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if fold.Now-h.began >= waysSpan {
		h.this, h.last, h.began = ways{}, h.this, fold.Now
	}
	for _, r := range requests {
		if made := r.report.GetMade(); made > 0 && !r.repeated {
			h.this.took += time.Duration(max(fold.Now-made, 0))
			h.this.reports++
		}
	}
	h.newest = max(h.newest, fold.Made)
	return h.newest
}

// unheard is for about how long hits are made before they are counted, at most: as a checker has
// one report in flight, they wait for its way there and back, and then take a way themselves.
func (h *hearsay) unheard() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return 3 * (h.this.took + h.last.took) / max(h.this.reports+h.last.reports, 1)
}

// Band is by how much a count may be beyond a limit before that is called wrong, in hits: at a limit that is used up, one
// hit more or less is noise.
func Band(limit int64) int64 { return max(1, int64(math.Round(0.02*float64(limit)))) }

// excessOf looks for keys of an applied fold that are beyond their limit, and returns one Excess
// for each rule that has some; nil, without any memory, if none has. Counts are read at the time at
// which the newest report so far was made, since by now some of them have left the window. An older
// report, which was lost on its way and came again, does not turn that back: what was made since is
// in the totals.
func excessOf(fold *Fold, applied *Applied, newest int64) (all []Excess) {
	refunds := refundsOf(fold)
	var counts []int64
	for i := range fold.Keys {
		key := &fold.Keys[i]
		rule := &fold.Rules[key.Rule]
		if rule.Kind != Admitted || rule.Loose || rule.room() == 0 {
			continue
		}
		totals := applied.Totals[i]
		if !rule.Drains() && sumOf(totals) <= rule.Limit { // most keys
			continue
		}
		if back, ok := refunds.of(key); ok {
			totals = net(nil, totals, applied.Totals[back], nil)
		}
		var level window.Level
		if rule.Drains() {
			level = applied.Levels[i]
		}
		at := max(newest, rule.Shape.End(rule.Shape.Bucket(fold.Now)-1))
		if len(counts) < rule.Shape.Live() {
			counts = make([]int64, rule.Shape.Live())
		}
		after := rule.countAt(counts, level, totals, nil, at)
		if after <= float64(rule.room()) {
			continue
		}
		before := rule.countAt(counts, level, totals, key.Cells, at)
		all = noteExcess(all, key.Rule, after, before, rule.room())
	}
	return all
}

// noteExcess adds a key whose count has gone from before to after, beyond the limit.
func noteExcess(all []Excess, rule int, after, before float64, limit int64) []Excess {
	at := -1
	for i := range all {
		if all[i].Rule == rule {
			at = i
		}
	}
	if at < 0 {
		at, all = len(all), append(all, Excess{Rule: rule})
	}
	e := &all[at]
	e.Hits += max(after-max(before, float64(limit+Band(limit))), 0)
	e.Most = max(e.Most, after/float64(limit)-1)
	return all
}

// room is how many hits there are at once when all is used up.
func (r *Rule) room() int64 {
	if r.Drains() {
		return r.Burst
	}
	return r.Limit
}

// countAt is the rule's own count at a time of a key's totals, less some cells of them. Of what
// drains it is as much as is certain: checkers know when in a bucket of time their hits came, and
// the totals do not. counts is memory to work with.
func (r *Rule) countAt(counts []int64, level window.Level, totals, less []Cell, at int64) float64 {
	counts = counts[:r.Shape.Live()]
	clear(counts)
	current := r.Shape.Bucket(at)
	for _, c := range totals {
		if age := max(current-c.Bucket, 0); age < int64(len(counts)) {
			counts[age] = Sum(counts[age], max(c.Count-cellOf(less, c.Bucket), 0))
		}
	}
	switch {
	case !r.Drains():
		return r.Shape.Count(counts, at)
	case r.Shape.Kind == window.Token:
		drains := float64(r.Limit) / float64(r.Shape.Buckets)
		return max(r.Drain().Count(level, counts, at)-drains, 0)
	}
	return r.Drain().Count(level, counts, at)
}

func sumOf(cells []Cell) (sum int64) {
	for _, c := range cells {
		sum = Sum(sum, c.Count)
	}
	return sum
}
