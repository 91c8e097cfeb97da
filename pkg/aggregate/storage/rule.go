package storage

import (
	"github.com/offpath-io/offpath/pkg/window"
)

// Rule is what a batch says about a rule. Its name and shape together are its identity: after a
// change of shape it counts afresh.
type Rule struct {
	Name  string
	Shape window.Shape
	// Limit, Burst and Revision are the latest that the batch's reports know. Burst is for rules
	// that drain.
	Limit, Burst int64
	Revision     uint64
	// Past are the earlier limits of a rule that drains, see [window.Drain].
	Past []window.Rate
	// Kind says which of the rule's hits these are; each kind has counters of its own.
	Kind Kind
	// Loose says that the rule lets more than its limit pass on purpose.
	Loose bool
}

// Kind is which of a rule's hits are counted.
type Kind uint8

// The kinds of hits. What counts in a window is admitted less refunded, per bucket, and at least 0:
// two counters, so that both only grow. Denied hits limit nothing and are in no ledger; refunded
// ones are in that of the admitted.
const (
	Admitted Kind = iota
	Denied
	Refunded
)

// RuleID tells the counters of one rule and kind from another's.
type RuleID struct {
	Name  string
	Shape window.Shape
	Kind  Kind
}

// ID returns the rule's identity.
func (r *Rule) ID() RuleID { return RuleID{r.Name, r.Shape, r.Kind} }

// Learn takes over another report's limits of the same rule, if they are later: of two revisions
// the higher one's limit and burst, and within one revision the higher ones, so that the order of
// the reports does not matter.
func (r *Rule) Learn(limit, burst int64, revision uint64) {
	switch {
	case revision > r.Revision:
		r.Limit, r.Burst, r.Revision = limit, burst, revision
	case revision == r.Revision:
		r.Limit, r.Burst = max(r.Limit, limit), max(r.Burst, burst)
	}
}

// Room is how many hits fit at once into a key that has not been used.
func (r *Rule) Room() int64 {
	if r.Drains() {
		return r.Burst
	}
	return r.Limit
}

// Drains reports whether the rule's keys have a level. Its denied and refunded hits have none of
// their own.
func (r *Rule) Drains() bool { return r.Shape.Drains() && r.Kind == Admitted }

// BesideLevel reports whether a level is computed from these hits: the admitted ones of a rule that
// drains, and the refunded ones, which are subtracted from them. A store needs both together.
func (r *Rule) BesideLevel() bool { return r.Shape.Drains() && r.Kind != Denied }

// Drain is the arithmetic of a rule that drains.
func (r *Rule) Drain() window.Drain {
	return window.Drain{Shape: r.Shape, Limit: max(r.Limit, 1), Burst: max(r.Burst, 1), Past: r.Past}
}

// NoLevel is the level of a key with nothing on record.
var NoLevel = window.Level{Bucket: -1 << 50}

// Advance brings a key's level forward to the end of the bucket before the first that is live at
// now, and returns those of its cells, which are in ascending order, that come after it. Refunds of
// a bucket are subtracted from its hits. The rule drains.
func (r *Rule) Advance(l window.Level, cells, refunded []Cell, now int64) (window.Level, []Cell) {
	to := r.Shape.Bucket(now) - int64(r.Shape.Live())
	return r.AdvanceTo(l, cells, refunded, to)
}

// AdvanceTo is Advance to the end of a given bucket.
func (r *Rule) AdvanceTo(
	l window.Level, cells, refunded []Cell, bucket int64,
) (window.Level, []Cell) {
	d, n := r.Drain(), 0
	for ; n < len(cells) && cells[n].Bucket <= max(bucket, l.Bucket); n++ {
		hits := max(cells[n].Count-CountOf(refunded, cells[n].Bucket), 0)
		l = d.Settle(l, []int64{hits}, cells[n].Bucket, cells[n].Bucket)
	}
	return d.Settle(l, nil, bucket, bucket), cells[n:]
}

// GoneAt is the time from which a bucket has left every window.
func GoneAt(s window.Shape, bucket int64) int64 { return s.End(bucket + int64(s.Live()) - 1) }

// ExpiryOf is the time from which a store may forget a bucket: one window after it has left every
// window. Until then an aggregator whose clock is behind another's may still add to it.
func ExpiryOf(s window.Shape, bucket int64) int64 {
	return GoneAt(s, bucket) + int64(s.Length)
}

// Expiry is the time from which a store may forget a key to which the cell has been added, and
// whose expiry was before until then. A key that drains expires when it has drained, too; computed
// as if hits drained one after another, which is no earlier than they do.
func (r *Rule) Expiry(before int64, c Cell) int64 {
	expires := max(before, ExpiryOf(r.Shape, c.Bucket))
	if r.Drains() {
		windows := float64(c.Count) / float64(max(r.Limit, 1))
		expires += int64(min(windows*float64(r.Shape.Length), float64(window.MaxLength)))
	}
	return expires
}
