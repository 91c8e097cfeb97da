package aggregate

import (
	"time"

	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/window"
)

// ruleID is what tells counters of one rule from another's.
type ruleID struct {
	name  string
	shape window.Shape
	kind  Kind
}

// hitsOf is the kind of a message's rows of a rule; ok is false if this build does not know it.
func hitsOf(r *events.Rule) (kind Kind, ok bool) {
	switch r.GetKind() {
	case events.RowKind_ADMITTED:
		return Admitted, true
	case events.RowKind_DENIED:
		return Denied, true
	case events.RowKind_REFUNDED:
		return Refunded, true
	}
	return 0, false
}

// rowKindOf is the opposite of hitsOf.
var rowKindOf = [...]events.RowKind{
	Admitted: events.RowKind_ADMITTED,
	Denied:   events.RowKind_DENIED,
	Refunded: events.RowKind_REFUNDED,
}

// shapeOf is the shape of a rule that was decoded without an error, which makes it a valid one.
func shapeOf(r *events.Rule) window.Shape {
	return window.Shape{
		Length:  time.Duration(r.GetWindowMs()) * time.Millisecond,
		Buckets: int(r.GetBuckets()),
		Fixed:   r.GetAlgorithm() == events.Algorithm_FIXED_WINDOW,
		Kind:    kindOf[r.GetAlgorithm()],
	}
}

// kindOf is the kind of an algorithm's windows, and algorithmOf the algorithm of a kind; a fixed window is of kind
// Sliding, and a field of its own tells them apart.
var (
	kindOf = [...]window.Kind{
		events.Algorithm_SLIDING_WINDOW: window.Sliding,
		events.Algorithm_FIXED_WINDOW:   window.Sliding,
		events.Algorithm_SLIDING_LOG:    window.Log,
		events.Algorithm_TOKEN_BUCKET:   window.Token,
		events.Algorithm_LEAKY_BUCKET:   window.Leaky,
	}
	algorithmOf = [...]events.Algorithm{
		window.Sliding: events.Algorithm_SLIDING_WINDOW,
		window.Log:     events.Algorithm_SLIDING_LOG,
		window.Token:   events.Algorithm_TOKEN_BUCKET,
		window.Leaky:   events.Algorithm_LEAKY_BUCKET,
	}
)

// wireRule is the opposite of shapeOf, for an alarm.
func wireRule(r *Rule, newest int64) *events.Rule {
	algorithm := algorithmOf[r.Shape.Kind]
	if r.Shape.Fixed {
		algorithm = events.Algorithm_FIXED_WINDOW
	}
	return &events.Rule{
		Name:      r.Name,
		Revision:  r.Revision,
		WindowMs:  uint64(r.Shape.Length.Milliseconds()),
		Buckets:   uint32(r.Shape.Buckets),
		Algorithm: algorithm,
		Limit:     events.Count(r.Limit),
		Burst:     events.Count(r.Burst),
		Newest:    newest,
		Denied:    r.Kind == Denied,
		Kind:      rowKindOf[r.Kind],
	}
}

// learn takes over what another report says of the same rule, if it is later: of two revisions the
// higher one's limit and burst, and within one revision the higher ones, so that the order does not matter.
func (r *Rule) learn(limit, burst int64, revision uint64) {
	switch {
	case revision > r.Revision:
		r.Limit, r.Burst, r.Revision = limit, burst, revision
	case revision == r.Revision:
		r.Limit, r.Burst = max(r.Limit, limit), max(r.Burst, burst)
	}
}

// Drains reports whether the rule's keys have a level. Its denied and refunded hits have none of their own.
func (r *Rule) Drains() bool { return r.Shape.Drains() && r.Kind == Admitted }

// BesideLevel reports whether a level is reckoned from these hits: the admitted ones of what drains, and the refunded
// ones, which are taken off them. So a store needs both together.
func (r *Rule) BesideLevel() bool { return r.Shape.Drains() && r.Kind != Denied }

// Drain is the arithmetic of a rule that drains.
func (r *Rule) Drain() window.Drain {
	return window.Drain{Shape: r.Shape, Limit: max(r.Limit, 1), Burst: max(r.Burst, 1), Past: r.Past}
}

// Settle brings a key's level forward to the end of the bucket before the first that is live at now, and
// returns those of its cells, which are in ascending order, that come after it. What was refunded of a bucket is taken
// off its hits. The rule drains.
func (r *Rule) Settle(l window.Level, cells, refunded []Cell, now int64) (window.Level, []Cell) {
	to := r.Shape.Bucket(now) - int64(r.Shape.Live())
	return r.SettleTo(l, cells, refunded, to)
}

// SettleTo is Settle to the end of a given bucket.
func (r *Rule) SettleTo(l window.Level, cells, refunded []Cell, bucket int64) (window.Level, []Cell) {
	d, n := r.Drain(), 0
	for ; n < len(cells) && cells[n].Bucket <= max(bucket, l.Bucket); n++ {
		hits := max(cells[n].Count-cellOf(refunded, cells[n].Bucket), 0)
		l = d.Settle(l, []int64{hits}, cells[n].Bucket, cells[n].Bucket)
	}
	return d.Settle(l, nil, bucket, bucket), cells[n:]
}

// Untold is the level of a key of which nothing is on record.
var Untold = window.Level{Bucket: -1 << 50}

// GoneAt is the fleet's time, in Unix nanoseconds, from which a bucket has left every window.
func GoneAt(s window.Shape, bucket int64) int64 { return s.End(bucket + int64(s.Live()) - 1) }

// ExpiryOf is the fleet's time, in Unix nanoseconds, from which a store may forget a bucket: one
// window after it has left every window. Until then a worker whose clock is behind another's may still
// add to it.
func ExpiryOf(s window.Shape, bucket int64) int64 {
	return GoneAt(s, bucket) + int64(s.Length)
}

// Expiry is the fleet's time, in Unix nanoseconds, from which a store may forget a key to which the cell has
// been added, if before that it was the time before. What drains may be forgotten when it has drained, too; taken as if
// hits drained one after another, which is no earlier than they do.
func (r *Rule) Expiry(before int64, c Cell) int64 {
	expires := max(before, ExpiryOf(r.Shape, c.Bucket))
	if r.Drains() {
		expires += int64(min(float64(c.Count)/float64(max(r.Limit, 1))*float64(r.Shape.Length), float64(window.MaxLength)))
	}
	return expires
}

// weight is how much of a fold's budget a key of this shape takes. With more than the two buckets of
// the common shape, the store has to read and return them all.
func weight(s window.Shape) int {
	if live := s.Live(); live > 2 {
		return 1 + live/8
	}
	return 1
}
