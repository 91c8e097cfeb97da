package rules

import (
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/offpath-io/offpath/pkg/rules/internal/node"
)

// readSet reads the root of a document.
func readSet(root *yaml.Node) (*Set, error) {
	fields, err := node.Fields(root, "file", []string{"rules"}, "rules")
	if err != nil {
		return nil, err
	}
	list := fields[0].Value
	if err := node.Kind(list, "rules", yaml.SequenceNode); err != nil {
		return nil, err
	}
	if len(list.Content) == 0 {
		return nil, node.Errorf(list, "rules: there are no rules")
	}
	set := emptySet(len(list.Content))
	for _, at := range list.Content {
		rule, err := readRule(at)
		if err != nil {
			return nil, err
		}
		if f := set.add(rule); f != nil {
			return nil, node.Errorf(placeOf(f, at), "%v", f)
		}
	}
	if place, f := set.connect(); f != nil {
		return nil, node.Errorf(placeOf(f, list.Content[place]), "%v", f)
	}
	return set, nil
}

// placeOf is where the fault of the rule is: as far along the way to it as there is something.
func placeOf(f *fault, rule *yaml.Node) *yaml.Node {
	at := rule
	for i, step := range f.path {
		next := child(at, step, i == len(f.path)-1)
		if next == nil {
			return at
		}
		at = next
	}
	return at
}

// child is a field of a node or an entry of it, or nil. The last entry of a way through a mapping is
// its name, because that is what one looks for.
func child(at *yaml.Node, step any, last bool) *yaml.Node {
	place, entry := step.(int)
	if !entry {
		name := fmt.Sprint(step)
		for i := 0; at.Kind == yaml.MappingNode && i+1 < len(at.Content); i += 2 {
			if at.Content[i].Value == name {
				return at.Content[i+1]
			}
		}
		return nil
	}
	if at.Kind == yaml.MappingNode {
		place *= 2
		if !last {
			place++
		}
	}
	if place >= len(at.Content) {
		return nil
	}
	return at.Content[place]
}
