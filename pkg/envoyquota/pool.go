package envoyquota

import (
	"time"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/envoyquota/internal/shares"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

const (
	// rateBurst is the part of a rate's hits per window that may accumulate. Rates are for short
	// windows, which are over before their hits are reported, so accumulated hits may exceed the
	// limit. A smaller part denies at random: a quarter of a share of 25 is little compared with
	// the Poisson deviation of 17 hits.
	rateBurst = 1.0 / 4
	// tolerance is the part by which the fleet's count may exceed this daemon's own although no
	// other daemon admits hits.
	tolerance = 0.02
)

// terms are the numbers of a rule, or its override for a caller: limit hits per window, and at most
// capacity at once.
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

// drained returns how many hits drain per window. The limit of the explanation is the burst.
func drained(r *rules.Rule, x *check.Explanation) int64 {
	switch {
	case x.Override < 0:
		return r.Limit
	case r.Overrides[x.Override].Limit > 0:
		return r.Overrides[x.Override].Limit
	}
	return max(1, int64(float64(r.Limit)*r.Overrides[x.Override].Factor))
}

// isRate reports whether shares are rates: the window would be over before its hits are reported.
func (t terms) isRate(reportEvery time.Duration) bool {
	span := t.shape.Length
	if t.shape.Drains() {
		span = time.Duration(float64(span) * float64(t.capacity) / float64(t.limit))
	}
	return span < 2*reportEvery
}

// outlook is how many of the known hits will still count, without new ones. A stock is computed
// from it.
//
// Hits are counted when they are reported, on average half a report interval after they were
// allowed, and stay in the window for that much too long. So the counts are those of half an
// interval ahead. For a fixed window they are those of now, since its end may come before that.
type outlook struct {
	now, next float64 // and when the next report is due
}

// pool returns what the Envoys of this daemon may use of a limit, given their part of the rest.
func (t terms) pool(reportEvery time.Duration, part float64, o outlook) shares.Pool {
	if t.isRate(reportEvery) {
		burst := rateBurst
		if t.shape.Drains() {
			burst = float64(t.capacity) / float64(t.limit)
		}
		return shares.Pool{Span: t.shape.Length, Ahead: part * float64(t.limit), Burst: burst}
	}
	room := float64(t.capacity)
	now := max(room-o.now, 0)
	return shares.Pool{
		Span: reportEvery, Stock: true, Now: part * now, Ahead: part * max(room-o.next, now),
	}
}

// localCounts are the hits that the Envoys of this daemon have admitted of one key under one rule,
// in the buckets of its window.
type localCounts struct {
	shape  window.Shape
	newest int64
	counts []int64
}

// add counts hits at a time. It ignores those of token and leaky buckets, which drain whoever
// admitted them.
func (t *localCounts) add(now, hits int64) {
	if t.shape.Drains() {
		return
	}
	t.rotate(now)
	t.counts[0] += hits
}

func (t *localCounts) rotate(now int64) {
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

// fraction returns the part of the limit for this daemon's Envoys: their part of all counted hits,
// so that the fractions of all daemons add up to the limit; and at least an equal part per checker,
// so that new Envoys get a share.
func (t *localCounts) fraction(now int64, counted float64, checkers int) float64 {
	if t.shape.Drains() {
		return 1 / float64(max(checkers, 1))
	}
	t.rotate(now)
	own := t.shape.Count(t.counts, now)
	if counted-own <= max(1, tolerance*counted) {
		return 1
	}
	// Without another checker, another adapter of this one admits hits.
	return max(min(own/counted, 1), 1/float64(max(checkers, 2)))
}
