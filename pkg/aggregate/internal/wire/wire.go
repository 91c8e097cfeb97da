// Package wire converts between the rules of messages and those of batches.
package wire

import (
	"slices"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/window"
)

// Kind is the kind of a message's rows of a rule; ok is false if this build does not know it.
func Kind(r *events.Rule) (kind storage.Kind, ok bool) {
	i := slices.Index(rowKinds[:], r.GetKind())
	return storage.Kind(max(i, 0)), i >= 0
}

// rowKinds is the inverse of Kind.
var rowKinds = [...]events.RowKind{
	storage.Admitted: events.RowKind_ADMITTED,
	storage.Denied:   events.RowKind_DENIED,
	storage.Refunded: events.RowKind_REFUNDED,
}

// Shape is the shape of a rule that was decoded without an error, which makes it a valid one.
func Shape(r *events.Rule) window.Shape {
	return window.Shape{
		Length:  time.Duration(r.GetWindowMs()) * time.Millisecond,
		Buckets: int(r.GetBuckets()),
		Fixed:   r.GetAlgorithm() == events.Algorithm_FIXED_WINDOW,
		Kind:    windowKinds[r.GetAlgorithm()],
	}
}

// windowKinds are the windows of algorithms, and algorithms the inverse; a fixed window is of kind
// Sliding, and a field of its own tells them apart.
var (
	windowKinds = [...]window.Kind{
		events.Algorithm_SLIDING_WINDOW: window.Sliding,
		events.Algorithm_FIXED_WINDOW:   window.Sliding,
		events.Algorithm_SLIDING_LOG:    window.Log,
		events.Algorithm_TOKEN_BUCKET:   window.Token,
		events.Algorithm_LEAKY_BUCKET:   window.Leaky,
	}
	algorithms = [...]events.Algorithm{
		window.Sliding: events.Algorithm_SLIDING_WINDOW,
		window.Log:     events.Algorithm_SLIDING_LOG,
		window.Token:   events.Algorithm_TOKEN_BUCKET,
		window.Leaky:   events.Algorithm_LEAKY_BUCKET,
	}
)

// Rule is how a message describes a rule whose newest bucket is given.
func Rule(r *storage.Rule, newest int64) *events.Rule {
	algorithm := algorithms[r.Shape.Kind]
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
		Denied:    r.Kind == storage.Denied,
		Kind:      rowKinds[r.Kind],
	}
}

// Weight is how much of a batch's budget the keys of a message take, at least 1.
func Weight(t *events.Table) int {
	rules := t.GetRules()
	if len(rules) == 1 {
		return max(t.Keys()*keyWeight(Shape(rules[0])), 1)
	}
	weights := make([]int, len(rules))
	for i, r := range rules {
		weights[i] = keyWeight(Shape(r))
	}
	sum := 0
	for _, rule := range t.GetKeyRule() {
		sum += weights[rule]
	}
	return max(sum, 1)
}

// keyWeight is the weight of a key of this shape. With more than the two buckets of the common
// shape, the store has to read and return them all.
func keyWeight(s window.Shape) int {
	if live := s.Live(); live > 2 {
		return 1 + live/8
	}
	return 1
}
