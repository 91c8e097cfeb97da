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
	// Value that the attribute equals, or begins with; UTF-8. Empty for Present.
	Value string
}

// Op is how a Condition compares.
type Op uint8

const (
	Equal   Op = iota // the attribute is there and equals Value (default)
	Present           // the attribute is there, and may be empty
	Prefix            // the attribute is there and begins with Value, which is not empty
)

// String is "equal", "present" or "prefix", or "invalid".
func (o Op) String() string { return wordOf(o, "equal", "present", "prefix") }

// Matches reports whether the attributes meet the condition. It does not allocate.
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

// parsePattern reads the value of a condition in YAML: a * at its end makes a prefix of what stands
// before it; * alone is any value. After a \ it is a star like others, and \\ before a star at the
// end is a \. Elsewhere a \ is a \.
func parsePattern(text string) (Op, string) {
	before, ok := strings.CutSuffix(text, "*")
	if !ok {
		return Equal, text
	}
	rest := strings.TrimRight(before, `\`)
	escapes := len(before) - len(rest)
	value := rest + strings.Repeat(`\`, escapes/2)
	switch {
	case escapes%2 == 1:
		return Equal, value + "*"
	case value == "":
		return Present, ""
	}
	return Prefix, value
}

// Pattern is the value of the condition as YAML has it: with a * at its end for a prefix, * alone
// for Present.
func (c Condition) Pattern() string {
	switch value, star := strings.CutSuffix(c.Value, "*"); {
	case c.Op == Present:
		return "*"
	case c.Op == Prefix:
		return doubled(c.Value) + "*"
	case star:
		return doubled(value) + `\*`
	}
	return c.Value
}

// doubled doubles each \ at the end of the text.
func doubled(text string) string {
	return text + text[len(strings.TrimRight(text, `\`)):]
}
