// Package httplimit limits the requests of an HTTP server.
//
//	limit, err := httplimit.New(checker, httplimit.Options{User: userOf})
//	if err != nil {
//		log.Fatal(err)
//	}
//	http.ListenAndServe(":8080", limit.Handler(mux))
//
// A [Limit] reads from a request the attributes that the rules in force ask for, and no others (package httpidentity
// says which there are), asks the checker, and lets the request pass or answers it. It decides nothing itself.
//
// An answer says in RateLimit-Policy and RateLimit, or in older [Headers], what is left of the rule that decided. A
// denial has the rule's status, 429 or 503, Retry-After, and a [Problem] as its body; [Options.Denied] writes another
// one. Where a rule has on_limit: queue the request waits for its turn, and gives up when its client does.
//
// A request whose path has a segment . or .. is answered with 400 if the rules ask for paths, and
// so is one that has a header twice for which they ask; it is charged to nobody. Servers differ on
// what it says, see [httpidentity.Reader.Ambiguous].
//
// [Limit.ChargeOn] charges requests by how they were answered, such as logins that have failed.
package httplimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/identity/httpidentity"
	"github.com/offpath-io/offpath/pkg/internal/doors"
	"github.com/offpath-io/offpath/pkg/rules"
)

// Checker is what a Limit asks: a [check.Checker], or in tests one of package checktest.
type Checker interface {
	Check(attrs identity.Attributes, cost int64) check.Decision
	Do(r check.Request) check.Result
	Wait(ctx context.Context, r check.Request) (check.Result, error)
	Rules() *rules.Set
}

// Options make a Limit. The zero value is of use: it trusts no proxy, knows no users, and writes the newest headers.
type Options struct {
	// Identity says how requests are read: trusted proxies, prefixes of addresses, sources of further attributes.
	Identity httpidentity.Options
	// User finds who has sent a request, for the attribute user; "" is nobody, and then the request has no such
	// attribute. It is called once for each request, if a rule asks for users, by many goroutines at once. It must only
	// say what has been checked: whoever can choose his user has as many limits as he likes.
	User func(r *http.Request) string
	// Headers that answers have, and denials beside Retry-After. Default: those of the newest draft.
	Headers Headers
	// Denied answers a request that may not pass. Status and body are its own; Retry-After and
	// Headers have been set. The decision has no rule and the status 400 if the request's path is
	// ambiguous. Default: [Deny].
	Denied func(w http.ResponseWriter, r *http.Request, d check.Decision)
	// Acquire is how long a request waits for permits under rules of strict enforcement, at most. Negative: not at all, and then
	// the first hit of a cold key is denied. Default 20 ms.
	Acquire time.Duration
}

// Limit limits requests. It is never changed, and may be used by many goroutines at once.
type Limit struct {
	checker Checker
	builder *httpidentity.Builder
	options Options
	plans   *doors.Plans[plan]
	scratch sync.Pool // *identity.Attributes
}

// New returns a Limit that asks this checker. It starts nothing. The error says which option cannot be, or which
// attribute of the rules in force.
func New(checker Checker, o Options) (*Limit, error) {
	if checker == nil {
		return nil, errors.New("httplimit: no checker")
	}
	if err := o.Headers.check(); err != nil {
		return nil, fmt.Errorf("httplimit: %w", err)
	}
	if _, ok := o.Identity.Sources[userName]; ok && o.User != nil {
		return nil, errors.New("httplimit: User and a source for user: want one of them")
	}
	builder, err := httpidentity.NewBuilder(o.Identity)
	if err != nil {
		return nil, fmt.Errorf("httplimit: %w", err)
	}
	if o.Acquire == 0 {
		o.Acquire = doors.Acquire
	}
	l := &Limit{checker: checker, builder: builder, options: o}
	l.scratch.New = func() any { return new(identity.Attributes) }
	set := checker.Rules()
	if set == nil {
		return nil, errors.New("httplimit: the checker has no rules")
	}
	if _, err := builder.Reader(set.Attributes()); err != nil {
		return nil, fmt.Errorf("httplimit: %w", err)
	}
	l.plans = doors.NewPlans(checker.Rules, l.newPlan)
	return l, nil
}

// Handler limits the requests to next. As a method value, limit.Handler, it is a middleware.
func (l *Limit) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := l.plans.InForce()
		d := l.decide(p, r)
		if l.write(w.Header(), &d, p); d.Allowed {
			next.ServeHTTP(w, r)
			return
		}
		l.deny(w, r, d)
	})
}

// Decide decides about a request as Handler does, charges it if it may pass, and writes nothing. Where its rule has on_limit: queue, it
// waits. It is for those who answer in a way of their own; see [Limit.Write] and [WriteProblem].
func (l *Limit) Decide(r *http.Request) check.Decision { return l.decide(l.plans.InForce(), r) }

// Write sets the headers for a decision of Decide. It is [Headers.Write], and quicker.
func (l *Limit) Write(header http.Header, d check.Decision) { l.write(header, &d, l.plans.InForce()) }

// Unknown are the attributes that the rules in force ask for and nothing provides, in order: a rule with such a key applies to
// no request, unless its on_missing says otherwise. Say so at start. The slice is the caller's.
func (l *Limit) Unknown() []string { return append([]string(nil), l.plans.InForce().unknown...) }

func (l *Limit) decide(p *plan, r *http.Request) check.Decision {
	if p.reader.Ambiguous(r) {
		return refused
	}
	attrs := l.scratch.Get().(*identity.Attributes)
	*attrs = p.attributes((*attrs)[:0], r)
	d := p.ask(r.Context(), *attrs)
	l.free(attrs)
	return d
}

// refused is what a request gets that nobody can decide about, since servers differ on what it asks
// for.
var refused = check.Decision{Status: http.StatusBadRequest, RetryAfter: check.Never}

// free keeps the room, and nothing of the request.
func (l *Limit) free(attrs *identity.Attributes) {
	clear(*attrs)
	l.scratch.Put(attrs)
}

func (l *Limit) deny(w http.ResponseWriter, r *http.Request, d check.Decision) {
	d.Status = status(&d)
	if l.options.Denied == nil {
		Deny(w, r, d)
		return
	}
	SetRetryAfter(w.Header(), d)
	l.options.Denied(w, r, d)
}
