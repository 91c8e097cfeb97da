package check

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"unicode"
	"unicode/utf8"

	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// Own is a limit that a request brings along, in place of a rule's. Hits of one name and key share a count over the whole
// fleet, whatever their limits: who comes with a higher one finds room at once.
type Own struct {
	// Name says what is counted: 1 to MaxOwnName bytes of UTF-8 without control characters. Metrics and the ledger have it
	// after "own ", which no rule's name begins with.
	Name string
	// Window is over how long Limit holds. All hits of a name need the same one. It must be a sliding or fixed window.
	Window window.Shape
	// Limit is 1 to window.MaxCount.
	Limit int64
}

const (
	// MaxOwnName is the most bytes of an Own's name.
	MaxOwnName = 100
	// MaxOwn is how many names of Own a checker counts under; none is ever given up.
	MaxOwn = 1024

	ownPrefix = "own "
	// mostOwnLimits is how many limits of one name are remembered at a time. It bounds memory alone: when there are
	// more, all are forgotten and made anew as they come.
	mostOwnLimits = 1024
	// ownIDs are above those of all limiters of rules.
	ownIDs = 1 << 63
	// ownStamps is how many limits of a name have a stamp: all that there are, each once. An allowance may outlive any
	// number of limits that others come with, so a stamp that came again would let hits pass by another's limit.
	ownStamps = uint64(stampMask / oneStamp)
)

// ErrManyOwn is the error of CheckOwn and PeekOwn for one name more than MaxOwn.
var ErrManyOwn = errors.New("check: too many names of own limits")

// CheckOwn is Check for a limit that the request brings along, against key: what rules say does not matter, and a change of
// rules changes nothing. It does not block; the first hit of a name, and of a limit under it, takes some µs more. The error
// is ErrManyOwn, or that Own makes no sense; nothing is decided and charged then.
func (c *Checker) CheckOwn(o Own, key string, cost int64) (Decision, error) {
	return c.CheckOwnAt(ownTime(), o, key, cost)
}

// CheckOwnAt is CheckOwn at a given time of this checker's own clock, in Unix nanoseconds.
func (c *Checker) CheckOwnAt(now int64, o Own, key string, cost int64) (d Decision, err error) {
	l, t, err := c.own.limiter(c, o)
	if err != nil {
		return Decision{}, err
	}
	l.checkBy(&d, t, c.clock.Fleet(now), key, cost)
	return d, nil
}

// PeekOwn is what CheckOwn would decide now, without charging anything. The errors are the same.
func (c *Checker) PeekOwn(o Own, key string, cost int64) (Decision, error) {
	return c.PeekOwnAt(ownTime(), o, key, cost)
}

// PeekOwnAt is PeekOwn at a given time of this checker's own clock, in Unix nanoseconds.
func (c *Checker) PeekOwnAt(now int64, o Own, key string, cost int64) (Decision, error) {
	l, t, err := c.own.limiter(c, o)
	if err != nil {
		return Decision{}, err
	}
	return l.peekBy(t, c.clock.Fleet(now), nil, key, cost), nil
}

// owns are the limiters of Own, which belong to no program: rules come and go without them.
type owns struct {
	mu sync.Mutex // of those who add one
	at atomic.Pointer[map[string]*own]
}

// own is the limiter of one name.
type own struct {
	limiter *Limiter
	rule    *rules.Rule

	mu    sync.RWMutex
	terms map[int64]*terms // by limit
	made  uint64           // how many have got a stamp
}

// limiter returns the limiter of a name, and the terms of a limit. A name that is known is found without a lock.
func (o *owns) limiter(c *Checker, of Own) (*Limiter, *terms, error) {
	known := o.named(of.Name)
	if known == nil || known.rule.Window != of.Window || of.Limit < 1 || of.Limit > window.MaxCount {
		var err error
		if known, err = o.add(c, of); err != nil {
			return nil, nil, err
		}
	}
	return known.limiter, known.within(of.Limit), nil
}

func (o *owns) named(name string) *own {
	if all := o.at.Load(); all != nil {
		return (*all)[name]
	}
	return nil
}

// add makes a name known, or says what is wrong.
func (o *owns) add(c *Checker, of Own) (*own, error) {
	rule, err := of.rule()
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	known := o.named(of.Name)
	switch all := o.at.Load(); {
	case known != nil && known.rule.Window != rule.Window:
		return nil, fmt.Errorf("check: own limit %q: its window is %v, of earlier hits %v", of.Name, rule.Window.Length, known.rule.Window.Length)
	case known != nil: // another goroutine was faster
		return known, nil
	case all != nil && len(*all) >= MaxOwn:
		return nil, ErrManyOwn
	default:
		next := make(map[string]*own)
		if all != nil {
			next = maps.Clone(*all)
		}
		known = &own{rule: rule, terms: make(map[int64]*terms)}
		known.limiter = newLimiter(c, ownIDs+uint64(len(next)), rule)
		known.within(of.Limit)
		next[of.Name] = known
		o.at.Store(&next)
		return known, nil
	}
}

// rule is the one that stands for a name; its limit is nobody's in particular.
func (o Own) rule() (*rules.Rule, error) {
	switch {
	case o.Name == "" || len(o.Name) > MaxOwnName || !utf8.ValidString(o.Name) || strings.ContainsFunc(o.Name, unicode.IsControl):
		return nil, fmt.Errorf("check: own limit %.128q: want a name of 1 to %d bytes without control characters", o.Name, MaxOwnName)
	case o.Window.Kind != window.Sliding:
		return nil, fmt.Errorf("check: own limit %q: want a sliding or fixed window", o.Name)
	}
	// A set of its own says what is wrong with the rest, and fills in what is left out.
	set, err := rules.NewSet(rules.Rule{Name: "own", Limit: o.Limit, Window: o.Window})
	if err != nil {
		return nil, fmt.Errorf("check: own limit %q: %w", o.Name, err)
	}
	rule := *set.Rules()[0]
	rule.Name = ownPrefix + o.Name
	return &rule, nil
}

// within returns the terms of a limit. Each limit's have a stamp of their own, so that allowances are spent only
// under the limit that they were reckoned from; when there are no more stamps, none are left behind.
func (o *own) within(limit int64) *terms {
	o.mu.RLock()
	t := o.terms[limit]
	o.mu.RUnlock()
	if t != nil {
		return t
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if t := o.terms[limit]; t != nil {
		return t
	}
	least := o.limiter.terms.Load()
	if len(o.terms) >= mostOwnLimits {
		clear(o.terms)
		least = nil
	}
	rule := *o.rule
	rule.Limit = limit
	t = newTerms(&rule, 0)
	if t.restless = o.made >= ownStamps; !t.restless {
		o.made++
		t.stamp = o.made * oneStamp
	}
	o.terms[limit] = t
	// What is done behind, without knowing who asks, goes by the lowest limit: reports that come sooner than they
	// need do no harm.
	if least == nil || limit < least.limit {
		o.limiter.terms.Store(t)
	}
	return t
}

// isOwn says whether a counter is of limits that requests bring along.
func isOwn(counter string) bool { return strings.HasPrefix(counter, ownPrefix) }

// find returns the limiter of a counter's name, or nil.
func (o *owns) find(counter string) *Limiter {
	if name, ok := strings.CutPrefix(counter, ownPrefix); ok {
		if known := o.named(name); known != nil {
			return known.limiter
		}
	}
	return nil
}

// each calls yield with all limiters until that returns false.
func (o *owns) each(yield func(*Limiter) bool) {
	if all := o.at.Load(); all != nil {
		for _, known := range *all {
			if !yield(known.limiter) {
				return
			}
		}
	}
}
