package envoyrules

import (
	"go.yaml.in/yaml/v3"

	"github.com/offpath-io/offpath/pkg/rules/internal/node"
)

// maxNodes bounds what a file may become when its aliases are written out.
const maxNodes = 1 << 18

// expand writes out aliases and merges, which files of envoyproxy/ratelimit may have. What comes out keeps the places of
// what was written.
func expand(root *yaml.Node) (*yaml.Node, error) {
	e := expansion{open: make(map[*yaml.Node]bool)}
	return e.node(root)
}

type expansion struct {
	nodes int
	open  map[*yaml.Node]bool // anchored nodes that are being written out
}

func (e *expansion) node(at *yaml.Node) (*yaml.Node, error) {
	if e.nodes++; e.nodes > maxNodes {
		return nil, node.Errorf(at, "aliases make the file too large: write them out")
	}
	if at.Kind == yaml.AliasNode {
		at = at.Alias
	}
	if e.open[at] {
		return nil, node.Errorf(at, "anchor %.40q contains itself", at.Anchor)
	}
	if at.Anchor != "" {
		e.open[at] = true
		defer delete(e.open, at)
	}
	out := *at
	out.Anchor, out.Content = "", nil
	if at.Kind == yaml.MappingNode {
		return &out, e.mapping(&out, at)
	}
	for _, child := range at.Content {
		written, err := e.node(child)
		if err != nil {
			return nil, err
		}
		out.Content = append(out.Content, written)
	}
	return &out, nil
}

// mapping writes the entries of a mapping to out: first its own, then those merged into it that it has not.
func (e *expansion) mapping(out, at *yaml.Node) error {
	var merged []*yaml.Node
	for i := 0; i+1 < len(at.Content); i += 2 {
		key, err := e.node(at.Content[i])
		if err != nil {
			return err
		}
		value, err := e.node(at.Content[i+1])
		if err != nil {
			return err
		}
		if key.Tag == "!!merge" {
			merged = append(merged, value)
		} else {
			out.Content = append(out.Content, key, value)
		}
	}
	for _, from := range merged {
		if err := merge(out, from); err != nil {
			return err
		}
	}
	return nil
}

// merge adds the entries of a mapping, or of a list of them, that out has not.
func merge(out, from *yaml.Node) error {
	if from.Kind == yaml.SequenceNode {
		for _, one := range from.Content {
			if one.Kind != yaml.MappingNode {
				return node.Errorf(one, "merge: want a mapping")
			}
			if err := merge(out, one); err != nil {
				return err
			}
		}
		return nil
	}
	if from.Kind != yaml.MappingNode {
		return node.Errorf(from, "merge: want a mapping")
	}
	for i := 0; i+1 < len(from.Content); i += 2 {
		if !has(out, from.Content[i].Value) {
			out.Content = append(out.Content, from.Content[i], from.Content[i+1])
		}
	}
	return nil
}

func has(mapping *yaml.Node, name string) bool {
	for i := 0; i < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == name {
			return true
		}
	}
	return false
}
