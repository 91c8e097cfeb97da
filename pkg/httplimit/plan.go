package httplimit

import (
	"context"
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/identity/httpidentity"
	"github.com/offpath-io/offpath/pkg/internal/doors"
	"github.com/offpath-io/offpath/pkg/rules"
)

// userName is the attribute of Options.User.
const userName = "user"

// plan is what a Limit knows of a set of rules. It is never changed.
type plan struct {
	limit   *Limit
	set     *rules.Set
	reader  *httpidentity.Reader
	names   []string // attributes that the rules ask for
	unknown []string // those of them that nothing provides
	user    bool     // Options.User has to be asked
	manner  doors.Manner
	texts   []atomic.Pointer[texts] // by the place of the rule; made when they are needed
}

func (l *Limit) newPlan(set *rules.Set) *plan {
	all := set.Rules()
	p := &plan{limit: l, set: set, manner: doors.MannerOf(set), names: set.Attributes(), texts: make([]atomic.Pointer[texts], len(all))}
	p.user = l.options.User != nil && slices.Contains(p.names, userName)
	p.reader, p.unknown = l.readable(p.names)
	if p.user {
		p.unknown = slices.DeleteFunc(p.unknown, func(name string) bool { return name == userName })
	}
	return p
}

// readable makes a reader of those attributes that a request can have. Rules that come into force later may ask for others, such as a
// header with a space in its name: these are missing in every request, as what nothing provides is.
func (l *Limit) readable(names []string) (rd *httpidentity.Reader, unknown []string) {
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
	if p.user {
		if user := p.limit.options.User(r); user != "" {
			dst = append(dst, identity.Attribute{Name: userName, Value: user})
		}
	}
	return p.reader.Append(dst, r)
}

// ask decides, and waits where the rules say so.
func (p *plan) ask(ctx context.Context, attrs identity.Attributes) check.Decision {
	return p.manner.Ask(ctx, p.limit.checker, attrs, p.limit.options.Acquire)
}
