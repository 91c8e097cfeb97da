package check

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/check/internal/evaluation"
	"github.com/offpath-io/offpath/pkg/check/internal/ruleset"
	"github.com/offpath-io/offpath/pkg/check/internal/turns"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
)

// Callers that wait for one key under a window stand in line, in the order in which they came to
// this checker. Only the first one asks again. It keeps its place until its hit has been decided;
// then the next one is told. Under token and leaky buckets each caller gets its turn when it comes,
// and a line only counts the callers that wait.

// caller is one call of Wait that waits for its turn. It stands in one line at a time, so that
// callers cannot wait for each other in a circle.
type caller struct {
	checker *Checker
	begun   time.Time
	number  uint64                          // grows from one to the next
	place   *turns.Place[evaluation.LineID] // nil if it is in no line
}

func (c *Checker) newCaller() *caller {
	return &caller{checker: c, begun: time.Now(), number: c.waits.Add(1)}
}

// enter joins a line, before callers that came later, unless too many wait. A caller that is in the
// line stays there.
func (w *caller) enter(at evaluation.LineID, cost int64) bool {
	if w.place != nil && w.place.ID == at {
		return true
	}
	w.leave()
	r := at.Limiter.Current.Load().Rule
	most := r.OnLimit.MaxDepth
	if most == 0 {
		most = rules.DefaultDepth
	}
	if r.Algorithm == rules.LeakyBucket { // a caller with a place in the queue waits
		most = w.checker.o.MaxWaiting
	}
	w.place = w.checker.lines.Enter(at, w.number, max(cost, 1), most, w.checker.waiting.Enter)
	return w.place != nil
}

// leave gives up the place in line, if there is one.
func (w *caller) leave() {
	if w.place != nil {
		w.checker.waiting.Leave()
		w.checker.lines.Leave(w.place)
		w.place = nil
	}
}

// pause waits. The first caller in line waits for wait, or until the rules change. Others wait
// until they are the first; if they have waited for most by then, and most is not 0, the error is
// errLate.
func (w *caller) pause(ctx context.Context, wait, most time.Duration, swap <-chan struct{}) error {
	if w.place.IsFirst() {
		return w.checker.pause(ctx, wait, swap)
	}
	if most == 0 {
		most = Never
	}
	err := w.checker.pause(ctx, most-time.Since(w.begun), w.place.First())
	if w.place.IsFirst() {
		return err
	}
	return cmp.Or(err, errLate)
}

// errLate ends a wait that would be too long.
var errLate = errors.New("check: the turn has not come in time")

// denyUnasked counts the denial of a hit that others were in line before.
func denyUnasked(l *ruleset.Limiter, key string) {
	l.Group.Tallies[0].Denied.Add(1)
	l.Group.NoteDenied(string(l.Group.Host.AppendText(nil, key)), 1)
}

// behindOthers returns the denial of a hit in whose line others wait. The hit may pass after all of
// theirs: when the hits of all fit, or as many as can fit at once.
func (c *Checker) behindOthers(at evaluation.LineID, attrs identity.Attributes, cost int64) Decision {
	l := at.Limiter
	t := l.Current.Load()
	cost = max(cost, 1)
	cost = max(cost, min(c.lines.Cost(at)+cost, at.Capacity))
	d := evaluation.Peek(&c.host, evaluation.Decider{Limiter: l, Limits: t}, l.Group.Now(), attrs, at.Key, cost)
	if d.Allowed { // the first of them is about to pass
		d.Allowed = false
		d.FillDenial(t.Rule)
		d.RetryAfter = time.Duration(counter.RefusalTime)
	}
	return Decision(d)
}

// pause waits for this time, or until the rules change.
func (c *Checker) pause(ctx context.Context, wait time.Duration, swap <-chan struct{}) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-swap:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.ended:
		return evaluation.ErrEnded
	}
}
