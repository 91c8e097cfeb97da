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
	"github.com/offpath-io/offpath/pkg/internal/adapter"
)

// ChargeOn returns a middleware that charges requests by the status of their answers, for example
// failed logins:
//
//	login := identity.Attribute{Name: "api", Value: "login"}
//	failures, err := limit.ChargeOn(login, http.StatusUnauthorized)
//	mux.Handle("POST /login", failures(login))
//
// The middleware peeks whether the request may pass. When the request is answered with one of these
// statuses, it is charged, before the answer leaves. For both, the request has this attribute
// besides its own. Rules that match the attribute count outcomes, and no other rules should ask for
// it. Handler decides without it, so that both can be around the same request. A rule that does not
// match the attribute and applies all the same is charged by both; rules that count outcomes should
// name it in replaces.
//
// Requests in progress at the same time have all passed before the first of them is charged. A
// handler that panics before it answers counts as 500. A hijacked connection counts as 200 unless a
// status was written before, which mostly is 101.
//
// ChargeOn fails without a valid status, and on an attribute that requests cannot have or have
// anyway.
func (l *Limit) ChargeOn(
	attribute identity.Attribute, statuses ...int,
) (func(http.Handler) http.Handler, error) {
	if err := l.checkCharge(attribute.Name, statuses); err != nil {
		return nil, fmt.Errorf("httplimit: charge by outcome: %w", err)
	}
	c := charge{limit: l, attribute: attribute, statuses: slices.Clone(statuses)}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
	case len(rd.Unknown()) == 0 || name == adapter.UserName && l.options.User != nil:
		return fmt.Errorf("attribute %.40q: requests have it anyway", name)
	}
	return nil
}

// charge charges requests by the statuses of their answers. It does not change.
type charge struct {
	limit     *Limit
	attribute identity.Attribute
	statuses  []int
}

func (c *charge) serve(next http.Handler, w http.ResponseWriter, r *http.Request) {
	l := c.limit
	p := l.plans.Get()
	if !slices.Contains(p.names, c.attribute.Name) { // no rule asks for it
		next.ServeHTTP(w, r)
		return
	}
	if p.reader.Ambiguous(r) {
		l.deny(w, r, ambiguous)
		return
	}
	attrs := adapter.Borrow()
	defer adapter.Return(attrs)
	*attrs = p.attributes(append(*attrs, c.attribute), r)
	peek := check.Request{Attributes: *attrs, Mode: check.Peek}
	if d := l.checker.Do(peek).Decision; !d.Allowed {
		p.headers.Write(w.Header(), d)
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

// outcome calls charge as soon as the status is known and before the client can read it: a client
// that waits for each answer cannot exceed the limit by one.
type outcome struct {
	charge          func(status int)
	known, returned bool
}

// set takes a status. The first final one is the answer's.
func (o *outcome) set(status int) {
	if !o.known && status >= 200 {
		o.known = true
		o.charge(status)
	}
}

// end sets the status that net/http sends for a handler that wrote none or panicked.
func (o *outcome) end() {
	if o.returned {
		o.set(http.StatusOK)
	} else {
		o.set(http.StatusInternalServerError)
	}
}

// watch returns a writer with all the methods of w.
func (o *outcome) watch(w http.ResponseWriter) http.ResponseWriter {
	return httpsnoop.Wrap(w, httpsnoop.Hooks{
		WriteHeader: func(next httpsnoop.WriteHeaderFunc) httpsnoop.WriteHeaderFunc {
			return func(status int) { o.set(status); next(status) }
		},
		Write: func(next httpsnoop.WriteFunc) httpsnoop.WriteFunc {
			return func(b []byte) (int, error) { o.set(http.StatusOK); return next(b) }
		},
		ReadFrom: func(next httpsnoop.ReadFromFunc) httpsnoop.ReadFromFunc {
			return func(from io.Reader) (int64, error) { o.set(http.StatusOK); return next(from) }
		},
		Flush: func(next httpsnoop.FlushFunc) httpsnoop.FlushFunc {
			return func() { o.set(http.StatusOK); next() }
		},
	})
}
