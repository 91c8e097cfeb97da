package rules

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/offpath-io/offpath/pkg/identity"
)

var (
	// ruleFields are the fields of a rule, in the order in which errors list them.
	ruleFields = []string{"name", "match", "key", "on_missing", "limit", "buckets", "algorithm", "enforcement", "on_outage"}
	// ruleNeeds are those that it cannot be without.
	ruleNeeds = []string{"name", "key", "limit"}
)

// field is one entry of a mapping.
type field struct {
	name  string
	value *yaml.Node
}

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
	set := &Set{byName: make(map[string]*Rule, len(list.Content))}
	for _, node := range list.Content {
		fields, err := readFields(node, "rule", ruleFields, ruleNeeds...)
		if err != nil {
			return nil, err
		}
		rule, err := readRule(fields)
		if err != nil {
			return nil, err
		}
		if f := set.add(rule); f != nil {
			return nil, errorAt(placeOf(f, node, fields), "%s: %s", f.field, f.reason)
		}
	}
	return set, nil
}

// placeOf is where the fault is: the entry, the field, or the rule that lacks it.
func placeOf(f *fault, rule *yaml.Node, fields []field) *yaml.Node {
	for _, one := range fields {
		switch {
		case one.name != f.field:
		case f.item < 0:
			return one.value
		case one.value.Kind == yaml.MappingNode: // keys and values by turns
			return one.value.Content[2*f.item]
		default:
			return one.value.Content[f.item]
		}
	}
	return rule
}

// readRule makes a rule of its fields. It says what is wrong with their form; whether
// the rule makes sense is for validate.
func readRule(fields []field) (r Rule, err error) {
	for _, f := range fields {
		switch f.name {
		case "name":
			r.Name, err = readText(f.value, f.name)
		case "match":
			r.Match, err = readMatch(f.value)
		case "key":
			r.Key, err = readKey(f.value)
		case "on_missing":
			r.OnMissing, err = readWord[OnMissing](f, onMissingWords)
		case "on_outage":
			r.OnOutage, err = readWord[OnOutage](f, onOutageWords[Open:])
			r.OnOutage += Open
		case "enforcement":
			r.Enforcement, err = readWord[Enforcement](f, enforcementWords)
		case "limit":
			err = readLimit(f.value, &r)
		case "buckets":
			r.Window.Buckets, err = readBuckets(f.value)
		case "algorithm":
			var fixed int
			fixed, err = readWord[int](f, []string{"sliding_window", "fixed_window"})
			r.Window.Fixed = fixed == 1
		}
		if err != nil {
			return Rule{}, err
		}
	}
	return r, nil
}

func readMatch(node *yaml.Node) ([]identity.Attribute, error) {
	fields, err := readFields(node, "match", nil)
	if err != nil {
		return nil, err
	}
	match := make([]identity.Attribute, len(fields))
	for i, f := range fields {
		value, err := readText(f.value, fmt.Sprintf("match: %.40q", f.name))
		if err != nil {
			return nil, err
		}
		match[i] = identity.Attribute{Name: f.name, Value: value}
	}
	return match, nil
}

func readKey(node *yaml.Node) ([]string, error) {
	if err := checkKind(node, "key", yaml.SequenceNode); err != nil {
		return nil, err
	}
	key := make([]string, len(node.Content))
	for i, entry := range node.Content {
		name, err := readText(entry, "key")
		if err != nil {
			return nil, err
		}
		key[i] = name
	}
	return key, nil
}

func readLimit(node *yaml.Node, r *Rule) error {
	text, err := readText(node, "limit")
	if err != nil {
		return err
	}
	r.Limit, r.Window.Length, err = parseLimit(text)
	if err != nil {
		return errorAt(node, "limit: %.40q: %v", text, err)
	}
	return nil
}

func readBuckets(node *yaml.Node) (int, error) {
	if err := checkKind(node, "buckets", yaml.ScalarNode); err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(node.Value)
	// Plain decimal only: YAML reads 010 as eight and 1_0 as ten.
	if node.Tag != "!!int" || err != nil || strconv.Itoa(n) != node.Value || n < 1 {
		return 0, errorAt(node, "buckets: %.40q: want a whole number from 1", node.Value)
	}
	return n, nil
}

// readWord reads one of the words; its value is its place among them.
func readWord[T ~int | ~uint8](f field, words []string) (T, error) {
	text, err := readText(f.value, f.name)
	if err != nil {
		return 0, err
	}
	i := slices.Index(words, text)
	if i < 0 {
		return 0, errorAt(f.value, "%s: %.40q: want %s", f.name, text, strings.Join(words, " or "))
	}
	return T(i), nil
}
