package rules

import (
	"fmt"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v4"
)

// Marshal writes the set as YAML, which Parse reads back to an equal set. It leaves out defaults,
// so equal sets are written the same. The error is an *Error, for a set that is longer than
// MaxSize.
func (s *Set) Marshal() ([]byte, error) {
	list := make([]*yaml.Node, len(s.rules))
	for i, r := range s.rules {
		node, err := nodeOf(r)
		if err != nil {
			return nil, &Error{Reason: err.Error()}
		}
		list[i] = node
	}
	text, err := yaml.Dump(map[string]any{"rules": list},
		yaml.WithV3Defaults(), yaml.WithIndent(2), yaml.WithLineWidth(-1))
	if err != nil {
		return nil, &Error{Reason: err.Error()}
	}
	if len(text) > MaxSize {
		reason := fmt.Sprintf("has %d bytes as YAML: want at most %d", len(text), MaxSize)
		return nil, &Error{Reason: reason}
	}
	return text, nil
}

// nodeOf writes the rule of a set: each field on a line of its own, and each override.
func nodeOf(r *Rule) (*yaml.Node, error) {
	node := &yaml.Node{}
	if err := node.Encode(fileOf(r)); err != nil {
		return nil, err
	}
	quoteUnprintable(node)
	for i := 0; i < len(node.Content); i += 2 {
		lines := node.Content[i+1 : i+2]
		if node.Content[i].Value == "overrides" {
			lines = lines[0].Content
		}
		for _, line := range lines {
			line.Style |= yaml.FlowStyle
		}
	}
	return node, nil
}

// quoteUnprintable puts strings in quotes that are not plainly printable. The library puts a string
// in quotes if it must, but not wherever a line of the text would change.
func quoteUnprintable(n *yaml.Node) {
	unprintable := func(c rune) bool { return !unicode.IsPrint(c) }
	if n.Kind == yaml.ScalarNode && strings.ContainsFunc(n.Value, unprintable) {
		n.Style = yaml.DoubleQuotedStyle
	}
	for _, part := range n.Content {
		quoteUnprintable(part)
	}
}
