package rules

import (
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Change is what became of one rule between two sets. Consoles and commands tell of it as JSON.
type Change struct {
	// Name of the rule. One with another name is another rule.
	Name string     `json:"rule"`
	Kind ChangeKind `json:"what"`
	// Fields that differ, in the order of the documentation: for a rule that was added or removed,
	// all that it has but its name. Not nil.
	Fields []FieldChange `json:"fields"`
}

// FieldChange is one field of a rule, as YAML; empty where it has its default.
type FieldChange struct {
	Field string `json:"field"`
	Old   string `json:"old"`
	New   string `json:"new"`
}

// ChangeKind is what became of a rule.
type ChangeKind uint8

const (
	Added   ChangeKind = iota // it is new
	Removed                   // it is gone
	Changed                   // some of its fields differ
)

var changeSigns = map[ChangeKind]string{Added: "+", Removed: "-", Changed: "~"}

// String is "added", "removed" or "changed", or "invalid".
func (k ChangeKind) String() string { return wordOf(k, "added", "removed", "changed") }

// MarshalText is String.
func (k ChangeKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// Diff is what differs between two sets: the rules that are changed or removed, in the order of
// old, then those that are added, in the order of new. Either may be nil, for no rules. That rules
// stand in another order is no difference. The list is not nil.
func Diff(old, new *Set) []Change {
	if old == nil {
		old = &Set{}
	}
	if new == nil {
		new = &Set{}
	}
	changes := []Change{}
	for _, r := range old.rules {
		if other, ok := new.Lookup(r.Name); !ok {
			changes = append(changes, Change{r.Name, Removed, fieldChanges(r, nil)})
		} else if !r.Equal(other) {
			changes = append(changes, Change{r.Name, Changed, fieldChanges(r, other)})
		}
	}
	for _, r := range new.rules {
		if _, ok := old.Lookup(r.Name); !ok {
			changes = append(changes, Change{r.Name, Added, fieldChanges(nil, r)})
		}
	}
	return changes
}

// Equal reports whether two rules of sets say the same, wherever they stand there.
func (r *Rule) Equal(other *Rule) bool {
	a, b := *r, *other
	a.in, b.in, a.Origin, b.Origin = nil, nil, nil, nil
	return reflect.DeepEqual(a, b)
}

// fieldChanges compares two rules; nil stands for one without fields.
func fieldChanges(old, new *Rule) []FieldChange {
	before, after := linesOf(old), linesOf(new)
	changes := []FieldChange{}
	for field := range reflect.TypeFor[fileRule]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		if name != "name" && before[name] != after[name] {
			changes = append(changes, FieldChange{Field: name, Old: before[name], New: after[name]})
		}
	}
	return changes
}

// linesOf are the fields of a rule, each on one line; none of nil.
func linesOf(r *Rule) map[string]string {
	lines := make(map[string]string)
	if r == nil {
		return lines
	}
	node, err := nodeOf(r)
	if err != nil { // unreachable: the rule is valid
		return lines
	}
	for i := 0; i < len(node.Content); i += 2 {
		node.Content[i+1].Style |= yaml.FlowStyle
		line, err := yaml.Marshal(node.Content[i+1])
		if err != nil { // likewise unreachable
			continue
		}
		lines[node.Content[i].Value] = strings.TrimSuffix(string(line), "\n")
	}
	return lines
}

// String returns a line for the rule, and for a changed rule a further line for each field.
func (c Change) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", changeSigns[c.Kind], c.Name)
	for i, f := range c.Fields {
		switch {
		case c.Kind == Changed:
			fmt.Fprintf(&b, "\n    %s: %s -> %s", f.Field, orDefault(f.Old), orDefault(f.New))
		default:
			fmt.Fprintf(&b, "%s%s: %s", [...]string{"  ", ", "}[min(i, 1)], f.Field, f.Old+f.New)
		}
	}
	return b.String()
}

func orDefault(text string) string {
	if text == "" {
		return "(default)"
	}
	return text
}
