// Package doors is what the doors of Go servers have in common: they prepare for the rules in force, and ask as these say.
package doors

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
)

// Acquire is for how long a request waits for permits if its door is not told otherwise: many times what a grant takes, and
// short enough to go unnoticed.
const Acquire = 20 * time.Millisecond

// Plans are what a door prepares for a set of rules, T, of the set in force. Its methods are safe for concurrent use.
type Plans[T any] struct {
	make    func(*rules.Set) *T
	inForce func() *rules.Set
	making  sync.Mutex
	at      atomic.Pointer[plan[T]]
}

type plan[T any] struct {
	set *rules.Set
	of  *T
}

// NewPlans returns the plans that make makes of the sets that inForce returns. It makes the first one.
func NewPlans[T any](inForce func() *rules.Set, make func(*rules.Set) *T) *Plans[T] {
	p := &Plans[T]{make: make, inForce: inForce}
	set := inForce()
	p.at.Store(&plan[T]{set, make(set)})
	return p
}

// InForce returns the plan for the rules in force. One goroutine makes it, the others wait: 10,000 rules take some
// milliseconds.
func (p *Plans[T]) InForce() *T {
	if at := p.at.Load(); at.set == p.inForce() {
		return at.of
	}
	p.making.Lock()
	defer p.making.Unlock()
	at, set := p.at.Load(), p.inForce()
	if at.set != set {
		at = &plan[T]{set, p.make(set)}
		p.at.Store(at)
	}
	return at.of
}

// Checker is what is asked.
type Checker interface {
	Check(attrs identity.Attributes, cost int64) check.Decision
	Wait(ctx context.Context, r check.Request) (check.Result, error)
}

// Manner is how a set's rules want to be asked.
type Manner struct {
	queue  bool // some rule lets callers wait
	strict bool // some rule needs permits
}

// MannerOf is that of a set.
func MannerOf(set *rules.Set) (m Manner) {
	for _, r := range set.Rules() {
		m.queue = m.queue || r.OnLimit.Queue
		m.strict = m.strict || r.Enforcement == rules.Strict
	}
	return m
}

// Waits says whether to ask may take time.
func (m Manner) Waits() bool { return m.queue || m.strict }

// Ask decides about a hit of cost 1, and waits where the rules say so, for permits no longer than acquire (negative: not at
// all), and never for longer than ctx lasts. An error would say that it has ended, and comes with a denial.
func (m Manner) Ask(ctx context.Context, c Checker, attrs identity.Attributes, acquire time.Duration) check.Decision {
	switch {
	case !m.Waits():
		return c.Check(attrs, 1)
	case !m.strict:
		return waitForTurn(ctx, c, attrs)
	}
	d := askForPermits(ctx, c, attrs, acquire)
	if d.Allowed || !d.Queue {
		return d
	}
	// It waits for permits too, which may never come.
	ctx, cancel := context.WithTimeout(ctx, d.MaxWait+max(acquire, 0))
	defer cancel()
	return waitForTurn(ctx, c, attrs)
}

func waitForTurn(ctx context.Context, c Checker, attrs identity.Attributes) check.Decision {
	r, _ := c.Wait(ctx, check.Request{Attributes: attrs, Mode: check.Reserve})
	return r.Decision
}

func askForPermits(ctx context.Context, c Checker, attrs identity.Attributes, acquire time.Duration) check.Decision {
	if acquire < 0 {
		return c.Check(attrs, 1)
	}
	ctx, cancel := context.WithTimeout(ctx, acquire)
	defer cancel()
	r, _ := c.Wait(ctx, check.Request{Attributes: attrs})
	return r.Decision
}
