package httplimit

import (
	"net/http"

	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/identity/httpidentity"
	"github.com/offpath-io/offpath/pkg/internal/adapter"
	"github.com/offpath-io/offpath/pkg/limitheaders"
	"github.com/offpath-io/offpath/pkg/rules"
)

// plan is what a Limit prepares for a set of rules. It does not change.
type plan struct {
	reader  *httpidentity.Reader
	names   []string                     // attributes that the rules ask for
	unknown []string                     // those of them that nothing provides
	user    func(r *http.Request) string // nil if no rule asks for users
	waiting adapter.Waiting
	headers *limitheaders.Writer
}

// newPlan has those attributes read that a request can have. Rules that come into force later may
// ask for others, for example a header with a space in its name: every request lacks them, like
// those that nothing provides.
func (l *Limit) newPlan(set *rules.Set) *plan {
	p := &plan{
		names: set.Attributes(), waiting: adapter.WaitingUnder(set),
		headers: limitheaders.NewWriter(l.options.Headers, set),
	}
	var read []string
	for _, name := range p.names {
		one, err := l.builder.Reader([]string{name})
		switch {
		case name == adapter.UserName && l.options.User != nil:
			p.user = l.options.User
		case err != nil || len(one.Unknown()) > 0:
			p.unknown = append(p.unknown, name)
		default:
			read = append(read, name)
		}
	}
	p.reader, _ = l.builder.Reader(read) // no error: each has been tried
	return p
}

// attributes appends those of a request to dst.
func (p *plan) attributes(dst identity.Attributes, r *http.Request) identity.Attributes {
	if p.user != nil {
		if user := p.user(r); user != "" {
			dst = append(dst, identity.Attribute{Name: adapter.UserName, Value: user})
		}
	}
	return p.reader.Append(dst, r)
}
