package envoyrules

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// maxAdded bounds what precedence and replacement may add to all rules of a file together.
const maxAdded = 200_000

// maxPairs bounds the pairs of wildcards beside each other, or of one and a value, that begin
// alike: so many take about as long as parsing does.
const maxPairs = 50 * maxAdded

// build turns descriptors into rules.
type build struct {
	list   []rules.Rule
	places []place
	limits []*limit // nil for a rule of no descriptor
	added  int      // exclusions and replacements
	pairs  int      // of siblings of which one covers the other
}

// way is what leads to a descriptor.
type way struct {
	name    string
	keys    []string // of the descriptors on it, and Domain
	match   []rules.Condition
	key     []string          // those that make counters
	exclude []rules.Condition // requests that a more telling descriptor beside the way takes
}

// domain adds the rules of a domain, which has the descriptors of all these documents, and reports
// whether that was possible.
func (b *build) domain(name string, docs []*document) bool {
	all, first := []*descriptor(nil), len(b.list)
	entries := make(map[[2]string]*descriptor)
	for _, doc := range docs {
		for _, d := range doc.root.Descriptors {
			if before := entries[[2]string{d.Key, d.Value}]; before != nil {
				d.refuse("descriptor: the same key and value as one of this domain in " +
					before.doc.String())
				return false
			}
			entries[[2]string{d.Key, d.Value}] = d
			all = append(all, d)
		}
	}
	start := way{
		name: escaped(name, "|"), keys: []string{Domain},
		match: []rules.Condition{{Name: Domain, Value: name}},
	}
	if !b.descend(start, all) {
		return false
	}
	if len(b.list) == first {
		b.addEmpty(start, docs[0])
	}
	return b.replace(first)
}

// addEmpty adds a rule that limits nobody, so that a domain without limits is known: a request may
// bring its own ones there.
func (b *build) addEmpty(w way, doc *document) {
	b.list = append(b.list, rules.Rule{
		Name: bounded(w.name), Match: w.match, Exact: true, Ordered: true, Unlimited: true,
		Origin: &Origin{},
	})
	b.places = append(b.places, place{doc: doc, path: []any{"domain"}})
	b.limits = append(b.limits, nil)
}

func (b *build) descend(from way, siblings []*descriptor) bool {
	above, ok := b.above(siblings)
	if !ok {
		return false
	}
	for i, d := range siblings {
		to := from.step(d)
		attribute := to.match[len(to.match)-1].Name
		for _, other := range above[i] {
			to.exclude = append(to.exclude, siblings[other].condition(attribute))
		}
		if d.RateLimit != nil && !b.add(to, d) || !b.descend(to, d.Descriptors) {
			return false
		}
	}
	return true
}

// step is the way on to a descriptor. It shares nothing that others append to.
func (w way) step(d *descriptor) way {
	w.name += "|" + escaped(d.Key, "|=")
	if d.Value != "" {
		w.name += "=" + escaped(d.Value, "|")
	}
	w.keys = append(w.keys[:len(w.keys):len(w.keys)], d.Key)
	nth := 0
	for _, key := range w.keys {
		if key == d.Key {
			nth++
		}
	}
	c := d.condition(Attribute(d.Key, nth))
	w.match = append(w.match[:len(w.match):len(w.match)], c)
	if c.Op != rules.Equal && !d.ShareThreshold {
		w.key = append(w.key[:len(w.key):len(w.key)], c.Name)
	}
	w.exclude = w.exclude[:len(w.exclude):len(w.exclude)]
	return w
}

// condition is what the descriptor wants of its attribute.
func (d *descriptor) condition(attribute string) rules.Condition {
	c := rules.Condition{Name: attribute, Value: d.Value}
	switch parts := strings.Split(d.Value, "*"); {
	case d.Value == "", d.Value == "*":
		c.Op, c.Value = rules.Present, ""
	case len(parts) == 2 && parts[1] == "":
		c.Op, c.Value = rules.Prefix, parts[0]
	case len(parts) > 1:
		c.Op, c.Value = rules.Glob, pattern(parts)
	}
	return c
}

// pattern is the pattern of rules with these texts between its wildcards: a \ before a star is two.
func pattern(parts []string) string {
	var b strings.Builder
	for i, part := range parts {
		if i > 0 {
			b.WriteByte('*')
		}
		b.WriteString(part)
		if i < len(parts)-1 {
			b.WriteString(part[len(strings.TrimRight(part, `\`)):])
		}
	}
	return b.String()
}

// sibling is one of several descriptors beside each other.
type sibling struct {
	*descriptor
	place int
	kind  int
	start string // of its values: up to the first wildcard
}

// Kinds of siblings, in the order in which requests go to them.
const (
	oneValue = iota
	wildcard
	keyAlone
)

func (s *sibling) precedes(other *sibling) bool {
	return cmp.Or(cmp.Compare(s.kind, other.kind), cmp.Compare(s.place, other.place)) < 0
}

// covers reports whether all values of the other one begin as those of this one do.
func (s *sibling) covers(other *sibling) bool {
	return s.Key == other.Key && strings.HasPrefix(other.start, s.start)
}

// above lists for each of the siblings the places of those that requests go to rather than to it: a
// value before wildcards, wildcards in the order of the file, and these before a key alone. It
// leaves out most of those that no request of it goes to, and all for a descriptor without limits.
// It reports false if there are too many.
//
// Siblings are sorted, so that those that cover one are the last before it that cover each other:
// only pairs that begin alike are compared.
func (b *build) above(siblings []*descriptor) (above [][]int, ok bool) {
	above = make([][]int, len(siblings))
	added := b.added
	var covering []*sibling // each by those before it
	for _, s := range sorted(siblings) {
		for len(covering) > 0 && !covering[len(covering)-1].covers(s) {
			covering = covering[:len(covering)-1]
		}
		if b.pairs += len(covering); b.pairs > maxPairs {
			s.refuse(fmt.Sprintf("descriptor: too many wildcards of these files begin alike: want at most "+
				"%d pairs", maxPairs))
			return nil, false
		}
		for _, first := range covering {
			last := s
			if !first.precedes(last) {
				first, last = last, first
			}
			if last.RateLimit == nil && len(last.Descriptors) == 0 {
				continue // there is no rule to exclude from
			}
			if added++; added > maxAdded {
				return nil, b.refuseAdded(last.descriptor)
			}
			above[last.place] = append(above[last.place], first.place)
		}
		if s.kind != oneValue {
			covering = append(covering, s)
		}
	}
	for _, places := range above {
		slices.Sort(places)
	}
	return above, true
}

// sorted puts each sibling after those that cover it.
func sorted(siblings []*descriptor) []*sibling {
	all := make([]*sibling, len(siblings))
	for i, d := range siblings {
		start, _, wild := strings.Cut(d.Value, "*")
		all[i] = &sibling{descriptor: d, place: i, start: start}
		switch {
		case d.Value == "":
			all[i].kind = keyAlone
		case wild:
			all[i].kind = wildcard
		}
	}
	slices.SortFunc(all, func(a, b *sibling) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.start, b.start),
			cmp.Compare(b.kind, a.kind), cmp.Compare(a.place, b.place))
	})
	return all
}

// refuseAdded refuses the descriptor with which there are too many exclusions. It returns false.
func (b *build) refuseAdded(d *descriptor) bool {
	d.refuse(fmt.Sprintf("descriptor: too many values stand beside the keys of these files: their "+
		"rules would exclude more than %d", maxAdded))
	return false
}

func (b *build) add(w way, d *descriptor) bool {
	l := d.RateLimit
	r := rules.Rule{
		Name: bounded(w.name), Match: w.match, Exclude: w.exclude, Exact: true, Ordered: true,
		Key: w.key, Shadow: d.ShadowMode, Unlimited: l.Unlimited,
		Origin: &Origin{LimitName: l.Name, Quota: d.QuotaMode && !l.Unlimited},
	}
	if !r.Unlimited {
		r.Limit = max(l.requests(), 1)
		r.Window = window.Shape{Length: time.Duration(l.Unit), Buckets: 1, Fixed: true}
		if l.requests() == 0 {
			r.Overrides = []rules.Override{{Match: w.match[:1], Action: rules.Blocked}}
		}
	}
	if b.added += len(r.Exclude); b.added > maxAdded {
		return b.refuseAdded(d)
	}
	b.list, b.limits = append(b.list, r), append(b.limits, l)
	b.places = append(b.places, place{doc: d.doc, path: d.path})
	return true
}

// replace turns names of limits, of which several may have one, into those of rules, among the
// rules of a domain, which begin at first. Names that no limit has are left out.
func (b *build) replace(first int) bool {
	named := make(map[string][]int)
	for i := first; i < len(b.limits); i++ {
		if l := b.limits[i]; l != nil && l.Name != "" {
			named[l.Name] = append(named[l.Name], i)
		}
	}
	for i := first; i < len(b.limits); i++ {
		if b.limits[i] == nil {
			continue
		}
		seen := make(map[string]bool)
		for _, other := range b.limits[i].Replaces {
			name := other.Name
			if seen[name] {
				continue
			}
			seen[name] = true
			if b.added += len(named[name]); b.added > maxAdded {
				b.places[i].doc.Refuse(b.places[i].path, fmt.Sprintf("rate_limit: replaces: too many "+
					"limits have the same names: want at most %d replacements in all", maxAdded))
				return false
			}
			for _, other := range named[name] {
				b.list[i].Replaces = append(b.list[i].Replaces, b.list[other].Name)
			}
		}
	}
	return true
}

// escaped writes the bytes that a rule's name cannot have, or that stand between its parts, as %XX.
func escaped(text, between string) string {
	var b strings.Builder
	for _, c := range text {
		if c == '%' || c == ' ' || strings.ContainsRune(between, c) || !unicode.IsPrint(c) {
			for _, one := range []byte(string(c)) {
				fmt.Fprintf(&b, "%%%02X", one)
			}
			continue
		}
		b.WriteRune(c)
	}
	return b.String()
}

// maxName is the most bytes of a rule's name.
const maxName = 128

// bounded is the name, or if it is too long its beginning and a hash of it.
func bounded(name string) string {
	if len(name) <= maxName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	hash := "~" + hex.EncodeToString(sum[:12])
	cut := maxName - len(hash)
	for cut > 0 && name[cut]&0xc0 == 0x80 { // within a character
		cut--
	}
	return name[:cut] + hash
}
