package check

import (
	"context"
	"sync"
	"time"
)

// Wait is Check, but a hit that does not fit waits until it does, and then passes: under a token or
// leaky bucket in its turn, see [Limiter.Reserve]; under other algorithms who waits first at this
// checker for the key passes first: the first one asks again when RetryAfter is over, or the rules
// change, and under strict enforcement by [Limiter.Acquire]. It denies at once what would have to
// wait for longer than the rule's OnLimit.MaxWait, if that is given, or than ctx lasts, or what
// never fits; and if OnLimit.MaxDepth callers (by default rules.DefaultDepth) of the key wait
// already, or Options.MaxWaiting in all. If ctx ends first the error is ctx's, and the hit is given
// back if that can be (see [Reservation.Cancel]); when Run ends, it is denied.
func (l *Limiter) Wait(ctx context.Context, key string, cost int64) (Decision, error) {
	w := l.checker.newCaller()
	defer w.leave()
	for {
		swap := l.checker.swaps.next() // first, so that none goes unnoticed
		r, d, err := &Reservation{}, Decision{}, error(nil)
		at := l.lineAlone(key, cost)
		others := w.turn == nil && !l.shape.Drains() && at.waiting() > 0
		if others {
			d = at.behindOthers(nil)
			others = d.RetryAfter != Never // or it has nothing to wait for
		}
		if !others {
			r, d, err = l.attempt(ctx, key, cost)
		}
		wait := r.Delay
		if !d.Allowed {
			wait = d.RetryAfter
		}
		if err != nil || wait == 0 || wait == Never || !d.Allowed && l.shape.Drains() {
			return d, err
		}
		deny := func(err error) (Decision, error) {
			r.Cancel()
			switch {
			case l.countsDenied():
				l.Check(key, cost) // now it counts, and if it would just fit, all the same
			case others:
				l.denyUnasked(key)
			}
			d.Allowed, d.RetryAfter = false, wait
			return d, err
		}
		most := l.Rule().OnLimit.MaxWait
		if most > 0 && time.Since(w.begun)+wait > most || !l.mayWait(ctx, wait) || !w.enter(at) {
			return deny(nil)
		}
		if d.Allowed { // it has its turn, which stays
			err = l.pause(ctx, wait, nil)
		} else {
			err = w.pause(ctx, wait, most, swap)
		}
		switch {
		case err == errEnded || err == errLate:
			return deny(nil)
		case err != nil:
			return deny(err)
		case d.Allowed:
			return d, nil
		}
	}
}

// attempt decides once.
func (l *Limiter) attempt(ctx context.Context, key string, cost int64) (*Reservation, Decision, error) {
	if l.strict != nil {
		d, err := l.Acquire(ctx, key, cost)
		return &Reservation{}, d, err
	}
	if l.countsDenied() { // a hit that waits is not denied yet
		if d := l.Peek(key, cost); !d.Allowed && d.RetryAfter != Never {
			return &Reservation{}, d, nil
		}
	}
	r, d := l.Reserve(key, cost)
	return r, d, nil
}

// countsDenied says whether denied hits count, and callers ask again rather than wait for their turn.
func (l *Limiter) countsDenied() bool {
	c := l.terms.Load().clauses
	return c != nil && c.all && !c.shadow && !l.shape.Drains()
}

// mayWait says whether ctx lasts so long, as far as it says.
func (l *Limiter) mayWait(ctx context.Context, wait time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return !ok || time.Until(deadline) >= wait
}

// pause waits for so long, or until the rules change.
func (l *Limiter) pause(ctx context.Context, wait time.Duration, swap <-chan struct{}) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-swap:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-l.checker.ended:
		return errEnded
	}
}

// swaps tell who waits that the rules have changed.
type swaps struct {
	mu sync.Mutex
	ch chan struct{} // nil if nobody has asked
}

// next is closed at the next change.
func (s *swaps) next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	return s.ch
}

func (s *swaps) tell() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch != nil {
		close(s.ch)
		s.ch = nil
	}
}
