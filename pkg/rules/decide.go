package rules

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/window"
)

// errCost is for an attribute that is no cost.
var errCost = fmt.Errorf("cost: want a whole number from 1 to %d", window.MaxCount)

// Listed reports whether the request is on one of the rule's lists: allowed, then the rule does not
// limit it; denied, then it always denies it. They are never both true. It is for rules of a Set,
// and does not allocate unless an attribute that should be an address is not one.
func (r *Rule) Listed(attrs identity.Attributes) (allowed, denied bool) {
	if onAny(r.Deny, attrs) {
		return false, true
	}
	return onAny(r.Allow, attrs), false
}

func onAny(lists []List, attrs identity.Attributes) bool {
	for i := range lists {
		if value, ok := attrs.Get(lists[i].Attribute); ok && lists[i].has(value) {
			return true
		}
	}
	return false
}

// has searches the sorted list.
func (l *List) has(value string) bool {
	if identity.IsHost(l.Attribute) {
		value = identity.FoldHost(value)
	}
	if _, ok := slices.BinarySearch(l.Values, value); ok {
		return true
	}
	if len(l.Prefixes) == 0 {
		return false
	}
	of, ok := identity.ParseGroup(value)
	if !ok {
		addr, ok := identity.ParseAddr(value) // it may have a port
		if !ok {
			return false
		}
		of = netip.PrefixFrom(addr, addr.BitLen())
	}
	// The one that begins last before the address, or at it, is the only one that can hold it.
	after := func(p netip.Prefix, addr netip.Addr) int {
		if p.Addr().Compare(addr) <= 0 {
			return -1
		}
		return 1
	}
	i, _ := slices.BinarySearchFunc(l.Prefixes, of.Addr(), after)
	return i > 0 && covers(l.Prefixes[i-1], of)
}

// Override is the place in Overrides of the first one that matches the attributes and is not over
// at now, or -1. It does not allocate. In a Set, what it takes hardly depends on how many there
// are.
func (r *Rule) Override(attrs identity.Attributes, now time.Time) int {
	if r.in != nil && r.in.rule == r && r.in.index != nil {
		find := search{attrs: attrs, now: now, first: len(r.Overrides)}
		find.through(r.in.index)
		if find.first < len(r.Overrides) {
			return find.first
		}
		return -1
	}
	for i := range r.Overrides {
		if o := &r.Overrides[i]; match(o.Match, attrs) && o.holds(now) {
			return i
		}
	}
	return -1
}

// indexOverrides makes an index of the overrides, if it is worth it.
func (r *Rule) indexOverrides() *index {
	if len(r.Overrides) <= fewest {
		return nil
	}
	entries := make([]entry, len(r.Overrides))
	for i := range r.Overrides {
		o := &r.Overrides[i]
		entries[i] = entry{left: slices.Clone(o.Match), override: o, place: i}
	}
	return newIndex(entries)
}

// holds reports whether the override is not over yet.
func (o *Override) holds(now time.Time) bool { return o.Until.IsZero() || now.Before(o.Until) }

// Terms are the limit of a caller.
type Terms struct {
	Limit  int64
	Window window.Shape
	Burst  int64 // of a TokenBucket or LeakyBucket, else 0
}

// Terms are those of an override by its place in Overrides, or the rule's own for -1 and for
// overrides without a limit. It is for rules of a Set. A limit that a factor makes is rounded to
// the nearest whole number.
func (r *Rule) Terms(override int) Terms {
	if override < 0 || !r.Overrides[override].hasCounter() {
		return Terms{r.Limit, r.Window, r.Burst}
	}
	return r.termsOf(&r.Overrides[override])
}

// termsOf are those of an override with a limit.
func (r *Rule) termsOf(o *Override) Terms {
	if o.Factor != 0 {
		return Terms{times(r.Limit, o.Factor), r.Window, times(r.Burst, o.Factor)}
	}
	terms := Terms{o.Limit, o.Window, o.Burst}
	if terms.Window == (window.Shape{}) {
		terms.Window = r.Window
	}
	return terms
}

// times is the count times the factor, or beyond window.MaxCount if it is that much.
func times(count int64, factor float64) int64 {
	product := math.Round(float64(count) * factor)
	if product > float64(window.MaxCount) {
		return window.MaxCount + 1
	}
	return int64(product)
}

// Share is the part of the limit that the request's class may use up: 1 without Priority. It is for
// rules of a Set, and does not allocate.
func (r *Rule) Share(attrs identity.Attributes) float64 {
	if r.Priority.By == "" {
		return 1
	}
	if class, ok := attrs.Get(r.Priority.By); ok {
		if share, ok := r.Priority.Shares[class]; ok {
			return share
		}
	}
	return r.Priority.Shares[DefaultClass]
}

// CostOf is the cost of a hit: what the attribute Cost says, or cost if there is none. The error is
// not nil if the attribute is no whole number from 1 to window.MaxCount. It does not allocate.
func (r *Rule) CostOf(attrs identity.Attributes, cost int64) (int64, error) {
	if r.Cost == "" {
		return cost, nil
	}
	text, ok := attrs.Get(r.Cost)
	if !ok {
		return cost, nil
	}
	if text == "" || len(text) > 16 {
		return 0, errCost
	}
	var n int64
	for i := range len(text) {
		digit := text[i] - '0'
		if digit > 9 {
			return 0, errCost
		}
		n = 10*n + int64(digit)
	}
	if n < 1 || n > window.MaxCount {
		return 0, errCost
	}
	return n, nil
}
