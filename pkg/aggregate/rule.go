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

func kindOf(r *events.Rule) Kind {
	switch {
	case r.GetDenied():
		return Denied
	case r.GetRefunded():
		return Refunded
	}
	return Admitted
}

// shapeOf is the shape of a rule that was decoded without an error, which makes it a valid one.
func shapeOf(r *events.Rule) window.Shape {
	return window.Shape{
		Length:  time.Duration(r.GetWindowMs()) * time.Millisecond,
		Buckets: int(r.GetBuckets()),
		Fixed:   r.GetAlgorithm() == events.Algorithm_FIXED_WINDOW,
	}
}

// wireRule is the opposite of shapeOf, for an alarm.
func wireRule(r *Rule, newest int64) *events.Rule {
	algorithm := events.Algorithm_SLIDING_WINDOW
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
		Newest:    newest,
		Denied:    r.Kind == Denied,
		Refunded:  r.Kind == Refunded,
	}
}

// learn takes over what another report says of the same rule, if it is later: of two revisions the
// higher one's limit, and within one revision the higher limit, so that the order does not matter.
func (r *Rule) learn(limit int64, revision uint64) {
	if revision > r.Revision || revision == r.Revision && limit > r.Limit {
		r.Limit, r.Revision = limit, revision
	}
}

// GoneAt is the fleet's time, in Unix nanoseconds, from which a bucket has left every window.
func GoneAt(s window.Shape, bucket int64) int64 { return s.End(bucket + int64(s.Live()) - 1) }

// ExpiryOf is the fleet's time, in Unix nanoseconds, from which a store may forget a bucket: one
// window after it has left every window. Until then a worker whose clock is behind another's may still
// add to it.
func ExpiryOf(s window.Shape, bucket int64) int64 {
	return GoneAt(s, bucket) + int64(s.Length)
}

// weight is how much of a fold's budget a key of this shape takes. With more than the two buckets of
// the common shape, the store has to read and return them all.
func weight(s window.Shape) int {
	if live := s.Live(); live > 2 {
		return 1 + live/8
	}
	return 1
}
