package strictyaml

import (
	"errors"
	"fmt"
	"strconv"

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

// truths are the words of YAML 1.1, of which YAML 1.2 has true and false.
var truths = map[string]bool{
	"true": true, "yes": true, "on": true, "false": false, "no": false, "off": false,
}

func describe(n *yaml.Node) string {
	if name, ok := tagNames[n.Tag]; ok {
		return name
	}
	return "something else"
}

// Entry is one entry of a mapping.
type Entry[V any] struct {
	Name  string
	Value V
}

// Mapping is a mapping whose order matters.
type Mapping[V any] []Entry[V]

// mapping is a Mapping of any values.
type mapping interface{ add(name string) (value any) }

// add adds an entry and returns a pointer to its value.
func (m *Mapping[V]) add(name string) any {
	*m = append(*m, Entry[V]{Name: name})
	return &(*m)[len(*m)-1].Value
}

// MarshalYAML is a node of a mapping.
func (m Mapping[V]) MarshalYAML() (any, error) {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, entry := range m {
		var name, value yaml.Node
		if err := errors.Join(name.Encode(entry.Name), value.Encode(entry.Value)); err != nil {
			return nil, err
		}
		n.Content = append(n.Content, &name, &value)
	}
	return n, nil
}

// Whole reads a whole number from a scalar, in plain decimal notation only: YAML reads 010 as eight
// and 1_0 as ten.
func Whole(n *yaml.Node, least, most int64) (int64, error) {
	value, err := strconv.ParseInt(n.Value, 10, 64)
	plain := n.Tag == "!!int" && err == nil && strconv.FormatInt(value, 10) == n.Value
	if !plain || value < least || value > most {
		return 0, fmt.Errorf("%.40q: want a whole number from %d to %d%s", n.Value, least, most,
			whole(n, least, most))
	}
	return value, nil
}
