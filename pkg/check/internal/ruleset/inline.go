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

	// mostLimits is how many limits of one name are remembered at a time. It only bounds memory:
	// when there are more, all are forgotten, and made again when requests bring them.
	mostLimits = 1024
	// inlineIDs is the least Order of inline limits' limiters, above that of all limiters of rules.
	inlineIDs = 1 << 63
	// inlineStamps is how many limits of a name get a stamp: the number of stamps, so that none is
	// used twice. An allowance may outlive any number of other limits, so with a stamp used twice
	// hits could pass by another limit.
	inlineStamps = uint64(counter.StampMask / counter.OneStamp)
)

// ErrInlineLimits is the error for more than MaxInlineLimits names.
var ErrInlineLimits = errors.New("check: too many names of inline limits")

// InlineLimits are the limiters of inline limits. They belong to no ruleset, and changes of rules
// do not affect them.
type InlineLimits struct {
	mu sync.Mutex // held while a name is added
	at atomic.Pointer[map[string]*inline]
}

// inline is the limiter of one name.
type inline struct {
	limiter *Limiter
	rule    *rules.Rule

	mu     sync.RWMutex
	limits map[int64]*Limits // by limit
	made   uint64            // how many limits got a stamp
}

// Limiter returns the limiter of an inline limit's name, and its limits. It finds a known name
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

// add adds a name, or returns an error if the inline limit is invalid.
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

// rule returns the rule for a name; its limit is that of the first request.
func (l *InlineLimit) rule() (*rules.Rule, error) {
	switch {
	case l.Name == "" || len(l.Name) > MaxInlineName || !utf8.ValidString(l.Name) || strings.ContainsFunc(l.Name, unicode.IsControl):
		return nil, fmt.Errorf("check: inline limit %.128q: want a name of 1 to %d bytes without control characters", l.Name, MaxInlineName)
	case l.Window.Kind != window.Sliding:
		return nil, fmt.Errorf("check: inline limit %q: want a sliding or fixed window", l.Name)
	}
	// NewSet validates the other fields, and fills in defaults.
	set, err := rules.NewSet(rules.Rule{Name: "inline", Limit: l.Limit, Window: l.Window})
	if err != nil {
		return nil, fmt.Errorf("check: inline limit %q: %w", l.Name, err)
	}
	rule := *set.Rules()[0]
	rule.Name = inlinePrefix + l.Name
	return &rule, nil
}

// within returns the limits for a limit of the name. Each has its own stamp, so that allowances are
// spent only under the limit that they were computed from. When there are no more stamps, limits
// leave no allowances.
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
	// The reporter, which serves all limits of the name, uses the lowest one: reports that come
	// earlier than needed do no harm.
	if least == nil || limit < least.Limit {
		i.limiter.SetLimits(t)
	}
	return t
}

// Find returns the limiter with a counter's name; nil if there is none.
func (i *InlineLimits) Find(counter string) *Limiter {
	if name, ok := strings.CutPrefix(counter, inlinePrefix); ok {
		if known := i.named(name); known != nil {
			return known.limiter
		}
	}
	return nil
}

// Each calls yield with all limiters, until yield returns false.
func (i *InlineLimits) Each(yield func(*Limiter) bool) {
	if all := i.at.Load(); all != nil {
		for _, known := range *all {
			if !yield(known.limiter) {
				return
			}
		}
	}
}
