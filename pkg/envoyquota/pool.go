package envoyquota

import (
	"time"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/envoyquota/internal/shares"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

const (
	// rateBurst is which part of a rate's hits per window may be saved up. Rates are for short windows, which are over before their hits
	// are reported, so what was saved up may come on top of the limit. Less denies by chance: a quarter of a share of 25 is
	// little beside what Poisson's law makes of 17 hits.
	rateBurst = 1.0 / 4
	// alike is the part by which the fleet's count may be above this daemon's own without others being at work.
	alike = 0.02
)

// terms are what a rule, or its override for a caller, limits: Limit hits per window, and at most capacity at once.
type terms struct {
	shape           window.Shape
	limit, capacity int64
}

func termsOf(set *rules.Set, x *check.Explanation) terms {
	r, ok := set.Lookup(x.Rule)
	if !ok {
		return terms{}
	}
	t := terms{shape: r.Window, limit: x.Limit, capacity: x.Limit}
	if x.Override >= 0 {
		if o := &r.Overrides[x.Override]; o.Window.Length > 0 {
			t.shape = o.Window
		}
	}
	if t.shape.Drains() {
		t.limit = drained(r, x)
	}
	return t
}

// drained is how many hits drain per window, where the limit of an explanation is the burst.
func drained(r *rules.Rule, x *check.Explanation) int64 {
	switch {
	case x.Override < 0:
		return r.Limit
	case r.Overrides[x.Override].Limit > 0:
		return r.Overrides[x.Override].Limit
	}
	return max(1, int64(float64(r.Limit)*r.Overrides[x.Override].Factor))
}

// flows says that shares are rates: that the window would be over before a report tells what was spent in it.
func (t terms) flows(reportEvery time.Duration) bool {
	span := t.shape.Length
	if t.shape.Drains() {
		span = time.Duration(float64(span) * float64(t.capacity) / float64(t.limit))
	}
	return span < 2*reportEvery
}

// outlook is what will still count of the hits that are known, without others: a stock is reckoned with by it.
//
// Hits are counted when they are reported, on average half the time between two reports after they were let through, and stay in
// the window for as long too long. So they are looked at from half a report's time ahead. Of a fixed window that would be to look beyond its
// end: there it is what counts now.
type outlook struct {
	now, next float64 // and when the next report is due
}

// pool is what the Envoys of this daemon may spend of a limit, if part of what is left is theirs.
func (t terms) pool(reportEvery time.Duration, part float64, o outlook) shares.Pool {
	if t.flows(reportEvery) {
		burst := rateBurst
		if t.shape.Drains() {
			burst = float64(t.capacity) / float64(t.limit)
		}
		return shares.Pool{Span: t.shape.Length, Ahead: part * float64(t.limit), Burst: burst}
	}
	room := float64(t.capacity)
	now := max(room-o.now, 0)
	return shares.Pool{Span: reportEvery, Stock: true, Now: part * now, Ahead: part * max(room-o.next, now)}
}

// tally is what the Envoys of this daemon have admitted of one key under one rule, in the buckets of its window.
type tally struct {
	shape  window.Shape
	newest int64
	counts []int64
}

// add counts hits at a time. Those of token and leaky buckets it does not: what was admitted has drained, whoever admitted it.
func (t *tally) add(now, hits int64) {
	if t.shape.Drains() {
		return
	}
	t.turn(now)
	t.counts[0] += hits
}

func (t *tally) turn(now int64) {
	if t.counts == nil {
		t.counts = make([]int64, t.shape.Live())
	}
	b := t.shape.Bucket(now)
	if gone := b - t.newest; gone > 0 {
		if gone < int64(len(t.counts)) {
			copy(t.counts[gone:], t.counts)
		}
		clear(t.counts[:min(gone, int64(len(t.counts)))])
		t.newest = b
	}
}

// part is which part of the limit this daemon's Envoys may have: as large as their part of all that is counted, so that the parts
// of all daemons come to the limit; and at least what every checker would have if all had the same, so that those who come
// get something.
func (t *tally) part(now int64, counted float64, checkers int) float64 {
	if t.shape.Drains() {
		return 1 / float64(max(checkers, 1))
	}
	t.turn(now)
	own := t.shape.Count(t.counts, now)
	if counted-own <= max(1, alike*counted) {
		return 1
	}
	// If there is no other checker, another door of this one is at work.
	return max(min(own/counted, 1), 1/float64(max(checkers, 2)))
}
