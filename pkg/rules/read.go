package rules

import "go.yaml.in/yaml/v3"

// readSet reads the root of a document.
func readSet(root *yaml.Node) (*Set, error) {
	fields, err := readFields(root, "file", []string{"rules"}, "rules")
	if err != nil {
		return nil, err
	}
	list := fields[0].value
	if err := checkKind(list, "rules", yaml.SequenceNode); err != nil {
		return nil, err
	}
	if len(list.Content) == 0 {
		return nil, errorAt(list, "rules: there are no rules")
	}
	set := emptySet(len(list.Content))
	for _, node := range list.Content {
		rule, err := readRule(node)
		if err != nil {
			return nil, err
		}
		if f := set.add(rule); f != nil {
			return nil, errorAt(placeOf(f, node), "%v", f)
		}
	}
	if place, f := set.connect(); f != nil {
		return nil, errorAt(placeOf(f, list.Content[place]), "%v", f)
	}
	return set, nil
}

// placeOf is where the fault of the rule is: as far along the way to it as there is something.
func placeOf(f *fault, rule *yaml.Node) *yaml.Node {
	node := rule
	for i, step := range f.path {
		next := child(node, step, i == len(f.path)-1)
		if next == nil {
			return node
		}
		node = next
	}
	return node
}

// child is a field of a node or an entry of it, or nil. The last entry of a way through a mapping is
// its name, because that is what one looks for.
func child(node *yaml.Node, step any, last bool) *yaml.Node {
	place, entry := step.(int)
	if !entry {
		for i := 0; node.Kind == yaml.MappingNode && i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == step {
				return node.Content[i+1]
			}
		}
		return nil
	}
	if node.Kind == yaml.MappingNode {
		place *= 2
		if !last {
			place++
		}
	}
	if place >= len(node.Content) {
		return nil
	}
	return node.Content[place]
}
