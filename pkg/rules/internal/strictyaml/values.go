package strictyaml

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v4"
)

// The tags of what may stand in a document.
const (
	strTag   = "!!str"
	nullTag  = "!!null"
	mergeTag = "!!merge"
)

var tagNames = map[string]string{
	"!!map": "a mapping", "!!seq": "a list", strTag: "a string", nullTag: "nothing",
	"!!int": "a number", "!!float": "a number", "!!bool": "a truth value",
	"!!timestamp": "a date", mergeTag: "a merge key",
}

func describe(n *yaml.Node) string {
	if name, ok := tagNames[n.Tag]; ok {
		return name
	}
	return "something else"
}

// quotes is the remedy for what YAML did not take for a string.
func quotes(n *yaml.Node) string {
	if n.Kind == yaml.ScalarNode && n.Tag != nullTag && n.Style&yaml.TaggedStyle == 0 {
		return " (write it in quotes)"
	}
	return ""
}

// Text is a string. Numbers and the like are not taken for one: YAML may have understood something
// else than was meant, such as 1e3 or 2026-03-05.
type Text string

// UnmarshalYAML refuses everything but strings.
func (t *Text) UnmarshalYAML(n *yaml.Node) error {
	switch {
	case n.Kind != yaml.ScalarNode:
		return fmt.Errorf("want a single value, got %s", describe(n))
	case n.Tag != strTag:
		return fmt.Errorf("want a string, got %s%s", describe(n), quotes(n))
	}
	*t = Text(n.Value)
	return nil
}

// MarshalYAML is a node. The library puts a string in quotes if it must, but not wherever a line of
// the text would change, so what is not plainly printable is always in quotes.
func (t Text) MarshalYAML() (any, error) { return t.node(), nil }

func (t Text) node() *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: strTag, Value: string(t)}
	if strings.ContainsFunc(string(t), func(c rune) bool { return !unicode.IsPrint(c) }) {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

// Scalar is any single value, as it is written.
type Scalar string

// UnmarshalYAML refuses lists and mappings.
func (s *Scalar) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.ScalarNode {
		return fmt.Errorf("want a single value, got %s", describe(n))
	}
	*s = Scalar(n.Value)
	return nil
}

// Texts is a list of strings.
type Texts []string

// UnmarshalYAML refuses everything but lists of strings.
func (t *Texts) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.SequenceNode {
		return fmt.Errorf("want a list, got %s", describe(n))
	}
	var wrong mistakes
	*t = make(Texts, len(n.Content))
	for i, entry := range n.Content {
		if entry.Tag != nullTag { // which has been refused already
			wrong.add(entry, (*Text)(&(*t)[i]).UnmarshalYAML(entry))
		}
	}
	return wrong.err()
}

// MarshalYAML is a node of a list on one line.
func (t Texts) MarshalYAML() (any, error) { return t.node(), nil }

func (t Texts) node() *yaml.Node {
	n := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
	for _, text := range t {
		n.Content = append(n.Content, Text(text).node())
	}
	return n
}

// Entry is one entry of a mapping.
type Entry[V Text | Texts] struct {
	Name  string
	Value V
}

// Mapping is a mapping whose order matters.
type Mapping[V Text | Texts] []Entry[V]

// UnmarshalYAML refuses everything but mappings to such values.
func (m *Mapping[V]) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.MappingNode {
		return fmt.Errorf("want a mapping, got %s", describe(n))
	}
	var wrong mistakes
	*m = make(Mapping[V], 0, len(n.Content)/2)
	for i := 0; i < len(n.Content); i += 2 {
		if n.Content[i].Tag == nullTag { // likewise refused already
			continue
		}
		entry, value := Entry[V]{Name: n.Content[i].Value}, n.Content[i+1]
		if value.Tag != nullTag {
			wrong.add(value, any(&entry.Value).(yaml.Unmarshaler).UnmarshalYAML(value))
		}
		*m = append(*m, entry)
	}
	return wrong.err()
}

// MarshalYAML is a node of a mapping on one line.
func (m Mapping[V]) MarshalYAML() (any, error) {
	n := &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}
	for _, entry := range m {
		value := any(entry.Value).(interface{ node() *yaml.Node })
		n.Content = append(n.Content, Text(entry.Name).node(), value.node())
	}
	return n, nil
}

// Truth is a truth value in the words of YAML 1.2.
type Truth bool

// UnmarshalYAML refuses everything but true and false.
func (t *Truth) UnmarshalYAML(n *yaml.Node) error {
	if n.Tag != "!!bool" || n.Value != "true" && n.Value != "false" {
		return fmt.Errorf("%.40q: want true or false", n.Value)
	}
	*t = n.Value == "true"
	return nil
}

// Whole reads a whole number from a scalar, in plain decimal notation only: YAML reads 010 as eight
// and 1_0 as ten.
func Whole(n *yaml.Node, least, most int64) (int64, error) {
	value, err := strconv.ParseInt(n.Value, 10, 64)
	plain := n.Tag == "!!int" && err == nil && strconv.FormatInt(value, 10) == n.Value
	if !plain || value < least || value > most {
		return 0, fmt.Errorf("%.40q: want a whole number from %d to %d", n.Value, least, most)
	}
	return value, nil
}

// mistakes collects what is wrong with the parts of one value.
type mistakes []*yaml.LoadError

func (m *mistakes) add(at *yaml.Node, err error) {
	switch parts, ok := err.(*yaml.LoadErrors); {
	case ok:
		*m = append(*m, parts.Errors...)
	case err != nil:
		mark := yaml.Mark{Line: at.Line, Column: at.Column}
		*m = append(*m, yaml.NewLoadError(yaml.ConstructorStage, err.Error(), mark, err))
	}
}

func (m mistakes) err() error {
	if len(m) == 0 {
		return nil
	}
	return &yaml.LoadErrors{Errors: m}
}
