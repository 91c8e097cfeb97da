package node

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Field is one entry of a mapping.
type Field struct {
	Name  string
	Value *yaml.Node
}

// ValueOf is the value of the field, or nil.
func ValueOf(fields []Field, name string) *yaml.Node {
	for _, f := range fields {
		if f.Name == name {
			return f.Value
		}
	}
	return nil
}

// Fields reads a mapping from strings: names among the known ones, if there are
// any, none of them twice, and none of the needed ones missing.
func Fields(node *yaml.Node, what string, known []string, needed ...string) ([]Field, error) {
	if err := Kind(node, what, yaml.MappingNode); err != nil {
		return nil, err
	}
	within := what + ": "
	if what == "file" || what == "rule" {
		within = ""
	}
	fields := make([]Field, 0, len(node.Content)/2)
	lines := make(map[string]int, len(node.Content)/2)
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		name, err := Text(key, what+": field name")
		if err != nil {
			return nil, err
		}
		if known != nil && !slices.Contains(known, name) {
			return nil, Errorf(key, "%sunknown field %.40q (want %s)", within, name, strings.Join(known, ", "))
		}
		if line, ok := lines[name]; ok {
			return nil, Errorf(key, "%sfield %.40q occurs twice, first on line %d", within, name, line)
		}
		lines[name] = key.Line
		fields = append(fields, Field{name, value})
	}
	for _, name := range needed {
		if _, ok := lines[name]; !ok {
			return nil, Errorf(node, "%s%s: is missing", within, name)
		}
	}
	return fields, nil
}

// Text reads a string. Numbers and the like are not taken for one: YAML may have
// understood something else than was meant, such as 1e3 or 2026-03-05.
func Text(node *yaml.Node, what string) (string, error) {
	if err := Kind(node, what, yaml.ScalarNode); err != nil {
		return "", err
	}
	if node.Tag != "!!str" {
		hint := ""
		if node.Tag != "!!null" && node.Style&yaml.TaggedStyle == 0 {
			hint = " (write it in quotes)"
		}
		return "", Errorf(node, "%s: want a string, got %s%s", what, describe(node), hint)
	}
	return node.Value, nil
}

// Kind refuses nodes of other kinds, and anchors, aliases, merges and foreign tags.
func Kind(node *yaml.Node, what string, kind yaml.Kind) error {
	switch {
	case node.Kind == yaml.AliasNode || node.Anchor != "":
		return Errorf(node, "%s: anchors and aliases are not supported: write it out", what)
	case node.Tag == "!!merge":
		return Errorf(node, "%s: merge keys are not supported: write it out", what)
	case node.Kind != kind, kind == yaml.MappingNode && node.Tag != "!!map", kind == yaml.SequenceNode && node.Tag != "!!seq":
		return Errorf(node, "%s: want %s, got %s", what, kindNames[kind], describe(node))
	}
	return nil
}

var (
	kindNames = map[yaml.Kind]string{yaml.MappingNode: "a mapping", yaml.SequenceNode: "a list", yaml.ScalarNode: "a single value"}
	tagNames  = map[string]string{
		"!!map": "a mapping", "!!seq": "a list", "!!str": "a string", "!!null": "nothing",
		"!!int": "a number", "!!float": "a number", "!!bool": "a truth value", "!!timestamp": "a date",
	}
)

func describe(node *yaml.Node) string {
	if name, ok := tagNames[node.Tag]; ok {
		return name
	}
	return fmt.Sprintf("a value tagged %.40q", node.Tag)
}
