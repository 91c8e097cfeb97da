package counter

import (
	"unsafe"

	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/window"
)

// Counts returns whether a message's rule is this group's: whether both have the same counters.
func (g *Group) Counts(r *events.Rule) bool {
	return g.Name == r.Name && uint64(g.Shape.Length.Milliseconds()) == r.WindowMs &&
		g.Shape.Buckets == int(r.Buckets) && g.algorithm() == r.Algorithm
}

func (g *Group) algorithm() events.Algorithm {
	switch g.Shape.Kind {
	case window.Log:
		return events.Algorithm_SLIDING_LOG
	case window.Token:
		return events.Algorithm_TOKEN_BUCKET
	case window.Leaky:
		return events.Algorithm_LEAKY_BUCKET
	}
	if g.Shape.Fixed {
		return events.Algorithm_FIXED_WINDOW
	}
	return events.Algorithm_SLIDING_WINDOW
}

// Lookup returns the live counter of a key; nil if there is none.
func (g *Group) Lookup(key []byte) *Counter {
	return g.Host.Table.Load(g, unsafe.String(unsafe.SliceData(key), len(key)))
}

// Wire returns the group's rule as messages contain it.
func (g *Group) Wire(fleet int64) *events.Rule {
	t := g.Limits.Load()
	return &events.Rule{
		Name:      g.Name,
		Revision:  t.Revision,
		WindowMs:  uint64(g.Shape.Length.Milliseconds()),
		Buckets:   uint32(g.Shape.Buckets),
		Algorithm: g.algorithm(),
		Limit:     events.Count(t.Wire),
		Burst:     events.Count(t.Burst),
		Newest:    g.Shape.Bucket(fleet),
		Loose:     t.Loose,
		Settles:   g.Settles.Load(),
	}
}
