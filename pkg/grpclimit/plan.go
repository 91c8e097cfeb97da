package grpclimit

import (
	"context"
	"strings"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/internal/doors"
	"github.com/offpath-io/offpath/pkg/rules"
)

// plan is what a Limit knows of a set of rules. It is never changed.
type plan struct {
	limit   *Limit
	set     *rules.Set
	names   []string // attributes that the rules ask for
	unknown []string // those of them that nothing provides
	sources []named

	user, method, service, ip, address bool // these are asked for

	forwarding string // the name of the header that trusted proxies write, as metadata has it
	manner     doors.Manner
}

// named is an attribute and where it comes from.
type named struct {
	name   string
	source Source
}

func (l *Limit) newPlan(set *rules.Set) *plan {
	p := &plan{limit: l, set: set, manner: doors.MannerOf(set), names: set.Attributes(), forwarding: strings.ToLower(l.options.Identity.Forwarding.String())}
	for _, name := range p.names {
		p.read(name)
	}
	return p
}

// read has an attribute read from each call. Rules that come into force later may ask for what cannot be, such as metadata with a
// space in its name: that is missing in every call, as what nothing provides is.
func (p *plan) read(name string) {
	source, err := p.limit.source(name)
	switch {
	case err != nil:
		p.unknown = append(p.unknown, name)
	case source != nil:
		p.sources = append(p.sources, named{name, source})
	case name == userName && p.limit.options.User != nil:
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

// ask decides, and waits where the rules say so.
func (p *plan) ask(ctx context.Context, attrs identity.Attributes) check.Decision {
	return p.manner.Ask(ctx, p.limit.checker, attrs, p.limit.options.Acquire)
}
