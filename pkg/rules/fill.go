package rules

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/window"
)

// open is the limit of a rule that limits no caller.
var open = window.Shape{Length: time.Second, Buckets: 1}

// own makes the rule's slices and maps its own, and empty ones nil.
func (r *Rule) own() {
	r.Match, r.Exclude = ownConditions(r.Match), ownConditions(r.Exclude)
	r.Key, r.Replaces = cloned(r.Key), cloned(r.Replaces)
	r.Overrides, r.Allow, r.Deny = cloned(r.Overrides), cloned(r.Allow), cloned(r.Deny)
	for i := range r.Overrides {
		r.Overrides[i].Match = ownConditions(r.Overrides[i].Match)
	}
	for l := range r.lists() {
		l.Values, l.Prefixes = cloned(l.Values), cloned(l.Prefixes)
		for i := range l.Values {
			if identity.IsHost(l.Attribute) {
				l.Values[i] = identity.FoldHost(l.Values[i])
			}
		}
	}
	if r.Priority.Shares = maps.Clone(r.Priority.Shares); len(r.Priority.Shares) == 0 {
		r.Priority.Shares = nil
	}
}

// lists yields those of Allow and Deny.
func (r *Rule) lists() iter.Seq[*List] {
	return func(yield func(*List) bool) {
		for _, lists := range [][]List{r.Allow, r.Deny} {
			for i := range lists {
				if !yield(&lists[i]) {
					return
				}
			}
		}
	}
}

// ownConditions clones conditions, and brings hosts into the form that requests' hosts are compared
// in.
func ownConditions(match []Condition) []Condition {
	match = cloned(match)
	for i := range match {
		c := &match[i]
		if !identity.IsHost(c.Name) {
			continue
		}
		if c.Op == Glob {
			c.Value = strings.ToLower(c.Value)
			continue
		}
		dot := c.Op == Prefix && strings.HasSuffix(c.Value, ".")
		if c.Value = identity.FoldHost(c.Value); dot { // "api.*" is not "api*"
			c.Value += "."
		}
	}
	return match
}

func cloned[T any](list []T) []T {
	if len(list) == 0 {
		return nil
	}
	return slices.Clone(list)
}

// fill gives the fields that are zero their defaults. It changes nothing that validate would
// refuse.
func (r *Rule) fill() {
	if r.Unlimited && r.Limit == 0 && r.Window == (window.Shape{}) {
		r.Limit, r.Window = window.MaxCount, open
	}
	switch {
	case r.Algorithm == FixedWindow:
		r.Window.Fixed = true
	case r.Algorithm != SlidingWindow && r.Window.Kind == window.Sliding && !r.Window.Fixed:
		r.Window.Kind = r.Algorithm.kind()
	case r.Algorithm == SlidingWindow && r.Window.Fixed:
		r.Algorithm = FixedWindow
	case r.Algorithm == SlidingWindow && r.Window.Kind != window.Sliding:
		r.Algorithm = algorithmOf(r.Window.Kind)
	}
	if r.Window.Buckets == 0 {
		r.Window.Buckets = window.DefaultBuckets(r.Window.Kind, r.Window.Length)
	}
	if r.Burst == 0 && r.hasBurst() {
		r.Burst = r.Limit
	}
	if r.OnOutage == DefaultOnOutage {
		r.OnOutage = Share
		if r.Enforcement == Strict {
			r.OnOutage = Closed
		}
	}
	if r.Status == 0 {
		r.Status = 429
	}
	if r.OnLimit.Queue && r.OnLimit.MaxDepth == 0 && r.Algorithm != LeakyBucket {
		r.OnLimit.MaxDepth = DefaultDepth
	}
	for i := range r.Overrides {
		r.Overrides[i].fill(r)
	}
}

// kinds has the kind of a window's shape for each algorithm; FixedWindow is a field of its own
// there.
var kinds = [...]window.Kind{
	SlidingLog: window.Log, TokenBucket: window.Token, LeakyBucket: window.Leaky,
}

func (a Algorithm) kind() window.Kind {
	if int(a) >= len(kinds) {
		return window.Sliding
	}
	return kinds[a]
}

func algorithmOf(k window.Kind) Algorithm { return Algorithm(max(slices.Index(kinds[:], k), 0)) }

func (r *Rule) hasBurst() bool { return r.Algorithm == TokenBucket || r.Algorithm == LeakyBucket }

func (o *Override) fill(r *Rule) {
	o.Until = o.Until.UTC().Round(0)
	if o.Limit != 0 && o.Burst == 0 && r.hasBurst() {
		o.Burst = o.Limit
	}
	if o.Window == (window.Shape{}) {
		return
	}
	o.Window.Fixed = o.Window.Fixed || r.Window.Fixed
	if o.Window.Kind == window.Sliding {
		o.Window.Kind = r.Window.Kind
	}
	if o.Window.Buckets == 0 {
		o.Window.Buckets = r.bucketsOf(o.Window)
	}
	if o.Window == r.Window {
		o.Window = window.Shape{}
	}
}

// bucketsOf is into how many buckets an override's window is cut if it does not say so: as the
// rule's, or, by the algorithms that are cut finely, as a rule's of that length would be.
func (r *Rule) bucketsOf(s window.Shape) int {
	if r.Window.Kind == window.Sliding {
		return r.Window.Buckets
	}
	return window.DefaultBuckets(r.Window.Kind, s.Length)
}

// sort brings what has no order into one, so that equal rules are equal, and can be searched.
func (r *Rule) sort() {
	slices.SortFunc(r.Exclude, func(a, b Condition) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Op, b.Op),
			cmp.Compare(a.Value, b.Value))
	})
	r.Exclude = slices.Compact(r.Exclude)
	for l := range r.lists() {
		l.sort()
	}
}

func (l *List) sort() {
	values := l.Values[:0]
	for _, value := range l.Values {
		if prefix, ok, _ := readPrefix(l.Attribute, value); ok {
			l.Prefixes = append(l.Prefixes, prefix)
		} else {
			values = append(values, value)
		}
	}
	slices.Sort(values)
	l.Values = cloned(slices.Compact(values))
	l.Prefixes = cloned(disjoint(l.Prefixes))
}

// disjoint sorts the prefixes and leaves out those that lie in others.
func disjoint(prefixes []netip.Prefix) []netip.Prefix {
	slices.SortFunc(prefixes, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	kept := prefixes[:0]
	for _, p := range prefixes {
		if n := len(kept); n == 0 || !covers(kept[n-1], p) {
			kept = append(kept, p)
		}
	}
	return kept
}

// covers reports whether all of q lies in p.
func covers(p, q netip.Prefix) bool { return p.Bits() <= q.Bits() && p.Contains(q.Addr()) }

const wantPrefix = "want an address or a prefix, such as 203.0.113.9 or 10.0.0.0/8"

// readPrefix reads an entry of a list as a prefix of addresses, if it is one: with a slash, or an
// address under the attribute ip. It says what is wrong with one that looks like it.
func readPrefix(attribute, text string) (prefix netip.Prefix, ok bool, wrong string) {
	if !strings.Contains(text, "/") {
		if attribute != addressAttribute {
			return netip.Prefix{}, false, ""
		}
		addr, err := netip.ParseAddr(text)
		if err != nil || addr.Zone() != "" {
			return netip.Prefix{}, false, wantPrefix
		}
		addr = addr.Unmap()
		return netip.PrefixFrom(addr, addr.BitLen()), true, ""
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		if attribute == addressAttribute {
			return netip.Prefix{}, false, wantPrefix
		}
		return netip.Prefix{}, false, ""
	}
	return prefix, true, wrongPrefix(prefix)
}

// asIPv4 is the remedy for a prefix of IPv4 addresses within IPv6.
func asIPv4(p netip.Prefix) string {
	if p.Bits() < 96 {
		return "write it as IPv4"
	}
	return "write " + netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96).Masked().String()
}

// addressAttribute is the attribute that is known to be an address.
const addressAttribute = "ip"

// wrongPrefix says what is wrong with a prefix, or "".
func wrongPrefix(p netip.Prefix) string {
	switch {
	case !p.IsValid():
		return "is no prefix"
	case p.Addr().Is4In6():
		return "is IPv4 within IPv6: " + asIPv4(p)
	case p.Masked() != p:
		return "has bits behind the prefix: want " + p.Masked().String()
	}
	return ""
}
