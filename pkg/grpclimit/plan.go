package grpclimit

import (
	"strings"

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

	user, method, service, ip, address bool // the rules ask for these

	forwarding string // the name of the header that trusted proxies write, in metadata's spelling
	waiting    adapter.Waiting
	headers    *limitheaders.Writer
}

// namedSource is an attribute and its source.
type namedSource struct {
	name string
	read Source
}

func (l *Limit) newPlan(set *rules.Set) *plan {
	p := &plan{
		limit: l, names: set.Attributes(), waiting: adapter.WaitingUnder(set),
		forwarding: strings.ToLower(l.options.Identity.Forwarding.String()),
		headers:    limitheaders.NewWriter(l.options.Headers, set),
	}
	for _, name := range p.names {
		p.add(name)
	}
	return p
}

// add has an attribute read from each call. Rules that come into force later may ask for impossible
// ones, for example metadata with a space in its name: every call lacks them, like those that
// nothing provides.
func (p *plan) add(name string) {
	source, err := p.limit.source(name)
	switch {
	case err != nil:
		p.unknown = append(p.unknown, name)
	case source != nil:
		p.sources = append(p.sources, namedSource{name, source})
	case name == adapter.UserName && p.limit.options.User != nil:
		p.user = true
	case name == methodName:
		p.method = true
	case name == serviceName:
		p.service = true
	case name == ipName:
		p.ip = true
	case name == addressName:
		p.address = true
	default:
		p.unknown = append(p.unknown, name)
	}
}
