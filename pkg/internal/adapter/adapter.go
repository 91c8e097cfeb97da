// Package adapter is what the adapters share: they prepare for the rules in force once, borrow the
// memory for a request's attributes, and wait where the rules let callers wait.
package adapter

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
)

// UserName is the attribute that an adapter's option User provides.
const UserName = "user"

// defaultAcquire is how long a request waits for permits by default: many times as long as a grant
// takes, and too short to be noticed.
const defaultAcquire = 20 * time.Millisecond

// Prepared holds what an adapter prepares for the rules in force, a *T. Its methods are safe for
// concurrent use.
type Prepared[T any] struct {
	rules   func() *rules.Set
	prepare func(*rules.Set) *T
	mu      sync.Mutex // held to prepare
	current atomic.Pointer[prepared[T]]
}

type prepared[T any] struct {
	set   *rules.Set
	value *T
}

// Prepare prepares for the rules in force, as rules returns them, and later for each further set.
func Prepare[T any](rules func() *rules.Set, prepare func(*rules.Set) *T) *Prepared[T] {
	p := &Prepared[T]{rules: rules, prepare: prepare}
	set := rules()
	p.current.Store(&prepared[T]{set, prepare(set)})
	return p
}

// Get returns what is prepared for the rules in force. One goroutine prepares, the others wait:
// 10,000 rules take some milliseconds.
func (p *Prepared[T]) Get() *T {
	if now := p.current.Load(); now.set == p.rules() {
		return now.value
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now, set := p.current.Load(), p.rules()
	if now.set != set {
		now = &prepared[T]{set, p.prepare(set)}
		p.current.Store(now)
	}
	return now.value
}

var attributes = sync.Pool{New: func() any { return new(identity.Attributes) }}

// Borrow returns room for the attributes of one request, with none in it. Give it to Return when
// the request has been decided.
func Borrow() *identity.Attributes { return attributes.Get().(*identity.Attributes) }

// Return keeps the memory for another request, and nothing of this one.
func Return(attrs *identity.Attributes) {
	clear(*attrs)
	*attrs = (*attrs)[:0]
	attributes.Put(attrs)
}

// Checker is the part of a [check.Checker] that Decide needs.
type Checker interface {
	Check(attrs identity.Attributes, cost int64) check.Decision
	Wait(ctx context.Context, r check.Request) (check.Result, error)
}

// Waiting says what requests may wait for under a set of rules.
type Waiting struct {
	turns   bool // some rule queues callers
	permits bool // some rule is enforced strictly
}

// WaitingUnder returns it for a set.
func WaitingUnder(set *rules.Set) (w Waiting) {
	for _, r := range set.Rules() {
		w.turns = w.turns || r.OnLimit.Queue
		w.permits = w.permits || r.Enforcement == rules.Strict
	}
	return w
}

// Any reports whether a decision may take time.
func (w Waiting) Any() bool { return w.turns || w.permits }

// Decide decides about a hit of cost 1. It waits where the rules let callers wait: for a turn as
// long as ctx lasts, for permits no longer than acquire (by default 20 ms), and not at all if
// acquire is negative. When ctx ends, the decision is a denial.
func (w Waiting) Decide(
	ctx context.Context, c Checker, attrs identity.Attributes, acquire time.Duration,
) check.Decision {
	switch {
	case !w.Any():
		return c.Check(attrs, 1)
	case !w.permits:
		return wait(ctx, c, attrs, check.Reserve)
	}
	acquire = cmp.Or(acquire, defaultAcquire)
	d := waitForPermits(ctx, c, attrs, acquire)
	if d.Allowed || !d.Queue {
		return d
	}
	// Waiting for a turn is waiting for permits, too, which may never come.
	ctx, cancel := context.WithTimeout(ctx, d.MaxWait+max(acquire, 0))
	defer cancel()
	return wait(ctx, c, attrs, check.Reserve)
}

func waitForPermits(
	ctx context.Context, c Checker, attrs identity.Attributes, acquire time.Duration,
) check.Decision {
	if acquire < 0 {
		return c.Check(attrs, 1)
	}
	ctx, cancel := context.WithTimeout(ctx, acquire)
	defer cancel()
	return wait(ctx, c, attrs, check.Charge)
}

// wait waits for a permit (Charge) or for a turn (Reserve). An error means that ctx has ended; the
// decision is a denial then.
func wait(
	ctx context.Context, c Checker, attrs identity.Attributes, mode check.Mode,
) check.Decision {
	r, _ := c.Wait(ctx, check.Request{Attributes: attrs, Mode: mode})
	return r.Decision
}
