package rules

import (
	"strings"

	"github.com/offpath-io/offpath/pkg/identity"
)

// Condition is what one attribute of a request must be like.
type Condition struct {
	// Name of the attribute.
	Name string
	// Op is how Value is compared.
	Op Op
	// Value that the attribute equals, or begins with, or the pattern that it matches; UTF-8. Empty
	// for Present.
	Value string
}

// Op is how a Condition compares.
type Op uint8

const (
	Equal   Op = iota // the attribute is there and equals Value (default)
	Present           // the attribute is there, and may be empty
	Prefix            // the attribute is there and begins with Value, which is not empty
	Glob              // the attribute is there and matches Value, a pattern as YAML has it
)

// String is "equal", "present", "prefix" or "glob", or "invalid".
func (o Op) String() string { return wordOf(o, "equal", "present", "prefix", "glob") }

// Matches reports whether the attributes meet the condition. It does not allocate, except for a
// Glob with more than 7 wildcards or with a \ before a star, and for a host that is not in lower
// case.
//
// An address under the attribute ip is met as it is, and as a key has it: without its port, IPv4
// that is mapped into IPv6 as IPv4, and other IPv6 by its group, see identity.AppendClient. Else
// a blocked caller would pass with another spelling of its address, and still be the same caller
// to all other rules. A host is met in the form of identity.FoldHost, for the same reason; a Set
// has the values of its conditions in it.
func (c *Condition) Matches(attrs identity.Attributes) bool {
	value, ok := attrs.Get(c.Name)
	if !ok {
		return false
	}
	if identity.IsHost(c.Name) {
		value = identity.FoldHost(value)
	}
	if c.meets(value) {
		return true
	}
	if c.Name != addressAttribute {
		return false
	}
	var room clientRoom
	client, ok := identity.AppendClient(room[:0], value)
	return ok && c.meets(string(client))
}

// clientRoom has room for what a key has for an address.
type clientRoom [64]byte

func (c *Condition) meets(value string) bool {
	switch c.Op {
	case Equal:
		return value == c.Value
	case Prefix:
		return strings.HasPrefix(value, c.Value)
	case Glob:
		var room [8]string // for the texts between 7 wildcards
		return between(appendParts(room[:0], c.Value), value)
	}
	return true
}

func match(conditions []Condition, attrs identity.Attributes) bool {
	for i := range conditions {
		if !conditions[i].Matches(attrs) {
			return false
		}
	}
	return true
}

// parsePattern reads the value of a condition in YAML: each * stands for any text, of any length.
// One alone is any value, and one only at the end makes a prefix of what stands before it. After a
// \ it is a star like others, and \\ before a star is a \. Elsewhere a \ is a \.
func parsePattern(text string) (Op, string) {
	switch parts := appendParts(nil, text); {
	case len(parts) == 1:
		return Equal, parts[0]
	case len(parts) > 2 || parts[1] != "":
		return Glob, text
	case parts[0] == "":
		return Present, ""
	default:
		return Prefix, parts[0]
	}
}

// appendParts appends to dst the texts between the wildcards of a pattern: one more than it has
// wildcards. It allocates only if dst has no room, or a part has a star of its own.
func appendParts(dst []string, pattern string) []string {
	part := ""
	for {
		star := strings.IndexByte(pattern, '*')
		if star < 0 {
			return append(dst, part+pattern)
		}
		before := strings.TrimRight(pattern[:star], `\`)
		escapes := star - len(before)
		if escapes > 0 {
			before += pattern[len(before) : len(before)+escapes/2]
		}
		pattern = pattern[star+1:]
		if escapes%2 == 1 {
			part += before + "*"
			continue
		}
		dst, part = append(dst, part+before), ""
	}
}

// between reports whether a value consists of these parts, in their order, and any text between two
// of them. There are at least two.
func between(parts []string, value string) bool {
	last := len(parts) - 1
	rest, ok := strings.CutPrefix(value, parts[0])
	if !ok {
		return false
	}
	if rest, ok = strings.CutSuffix(rest, parts[last]); !ok {
		return false
	}
	for _, part := range parts[1:last] { // the earliest place leaves the most for the others
		if _, rest, ok = strings.Cut(rest, part); !ok {
			return false
		}
	}
	return true
}

// Pattern is the value of the condition as YAML has it: with a * at its end for a prefix, * alone
// for Present.
func (c Condition) Pattern() string {
	switch c.Op {
	case Present:
		return "*"
	case Prefix:
		return escaped(c.Value) + doubled(c.Value) + "*"
	case Glob:
		return c.Value
	}
	return escaped(c.Value)
}

// escaped puts a \ before each star of the text, and doubles those that are there.
func escaped(text string) string {
	if !strings.Contains(text, "*") {
		return text
	}
	var b strings.Builder
	for i, part := range strings.Split(text, "*") {
		if i > 0 {
			b.WriteString(`\*`)
		}
		b.WriteString(part)
		if i < strings.Count(text, "*") {
			b.WriteString(doubled(part))
		}
	}
	return b.String()
}

// doubled is what doubles each \ at the end of the text.
func doubled(text string) string { return text[len(strings.TrimRight(text, `\`)):] }
