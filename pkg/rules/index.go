package rules

import (
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
	prefixes prefixes
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
		c, ok := rarest(e.left, often)
		if !ok {
			n.few = append(n.few, e)
			continue
		}
		e.left = slices.DeleteFunc(e.left, func(other Condition) bool { return other == c })
		groups[c] = append(groups[c], e)
	}
	for c, group := range groups {
		n.branch(c.Name).add(c, newIndex(group))
	}
	n.finish()
	return n
}

// rarest is the condition that occurs least often, and of several the one that tells most. It is
// none if there are only patterns: nothing finds those that a value matches but trying each.
func rarest(conditions []Condition, often map[Condition]int) (best Condition, ok bool) {
	for _, c := range conditions {
		switch {
		case c.Op == Glob:
		case !ok || often[c] < often[best],
			often[c] == often[best] && telling[c.Op] < telling[best.Op]:
			best, ok = c, true
		}
	}
	return best, ok
}

var telling = [...]int{Equal: 0, Prefix: 1, Present: 2}

func (n *index) branch(name string) *branch {
	b := n.by[name]
	if b == nil {
		b = &branch{name: name, host: identity.IsHost(name), equal: make(map[string]*index)}
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
		b.prefixes.add(c.Value, under)
	default:
		b.present = under
	}
}

// finish leaves the branches as they are searched, and the same whatever order they came in.
func (n *index) finish() {
	for _, b := range n.all {
		b.prefixes.nest()
	}
	slices.SortFunc(n.all, func(a, b *branch) int { return strings.Compare(a.name, b.name) })
	if len(n.all) > 2*fewest {
		n.all = nil
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
		if b := n.by[a.Name]; b != nil && !s.repeats(i) {
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
	if b.prefixes.list != nil {
		for at := b.prefixes.longest(value); at >= 0; at = b.prefixes.list[at].in {
			s.through(b.prefixes.list[at].index)
		}
	}
	if b.present != nil {
		s.through(b.present)
	}
	if b.name == addressAttribute { // see Condition.Matches
		var room clientRoom
		if client, ok := identity.AppendClient(room[:0], value); ok {
			s.alongClient(b, string(client), value)
		}
	}
}

// alongClient goes through what stands under conditions that an address meets as a key has it, and
// not as it is.
func (s *search) alongClient(b *branch, client, address string) {
	if under := b.equal[client]; under != nil { // the two are never the same
		s.through(under)
	}
	if b.prefixes.list == nil {
		return
	}
	for at := b.prefixes.longest(client); at >= 0; at = b.prefixes.list[at].in {
		if p := &b.prefixes.list[at]; !strings.HasPrefix(address, p.text) {
			s.through(p.index)
		}
	}
}

// repeats reports whether an earlier attribute has the name, so that this one does not count.
func (s *search) repeats(place int) bool {
	for i := range place {
		if s.attrs[i].Name == s.attrs[place].Name {
			return true
		}
	}
	return false
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
