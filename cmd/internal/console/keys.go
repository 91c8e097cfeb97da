package console

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/offpath-io/offpath/internal/status"
	"github.com/offpath-io/offpath/pkg/aggregate"
)

// lookTimeout is how long the store may take for all that one question is about.
const lookTimeout = 4 * time.Second

// mostLooked is how many rules one question asks about.
const mostLooked = 50

// ErrRule is for a rule that nobody knows.
var ErrRule = errors.New("there is no such rule")

// KeyView is what is known of a key under one rule.
type KeyView struct {
	Rule status.Rule `json:"rule"`
	Key  status.Text `json:"key"`
	// Count is how many hits weigh in the window, or have not drained, of those that checkers have
	// reported; Limit how many there is room for at once; Remaining how many more would fit.
	Count     float64 `json:"count"`
	Limit     int64   `json:"limit"`
	Remaining int64   `json:"remaining"`
	// RetryAfter is in how many milliseconds one more would fit, FreeAfter in how many all of it
	// has left the window.
	RetryAfter int64 `json:"retry_after_ms"`
	FreeAfter  int64 `json:"free_after_ms"`
	// Denied hits in the window, as far as checkers have reported them.
	Denied int64 `json:"denied"`
	// Block is the key's, if there is one.
	Block *BlockView `json:"block,omitempty"`
}

// mostUnused is how many rules an answer has if the key is unused under all of them.
const mostUnused = 5

// Look looks a key up under a rule; "" stands for all rules, of which those are returned that know
// the key, or, if none does, the first few.
func (c *Console) Look(ctx context.Context, rule, key string) ([]KeyView, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	known := c.known()
	if rule != "" {
		r, ok := known[rule]
		if !ok {
			return nil, unknown(rule, known)
		}
		v, err := c.look(ctx, r, key)
		return []KeyView{v}, err
	}
	var all []KeyView
	for i, name := range c.bucketFirst(sortedNames(known)) {
		if i == mostLooked {
			break
		}
		v, err := c.look(ctx, known[name], key)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: nobody has told of any yet", ErrRule)
	}
	used := slices.DeleteFunc(slices.Clone(all), func(v KeyView) bool { return v.Count == 0 && v.Denied == 0 && v.Block == nil })
	if len(used) == 0 {
		used = all[:min(len(all), mostUnused)]
	}
	return used, nil
}

// bucketFirst puts the names of the bucket's rules before others, which statuses can make up.
func (c *Console) bucketFirst(names []string) []string {
	ours := c.inBucket()
	rank := func(name string) int {
		if _, ok := ours[name]; ok {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(names, func(x, y string) int { return rank(x) - rank(y) })
	return names
}

func unknown(rule string, known map[string]counter) error {
	names := sortedNames(known)
	switch {
	case len(names) == 0:
		return fmt.Errorf("%w: %.128q; nobody has told of any yet", ErrRule, rule)
	case len(names) > 10:
		names = append(names[:10], "…")
	}
	return fmt.Errorf("%w: %.128q; there is %s", ErrRule, rule, strings.Join(names, ", "))
}

func (c *Console) look(ctx context.Context, r counter, key string) (KeyView, error) {
	s, err := c.o.Worker.Lookup(ctx, r.Rule, key)
	if err != nil {
		return KeyView{}, err
	}
	return c.keyView(r, key, s), nil
}

func (c *Console) keyView(r counter, key string, s aggregate.KeyState) KeyView {
	v := KeyView{
		Rule: r.wire(), Key: status.Text(key), Count: s.Count, Limit: s.Limit, Remaining: s.Remaining,
		RetryAfter: milliseconds(s.RetryAfter), FreeAfter: milliseconds(s.FreeAfter), Denied: s.Denied,
	}
	if e, ok := c.block(r.blocked(), key); ok {
		v.Block = new(blockView(e, c.o.Worker.Now()))
	}
	return v
}

// milliseconds rounds up: what frees in a moment is not free yet.
func milliseconds(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }

// Reset gives all hits of a key back, and returns what is there afterwards.
func (c *Console) Reset(ctx context.Context, who Who, rule, key string) (KeyView, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	known := c.known()
	r, ok := known[rule]
	if !ok {
		return KeyView{}, unknown(rule, known)
	}
	var before, after aggregate.KeyState
	err := c.operator.note(ctx, Record{Who: who, What: "reset", Rule: rule, Key: status.Text(key)}, func() (detail string, err error) {
		before, after, err = c.o.Worker.Reset(ctx, r.Rule, key)
		return fmt.Sprintf("count %.6g of %d, then %.6g", before.Count, before.Limit, after.Count), err
	})
	return c.keyView(r, key, after), err
}
