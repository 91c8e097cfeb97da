package rules

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// field is one entry of a mapping.
type field struct {
	name  string
	value *yaml.Node
}

// valueOf is the value of the field, or nil.
func valueOf(fields []field, name string) *yaml.Node {
	for _, f := range fields {
		if f.name == name {
			return f.value
		}
	}
	return nil
}

// readFields reads a mapping from strings: names among the known ones, if there are
// any, none of them twice, and none of the needed ones missing.
func readFields(node *yaml.Node, what string, known []string, needed ...string) ([]field, error) {
	if err := checkKind(node, what, yaml.MappingNode); err != nil {
		return nil, err
	}
	within := what + ": "
	if what == "file" || what == "rule" {
		within = ""
	}
	fields := make([]field, 0, len(node.Content)/2)
	lines := make(map[string]int, len(node.Content)/2)
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		name, err := readText(key, what+": field name")
		if err != nil {
			return nil, err
		}
		if known != nil && !slices.Contains(known, name) {
			return nil, errorAt(key, "%sunknown field %.40q (want %s)", within, name, strings.Join(known, ", "))
		}
		if line, ok := lines[name]; ok {
			return nil, errorAt(key, "%sfield %.40q occurs twice, first on line %d", within, name, line)
		}
		lines[name] = key.Line
		fields = append(fields, field{name, value})
	}
	for _, name := range needed {
		if _, ok := lines[name]; !ok {
			return nil, errorAt(node, "%s%s: is missing", within, name)
		}
	}
	return fields, nil
}

// readText reads a string. Numbers and the like are not taken for one: YAML may have
// understood something else than was meant, such as 1e3 or 2026-03-05.
func readText(node *yaml.Node, what string) (string, error) {
	if err := checkKind(node, what, yaml.ScalarNode); err != nil {
		return "", err
	}
	if node.Tag != "!!str" {
		hint := ""
		if node.Tag != "!!null" && node.Style&yaml.TaggedStyle == 0 {
			hint = " (write it in quotes)"
		}
		return "", errorAt(node, "%s: want a string, got %s%s", what, describe(node), hint)
	}
	return node.Value, nil
}

// checkKind refuses nodes of other kinds, and anchors, aliases, merges and foreign tags.
func checkKind(node *yaml.Node, what string, kind yaml.Kind) error {
	switch {
	case node.Kind == yaml.AliasNode || node.Anchor != "":
		return errorAt(node, "%s: anchors and aliases are not supported: write it out", what)
	case node.Tag == "!!merge":
		return errorAt(node, "%s: merge keys are not supported: write it out", what)
	case node.Kind != kind, kind == yaml.MappingNode && node.Tag != "!!map", kind == yaml.SequenceNode && node.Tag != "!!seq":
		return errorAt(node, "%s: want %s, got %s", what, kindNames[kind], describe(node))
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

func errorAt(node *yaml.Node, format string, args ...any) error {
	return &Error{Line: node.Line, Column: node.Column, Reason: fmt.Sprintf(format, args...)}
}
