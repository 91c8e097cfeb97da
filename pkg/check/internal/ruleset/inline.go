package ruleset

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"unicode"
	"unicode/utf8"

	"github.com/offpath-io/offpath/pkg/check/internal/counter"
	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// InlineLimit is check.InlineLimit, which it converts to.
type InlineLimit struct {
	Name   string
	Window window.Shape
	Limit  int64
}

const (
	// MaxInlineName is check.MaxInlineName, and MaxInlineLimits check.MaxInlineLimits.
	MaxInlineName   = 100
	MaxInlineLimits = 1024

	// mostLimits is how many limits of one name are remembered at a time. It bounds memory alone:
	// when there are more, all are forgotten and made anew as they come.
	mostLimits = 1024
	// inlineIDs are above those of all limiters of rules.
	inlineIDs = 1 << 63
	// inlineStamps is how many limits of a name have a stamp: all that there are, each once. An
	// allowance may outlive any number of limits that others come with, so a stamp that came again
	// would let hits pass by another's limit.
	inlineStamps = uint64(counter.StampMask / counter.OneStamp)
)

// ErrInlineLimits is the error of one name more than MaxInlineLimits.
var ErrInlineLimits = errors.New("check: too many names of inline limits")

// InlineLimits are the limiters of inline limits. They belong to no ruleset: rules come and go
// without them.
type InlineLimits struct {
	mu sync.Mutex // held while one is added
	at atomic.Pointer[map[string]*inline]
}

// inline is the limiter of one name.
type inline struct {
	limiter *Limiter
	rule    *rules.Rule

	mu     sync.RWMutex
	limits map[int64]*Limits // by limit
	made   uint64            // how many have got a stamp
}

// Limiter returns the limiter of a name, and the limits of a limit. A name that is known is found
// without a lock.
func (i *InlineLimits) Limiter(h *counter.Host, of *InlineLimit) (*Limiter, *Limits, error) {
	known, shape := i.named(of.Name), of.Window
	if shape.Buckets == 0 {
		shape.Buckets = window.DefaultBuckets(shape.Kind, shape.Length)
	}
	if known == nil || known.rule.Window != shape || of.Limit < 1 || of.Limit > window.MaxCount {
		var err error
		if known, err = i.add(h, of); err != nil {
			return nil, nil, err
		}
	}
	return known.limiter, known.within(of.Limit), nil
}

func (i *InlineLimits) named(name string) *inline {
	if all := i.at.Load(); all != nil {
		return (*all)[name]
	}
	return nil
}

// add makes a name known, or says what is wrong.
func (i *InlineLimits) add(h *counter.Host, of *InlineLimit) (*inline, error) {
	rule, err := of.rule()
	if err != nil {
		return nil, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	known := i.named(of.Name)
	switch all := i.at.Load(); {
	case known != nil && known.rule.Window != rule.Window:
		return nil, fmt.Errorf("check: inline limit %q: its window is %v, of earlier hits %v", of.Name, rule.Window.Length, known.rule.Window.Length)
	case known != nil: // another goroutine was faster
		return known, nil
	case all != nil && len(*all) >= MaxInlineLimits:
		return nil, ErrInlineLimits
	default:
		next := make(map[string]*inline)
		if all != nil {
			next = maps.Clone(*all)
		}
		known = &inline{rule: rule, limits: make(map[int64]*Limits)}
		known.limiter = new(Limiter)
		known.limiter.Init(h, inlineIDs+uint64(len(next)), rule)
		known.within(of.Limit)
		next[of.Name] = known
		i.at.Store(&next)
		return known, nil
	}
}

// rule is the one that stands for a name; its limit is nobody's in particular.
func (l *InlineLimit) rule() (*rules.Rule, error) {
	switch {
	case l.Name == "" || len(l.Name) > MaxInlineName || !utf8.ValidString(l.Name) || strings.ContainsFunc(l.Name, unicode.IsControl):
		return nil, fmt.Errorf("check: inline limit %.128q: want a name of 1 to %d bytes without control characters", l.Name, MaxInlineName)
	case l.Window.Kind != window.Sliding:
		return nil, fmt.Errorf("check: inline limit %q: want a sliding or fixed window", l.Name)
	}
	// A set of its own says what is wrong with the rest, and fills in what is left out.
	set, err := rules.NewSet(rules.Rule{Name: "inline", Limit: l.Limit, Window: l.Window})
	if err != nil {
		return nil, fmt.Errorf("check: inline limit %q: %w", l.Name, err)
	}
	rule := *set.Rules()[0]
	rule.Name = inlinePrefix + l.Name
	return &rule, nil
}

// within returns the limits of a limit. Each limit's have a stamp of their own, so that allowances
// are spent only under the limit that they were reckoned from; when there are no more stamps, none
// are left behind.
func (i *inline) within(limit int64) *Limits {
	i.mu.RLock()
	t := i.limits[limit]
	i.mu.RUnlock()
	if t != nil {
		return t
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if t := i.limits[limit]; t != nil {
		return t
	}
	least := i.limiter.Current.Load()
	if len(i.limits) >= mostLimits {
		clear(i.limits)
		least = nil
	}
	rule := *i.rule
	rule.Limit = limit
	t = newLimits(&rule, 0)
	if t.Restless = i.made >= inlineStamps; !t.Restless {
		i.made++
		t.Stamp = i.made * counter.OneStamp
	}
	i.limits[limit] = t
	// What is done behind, without knowing who asks, goes by the lowest limit: reports that come
	// sooner than they need do no harm.
	if least == nil || limit < least.Limit {
		i.limiter.SetLimits(t)
	}
	return t
}

// Find returns the limiter of a counter's name, or nil.
func (i *InlineLimits) Find(counter string) *Limiter {
	if name, ok := strings.CutPrefix(counter, inlinePrefix); ok {
		if known := i.named(name); known != nil {
			return known.limiter
		}
	}
	return nil
}

// Each calls yield with all limiters until that returns false.
func (i *InlineLimits) Each(yield func(*Limiter) bool) {
	if all := i.at.Load(); all != nil {
		for _, known := range *all {
			if !yield(known.limiter) {
				return
			}
		}
	}
}
