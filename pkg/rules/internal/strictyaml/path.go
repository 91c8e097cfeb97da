package strictyaml

import (
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Key is a step of a path to the name of an entry of a mapping.
type Key string

// field makes a Key the name of a field.
func field(step any) any {
	if key, ok := step.(Key); ok {
		return string(key)
	}
	return step
}

// PathText writes a path for an error: the fields on it, and the entries of lists that further
// fields belong to. It leaves out the path to an entry of the list of that name.
func PathText(path []any, list string) string {
	var b strings.Builder
	for i, step := range path {
		var next any
		if i+1 < len(path) {
			next = path[i+1]
		}
		switch step := step.(type) {
		case int:
			if _, inside := next.(string); inside && !isEntry(path[:i+1], list) {
				fmt.Fprintf(&b, "entry %d: ", step+1)
			}
		case string:
			if i+1 == len(path) || !isEntry(path[:i+2], list) {
				b.WriteString(label(step))
			}
		}
	}
	return b.String()
}

// isEntry says whether a path leads to an entry of the list of that name, at the top of the
// document or in an entry of such a list; attributes may have that name too.
func isEntry(path []any, list string) bool {
	for i, step := range path {
		if _, place := step.(int); place != (i%2 == 1) || !place && step != list {
			return false
		}
	}
	return len(path) > 0 && len(path)%2 == 0
}

var plainName = regexp.MustCompile(`^[a-z_]{1,40}$`)

func label(field string) string {
	if plainName.MatchString(field) {
		return field + ": "
	}
	return fmt.Sprintf("%.40q: ", field)
}

// nameOf is the name of a field, which may be an alias.
func nameOf(key *yaml.Node) string {
	if key.Kind == yaml.AliasNode {
		key = key.Alias
	}
	return key.Value
}

// child is what a step of a path leads to, or nil. A Key that is the last step leads to the name.
func child(at *yaml.Node, step any, last bool) *yaml.Node {
	if at.Kind == yaml.AliasNode {
		at = at.Alias
	}
	if place, ok := step.(int); ok {
		if place < len(at.Content) {
			return at.Content[place]
		}
		return nil
	}
	_, key := step.(Key)
	for i := 0; at.Kind == yaml.MappingNode && i+1 < len(at.Content); i += 2 {
		if name := at.Content[i]; nameOf(name) == field(step) {
			if key && last {
				return name
			}
			return at.Content[i+1]
		}
	}
	return nil
}
