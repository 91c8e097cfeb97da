// Package httplimit limits the requests of an HTTP server.
//
//	limit, err := httplimit.New(checker, httplimit.Options{User: userOf})
//	if err != nil {
//		log.Fatal(err)
//	}
//	http.ListenAndServe(":8080", limit.Handler(mux))
//
// A [Limit] reads the attributes that the rules in force ask for from a request, and no others
// (package httpidentity lists them), asks the checker, and lets the request pass or answers it. It
// decides nothing itself.
//
// The headers of an answer say what is left of the rule that decided, see package limitheaders. A
// denial has the rule's status, 429 or 503, Retry-After, and a [Problem] as its body;
// [Options.Denied] replaces that. Where a rule has on_limit: queue, the request waits for its turn
// until its client gives up.
//
// Servers read a path with a segment . or .. in different ways, and a header that comes twice, see
// [httpidentity.Reader.Ambiguous]. If the rules ask for either, such a request is answered with 400
// and charged to nobody.
//
// [Limit.ChargeOn] charges requests by the status of their answers, for example failed logins.
package httplimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/identity/httpidentity"
	"github.com/offpath-io/offpath/pkg/internal/adapter"
	"github.com/offpath-io/offpath/pkg/limitheaders"
	"github.com/offpath-io/offpath/pkg/rules"
)

// Checker decides: a [check.Checker], or in tests one of package checktest.
type Checker interface {
	Check(attrs identity.Attributes, cost int64) check.Decision
	Do(r check.Request) check.Result
	Wait(ctx context.Context, r check.Request) (check.Result, error)
	Rules() *rules.Set
}

// Options of a Limit. The zero value works: it trusts no proxy, knows no users, and writes the
// headers of the newest draft.
type Options struct {
	// Identity says how to read requests: trusted proxies, address prefixes, sources of further
	// attributes.
	Identity httpidentity.Options
	// User returns the user who sent a request, for the attribute user; "" for a request without
	// one. It is called at most once per request, only if a rule asks for users, and concurrently.
	// It must return verified users only: a client that can choose its user can evade its limit.
	User func(r *http.Request) string
	// Headers of answers, besides the Retry-After of denials. Default: limitheaders.Newest.
	Headers limitheaders.Format
	// Denied answers a denied request: it writes the status and the body. Retry-After and Headers
	// are set already. If the request is ambiguous, the decision has no rule and the status 400; if
	// no rule matches it, the decision is Unmatched and has the status 403.
	// Default: [Deny].
	Denied func(w http.ResponseWriter, r *http.Request, d check.Decision)
	// Acquire is how long a request waits for permits under rules of strict enforcement, at most.
	// If it is negative, requests do not wait, and the first hit of a new key is denied. Default 20
	// ms.
	Acquire time.Duration
}

// Limit limits requests. Its methods are safe for concurrent use.
type Limit struct {
	checker Checker
	builder *httpidentity.Builder
	options Options
	plans   *adapter.Prepared[plan]
}

// New returns a Limit that asks this checker. It starts nothing. It fails on an invalid option, and
// if no request can have an attribute that the rules in force ask for.
func New(checker Checker, o Options) (*Limit, error) {
	if checker == nil {
		return nil, errors.New("httplimit: no checker")
	}
	if _, ok := o.Identity.Sources[adapter.UserName]; ok && o.User != nil {
		return nil, errors.New("httplimit: User and a source for user: want one of them")
	}
	l := &Limit{checker: checker, options: o}
	if err := l.check(); err != nil {
		return nil, fmt.Errorf("httplimit: %w", err)
	}
	l.plans = adapter.Prepare(checker.Rules, l.newPlan)
	return l, nil
}

// check makes the builder of valid options.
func (l *Limit) check() (err error) {
	o, set := &l.options, l.checker.Rules()
	if set == nil {
		return errors.New("the checker has no rules")
	}
	if l.builder, err = httpidentity.NewBuilder(o.Identity); err != nil {
		return err
	}
	_, err = l.builder.Reader(set.Attributes())
	return cmp.Or(o.Headers.Validate(), err)
}

// Handler limits the requests to next. The method value limit.Handler is a middleware.
func (l *Limit) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := l.plans.Get()
		d := l.decide(p, r)
		if p.headers.Write(w.Header(), d); d.Allowed {
			next.ServeHTTP(w, r)
			return
		}
		l.deny(w, r, d)
	})
}

// Decide decides about a request as Handler does, charges it if it may pass, and writes nothing.
// Where its rule has on_limit: queue, it waits. It is for servers that write answers of their own;
// see [Limit.Write] and [WriteProblem].
func (l *Limit) Decide(r *http.Request) check.Decision { return l.decide(l.plans.Get(), r) }

// Write sets the headers for a decision of Decide.
func (l *Limit) Write(header http.Header, d check.Decision) {
	l.plans.Get().headers.Write(header, d)
}

// Unknown returns the attributes that the rules in force ask for and nothing provides, sorted. A
// rule with a key of them applies to no request, unless its on_missing says otherwise: log them at
// start. The slice is the caller's.
func (l *Limit) Unknown() []string { return slices.Clone(l.plans.Get().unknown) }

func (l *Limit) decide(p *plan, r *http.Request) check.Decision {
	if p.reader.Ambiguous(r) {
		return ambiguous
	}
	attrs := adapter.Borrow()
	defer adapter.Return(attrs)
	*attrs = p.attributes(*attrs, r)
	return p.waiting.Decide(r.Context(), l.checker, *attrs, l.options.Acquire)
}

// ambiguous is the decision about a request that servers read in different ways.
var ambiguous = check.Decision{Status: http.StatusBadRequest, RetryAfter: check.Never}

func (l *Limit) deny(w http.ResponseWriter, r *http.Request, d check.Decision) {
	d.Status = status(&d)
	if l.options.Denied == nil {
		Deny(w, r, d)
		return
	}
	SetRetryAfter(w.Header(), d)
	l.options.Denied(w, r, d)
}
