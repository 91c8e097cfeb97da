package rules

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/offpath-io/offpath/pkg/identity"
)

// An index finds, among many lists of conditions, those that the attributes of a request may meet,
// without looking at the others. Each list stands under the rarest of its conditions; where many
// stand under one, they are divided again by their other conditions. So how many are looked at
// hardly depends on how many there are.
//
// Conditions on the way to an entry are not tested again, so that in the common case the rule
// itself, which is not in the processor's cache if there are many, is not touched.
type index struct {
	few []entry            // looked at one by one
	by  map[string]*branch // others, by the attribute of a condition
	all []*branch          // the same, if they are few enough to ask for each
}

// entry is a rule or an override in an index.
type entry struct {
	left     []Condition // of its Match, those that the way to it has not tested
	rule     *Rule       // or nil
	override *Override   // or nil
	place    int         // of the rule in its set, or of the override in its rule
	exact    bool        // Rule.Exact
	excludes bool        // Rule.Exclude is not empty
}

// branch holds what stands under conditions on one attribute.
type branch struct {
	name     string
	host     bool // name is that of a host, see Condition.Matches
	equal    map[string]*index
	prefixes map[string]*index
	lengths  []int // of the prefixes, each once, ascending
	present  *index
}

// fewest is up to how many entries are not worth an index.
const fewest = 4

// newIndex makes an index. It takes conditions out of the entries, so their slices must be its own.
func newIndex(entries []entry) *index {
	if len(entries) <= fewest {
		return &index{few: entries}
	}
	often := make(map[Condition]int)
	for _, e := range entries {
		for _, c := range e.left {
			often[c]++
		}
	}
	n := &index{by: make(map[string]*branch)}
	groups := make(map[Condition][]entry)
	for _, e := range entries {
		if len(e.left) == 0 {
			n.few = append(n.few, e)
			continue
		}
		c := rarest(e.left, often)
		e.left = slices.DeleteFunc(e.left, func(other Condition) bool { return other == c })
		groups[c] = append(groups[c], e)
	}
	for c, group := range groups {
		n.branch(c.Name).add(c, newIndex(group))
	}
	slices.SortFunc(n.all, func(a, b *branch) int { return strings.Compare(a.name, b.name) })
	if len(n.all) > 2*fewest {
		n.all = nil
	}
	return n
}

// rarest is the condition that occurs least often, and of several the most specific one.
func rarest(conditions []Condition, often map[Condition]int) Condition {
	return slices.MinFunc(conditions, func(a, b Condition) int {
		return cmp.Or(often[a]-often[b], telling[a.Op]-telling[b.Op])
	})
}

var telling = [...]int{Equal: 0, Prefix: 1, Present: 2}

func (n *index) branch(name string) *branch {
	b := n.by[name]
	if b == nil {
		b = &branch{
			name: name, host: identity.IsHost(name),
			equal: make(map[string]*index), prefixes: make(map[string]*index),
		}
		n.by[name] = b
		n.all = append(n.all, b)
	}
	return b
}

func (b *branch) add(c Condition, under *index) {
	switch c.Op {
	case Equal:
		b.equal[c.Value] = under
	case Prefix:
		b.prefixes[c.Value] = under
		if i, ok := slices.BinarySearch(b.lengths, len(c.Value)); !ok {
			b.lengths = slices.Insert(b.lengths, i, len(c.Value))
		}
	default:
		b.present = under
	}
}

// search goes through an index. It lives on its caller's stack, and allocates nothing but what
// found lacks.
type search struct {
	attrs  identity.Attributes
	looked int // entries looked at, and rules that may be replaced

	found    []*Rule // rules that match, as they came up
	last     int     // the place of the last of them
	unsorted bool    // they are not in the order of their places

	now   time.Time // of those overrides that hold now,
	first int       // the place of the first that matches, if it is less
}

func (s *search) through(n *index) {
	for i := range n.few {
		s.look(&n.few[i])
	}
	for _, b := range n.all {
		if value, ok := s.attrs.Get(b.name); ok {
			s.along(b, value)
		}
	}
	if n.by == nil || n.all != nil {
		return
	}
	for i, a := range s.attrs {
		same := func(earlier identity.Attribute) bool { return earlier.Name == a.Name }
		if b := n.by[a.Name]; b != nil && !slices.ContainsFunc(s.attrs[:i], same) {
			s.along(b, a.Value)
		}
	}
}

// along goes through what stands under conditions that the value meets, each once.
func (s *search) along(b *branch, value string) {
	if b.host {
		value = identity.FoldHost(value)
	}
	if under := b.equal[value]; under != nil {
		s.through(under)
	}
	s.alongPrefixes(b, value, "")
	if b.present != nil {
		s.through(b.present)
	}
	if b.name == addressAttribute { // see Condition.Matches
		var room clientRoom
		if client, ok := identity.AppendClient(room[:0], value); ok {
			// Conditions that the address meets as a key has it, and not as it is.
			if under := b.equal[string(client)]; under != nil { // the two are never the same
				s.through(under)
			}
			s.alongPrefixes(b, string(client), value)
		}
	}
}

// alongPrefixes goes through the indexes under prefixes of the value, except those that the address
// begins with, too. It tries each length of a prefix: that touches less memory than a search.
func (s *search) alongPrefixes(b *branch, value, address string) {
	for _, length := range b.lengths {
		if length > len(value) {
			return
		}
		under := b.prefixes[value[:length]]
		if under != nil && (address == "" || !strings.HasPrefix(address, value[:length])) {
			s.through(under)
		}
	}
}

func (s *search) look(e *entry) {
	s.looked++
	if !match(e.left, s.attrs) {
		return
	}
	switch {
	case e.override != nil:
		if e.place < s.first && e.override.holds(s.now) {
			s.first = e.place
		}
	case (!e.exact || e.rule.knows(s.attrs)) && (!e.excludes || !e.rule.Excludes(s.attrs)):
		s.found = append(s.found, e.rule)
		s.unsorted = s.unsorted || e.place < s.last
		s.last = e.place
	}
}
