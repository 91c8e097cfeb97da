package grpclimit

import (
	"github.com/offpath-io/offpath/pkg/internal/adapter"
	"github.com/offpath-io/offpath/pkg/limitheaders"
	"github.com/offpath-io/offpath/pkg/rules"
)

// plan is what a Limit prepares for a set of rules. It does not change.
type plan struct {
	limit   *Limit
	names   []string // attributes that the rules ask for
	unknown []string // those of them that nothing provides
	sources []namedSource
	waiting adapter.Waiting
	headers *limitheaders.Writer
}

// namedSource is an attribute and its source.
type namedSource struct {
	name string
	read callSource
}

// newPlan has each attribute of the rules read from each call. Rules that come into force later may
// ask for impossible ones, for example metadata with a space in its name: every call lacks them,
// like those that nothing provides.
func (l *Limit) newPlan(set *rules.Set) *plan {
	p := &plan{
		limit: l, names: set.Attributes(), waiting: adapter.WaitingUnder(set),
		headers: limitheaders.NewWriter(l.options.Headers, set),
	}
	for _, name := range p.names {
		if read, err := l.source(name); err == nil && read != nil {
			p.sources = append(p.sources, namedSource{name, read})
		} else {
			p.unknown = append(p.unknown, name)
		}
	}
	return p
}
