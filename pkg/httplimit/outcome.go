package httplimit

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/felixge/httpsnoop"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/identity"
)

// ChargeOn makes a middleware that charges requests by how they were answered, such as logins that have failed:
//
//	failures, err := limit.ChargeOn(identity.Attribute{Name: "api", Value: "login"}, http.StatusUnauthorized)
//	mux.Handle("POST /login", failures(login))
//
// It looks whether the request may pass, and charges it when it is answered with one of these statuses, before the answer leaves. For both, the
// request has this attribute beside its others; rules that match it count outcomes, and no others should ask for it. Handler asks without it,
// so that both can be around the same request. A rule that does not match the attribute, and yet applies, is charged by both; let rules of outcomes
// have those in replaces.
//
// Requests that are answered at the same time have all been let pass before the first of them is charged. A handler that panics before it
// answers counts as 500, a connection that is hijacked as 200 unless a status was written before, which is 101 mostly.
// The error says why there can be no such charging.
func (l *Limit) ChargeOn(attribute identity.Attribute, statuses ...int) (func(http.Handler) http.Handler, error) {
	if err := l.checkCharge(attribute.Name, statuses); err != nil {
		return nil, fmt.Errorf("httplimit: charge by outcome: %w", err)
	}
	statuses = slices.Clone(statuses)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c := charge{limit: l, attribute: attribute, statuses: statuses}
			c.serve(next, w, r)
		})
	}, nil
}

func (l *Limit) checkCharge(name string, statuses []int) error {
	if len(statuses) == 0 {
		return errors.New("no status")
	}
	for _, s := range statuses {
		if s < 200 || s > 999 {
			return fmt.Errorf("status %d: want a final one, 200 to 999", s)
		}
	}
	rd, err := l.builder.Reader([]string{name})
	switch {
	case err != nil:
		return err
	case len(rd.Unknown()) == 0 || name == userName && l.options.User != nil:
		return fmt.Errorf("attribute %.40q: requests have it anyway", name)
	}
	return nil
}

// charge is one request that is charged by its outcome.
type charge struct {
	limit     *Limit
	attribute identity.Attribute
	statuses  []int
}

func (c *charge) serve(next http.Handler, w http.ResponseWriter, r *http.Request) {
	l := c.limit
	p := l.plans.InForce()
	if !slices.Contains(p.names, c.attribute.Name) { // no rule asks for it
		next.ServeHTTP(w, r)
		return
	}
	if p.reader.Ambiguous(r) {
		l.deny(w, r, refused)
		return
	}
	attrs := l.scratch.Get().(*identity.Attributes)
	defer l.free(attrs)
	*attrs = p.attributes(append((*attrs)[:0], c.attribute), r)
	if d := l.checker.Do(check.Request{Attributes: *attrs, Mode: check.Peek}).Decision; !d.Allowed {
		l.write(w.Header(), &d, p)
		l.deny(w, r, d)
		return
	}
	o := outcome{charge: func(status int) {
		if slices.Contains(c.statuses, status) {
			l.checker.Do(check.Request{Attributes: *attrs, Mode: check.Record})
		}
	}}
	defer o.end()
	next.ServeHTTP(o.watch(w), r)
	o.returned = true
}

// outcome charges when the status is known, before the client can have it: who waits for each answer cannot have one more than the limit.
type outcome struct {
	charge          func(status int)
	known, returned bool
}

// is takes a status. The first final one is the answer's.
func (o *outcome) is(status int) {
	if !o.known && status >= 200 {
		o.known = true
		o.charge(status)
	}
}

// end takes what net/http makes of handlers that leave the status out, or panic.
func (o *outcome) end() {
	if o.returned {
		o.is(http.StatusOK)
	} else {
		o.is(http.StatusInternalServerError)
	}
}

// watch returns w with all that it can do.
func (o *outcome) watch(w http.ResponseWriter) http.ResponseWriter {
	return httpsnoop.Wrap(w, httpsnoop.Hooks{
		WriteHeader: func(next httpsnoop.WriteHeaderFunc) httpsnoop.WriteHeaderFunc {
			return func(status int) { o.is(status); next(status) }
		},
		Write: func(next httpsnoop.WriteFunc) httpsnoop.WriteFunc {
			return func(b []byte) (int, error) { o.is(http.StatusOK); return next(b) }
		},
		ReadFrom: func(next httpsnoop.ReadFromFunc) httpsnoop.ReadFromFunc {
			return func(from io.Reader) (int64, error) { o.is(http.StatusOK); return next(from) }
		},
		Flush: func(next httpsnoop.FlushFunc) httpsnoop.FlushFunc {
			return func() { o.is(http.StatusOK); next() }
		},
	})
}
