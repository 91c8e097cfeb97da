package envoyrules

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/window"
)

// maxAdded bounds what precedence and replacement may add to all rules of a file together.
const maxAdded = 200_000

// build turns descriptors into rules.
type build struct {
	list   []rules.Rule
	places [][]any // of the rules' descriptors
	limits []*limit
	added  int // exclusions and replacements
}

// way is what leads to a descriptor.
type way struct {
	name    string
	match   []rules.Condition
	key     []string          // those that make counters
	exclude []rules.Condition // requests that a more telling descriptor beside the way takes
}

// rules are the rules of the file, and where each one's descriptor stands.
func (f *file) rules() ([]rules.Rule, [][]any, error) {
	b := &build{}
	start := way{
		name:  escaped(f.Domain, "|"),
		match: []rules.Condition{{Name: Domain, Value: f.Domain}},
	}
	if err := b.descend(start, f.Descriptors); err != nil {
		return nil, nil, err
	}
	return b.list, b.places, b.replace()
}

func (b *build) descend(from way, siblings []*descriptor) error {
	for i, d := range siblings {
		to := from.step(d)
		for _, other := range d.above(i, siblings) {
			to.exclude = append(to.exclude, other.condition())
		}
		if d.RateLimit != nil {
			if err := b.add(to, d); err != nil {
				return err
			}
		}
		if err := b.descend(to, d.Descriptors); err != nil {
			return err
		}
	}
	return nil
}

// step is the way on to a descriptor. It shares nothing that others append to.
func (w way) step(d *descriptor) way {
	w.name += "|" + escaped(d.Key, "|=")
	if d.Value != "" {
		w.name += "=" + escaped(d.Value, "|")
	}
	c := d.condition()
	w.match = append(w.match[:len(w.match):len(w.match)], c)
	if c.Op != rules.Equal && !d.ShareThreshold {
		w.key = append(w.key[:len(w.key):len(w.key)], d.Key)
	}
	w.exclude = w.exclude[:len(w.exclude):len(w.exclude)]
	return w
}

// condition is what the descriptor wants of its attribute.
func (d *descriptor) condition() rules.Condition {
	prefix, wildcard := strings.CutSuffix(d.Value, "*")
	switch {
	case d.Value == "", wildcard && prefix == "":
		return rules.Condition{Name: d.Key, Op: rules.Present}
	case wildcard:
		return rules.Condition{Name: d.Key, Op: rules.Prefix, Value: prefix}
	}
	return rules.Condition{Name: d.Key, Value: d.Value}
}

// above are those of the descriptors beside d that requests go to rather than to d: a value before
// wildcards, wildcards in the order of the file, and these before a key alone.
func (d *descriptor) above(place int, siblings []*descriptor) []*descriptor {
	prefix, wildcard := strings.CutSuffix(d.Value, "*")
	if d.Value != "" && !wildcard {
		return nil
	}
	var list []*descriptor
	for i, other := range siblings {
		if other.Key != d.Key || other == d || other.Value == "" {
			continue
		}
		start, too := strings.CutSuffix(other.Value, "*")
		overlap := strings.HasPrefix(start, prefix) || too && strings.HasPrefix(prefix, start)
		if overlap && (!too || d.Value == "" || i < place) {
			list = append(list, other)
		}
	}
	return list
}

func (b *build) add(w way, d *descriptor) error {
	l := d.RateLimit
	r := rules.Rule{
		Name: bounded(w.name), Match: w.match, Exclude: w.exclude, Exact: true, Key: w.key,
		Shadow: d.ShadowMode, Unlimited: l.Unlimited,
	}
	if !r.Unlimited {
		r.Limit = max(int64(*l.RequestsPerUnit), 1)
		r.Window = window.Shape{Length: time.Duration(l.Unit), Buckets: 1, Fixed: true}
		if *l.RequestsPerUnit == 0 {
			r.Overrides = []rules.Override{{Match: w.match[:1], Action: rules.Blocked}}
		}
	}
	if b.added += len(r.Exclude); b.added > maxAdded {
		return &mistake{d.path, fmt.Sprintf("descriptor: too many values stand beside the keys of "+
			"this file: its rules would exclude more than %d", maxAdded)}
	}
	b.list, b.places, b.limits = append(b.list, r), append(b.places, d.path), append(b.limits, l)
	return nil
}

// replace turns names of limits, of which several may have one, into those of rules. Names that no
// limit has are left out.
func (b *build) replace() error {
	named := make(map[string][]int)
	for i, l := range b.limits {
		if l.Name != "" {
			named[l.Name] = append(named[l.Name], i)
		}
	}
	for i, l := range b.limits {
		seen := make(map[string]bool)
		for _, other := range l.Replaces {
			name := other.Name
			if seen[name] {
				continue
			}
			seen[name] = true
			if b.added += len(named[name]); b.added > maxAdded {
				return &mistake{b.places[i], fmt.Sprintf("rate_limit: replaces: too many limits "+
					"have the same names: want at most %d replacements in all", maxAdded)}
			}
			for _, other := range named[name] {
				b.list[i].Replaces = append(b.list[i].Replaces, b.list[other].Name)
			}
		}
	}
	return nil
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
