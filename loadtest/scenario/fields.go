package scenario

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/offpath-io/offpath/pkg/rules"
)

// fields are the entries of a mapping.
type fields map[string]*yaml.Node

// plain refuses what YAML can do beyond fields, lists and values: anchors, aliases and tags. What
// the file says should be what one reads.
func plain(node *yaml.Node) error {
	switch {
	case node.Kind == yaml.AliasNode:
		return errorAt(node, "aliases (*%s) are not understood", node.Value)
	case node.Anchor != "":
		return errorAt(node, "anchors (&%s) are not understood", node.Anchor)
	case node.Style&yaml.TaggedStyle != 0:
		return errorAt(node, "tags (%s) are not understood", node.Tag)
	}
	for _, child := range node.Content {
		if err := plain(child); err != nil {
			return err
		}
	}
	return nil
}

// fieldsOf reads a mapping and refuses what is not in known, or twice, and the lack of what it
// needs.
func fieldsOf(node *yaml.Node, what string, needs []string, known ...string) (fields, error) {
	if node.Kind != yaml.MappingNode || node.Style&yaml.FlowStyle != 0 && what == "scenario" {
		return nil, errorAt(node, "%s: want fields, each on a line: %s", what, strings.Join(known, ", "))
	}
	f := make(fields)
	for i := 0; i < len(node.Content); i += 2 {
		name, value := node.Content[i], node.Content[i+1]
		switch {
		case !slices.Contains(known, name.Value):
			return nil, errorAt(name, "%s: unknown field %q: want %s", what, name.Value, strings.Join(known, ", "))
		case f[name.Value] != nil:
			return nil, errorAt(name, "%s: %s is there twice", what, name.Value)
		}
		f[name.Value] = value
	}
	for _, name := range needs {
		if f[name] == nil {
			return nil, errorAt(node, "%s: %s is missing", what, name)
		}
	}
	return f, nil
}

// errorAt returns an error at the place of a node; nil stands for no place.
func errorAt(node *yaml.Node, format string, args ...any) error {
	e := &rules.Error{Reason: fmt.Sprintf(format, args...)}
	if node != nil {
		e.Line, e.Column = node.Line, node.Column
	}
	return e
}

// into returns a function that reads a node into *p.
func into[T any](p *T, read func(*yaml.Node) (T, error)) func(*yaml.Node) error {
	return func(node *yaml.Node) (err error) {
		if node.Kind != yaml.ScalarNode || node.Tag == "!!null" {
			return errors.New("want a single value")
		}
		*p, err = read(node)
		return err
	}
}

func text(node *yaml.Node) (string, error) { return node.Value, nil }

func duration(node *yaml.Node) (time.Duration, error) {
	d, err := time.ParseDuration(node.Value)
	if err != nil {
		return 0, fmt.Errorf("%q: want a duration such as 20s", node.Value)
	}
	return d, nil
}

func whole(node *yaml.Node) (int, error) {
	n, err := strconv.Atoi(node.Value)
	if err != nil {
		return 0, fmt.Errorf("%q: want a whole number", node.Value)
	}
	return n, nil
}

func number(node *yaml.Node) (float64, error) { return parseNumber(node.Value) }

func parseNumber(text string) (float64, error) {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
		return 0, fmt.Errorf("%q: want a number", text)
	}
	return n, nil
}

func boolean(node *yaml.Node) (bool, error) {
	b, err := strconv.ParseBool(node.Value)
	if err != nil {
		return false, fmt.Errorf("%q: want true or false", node.Value)
	}
	return b, nil
}
