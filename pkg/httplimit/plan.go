package httplimit

import (
	"net/http"
	"slices"

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

func (l *Limit) newPlan(set *rules.Set) *plan {
	p := &plan{
		names: set.Attributes(), waiting: adapter.WaitingUnder(set),
		headers: limitheaders.NewWriter(l.options.Headers, set),
	}
	p.reader, p.unknown = l.reader(p.names)
	if l.options.User != nil && slices.Contains(p.names, adapter.UserName) {
		p.user = l.options.User
		p.unknown = slices.DeleteFunc(p.unknown, func(name string) bool {
			return name == adapter.UserName
		})
	}
	return p
}

// reader makes a reader of those attributes that a request can have. Rules that come into force
// later may ask for others, for example a header with a space in its name: every request lacks
// them, like those that nothing provides.
func (l *Limit) reader(names []string) (rd *httpidentity.Reader, unknown []string) {
	var possible, impossible []string
	for _, name := range names {
		if _, err := l.builder.Reader([]string{name}); err != nil {
			impossible = append(impossible, name)
		} else {
			possible = append(possible, name)
		}
	}
	rd, err := l.builder.Reader(possible)
	if err != nil { // unreachable: each has been tried
		panic(err)
	}
	unknown = append(rd.Unknown(), impossible...)
	slices.Sort(unknown)
	return rd, unknown
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
