package main

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/offpath-io/offpath/cmd/internal/rulesfile"
	"github.com/offpath-io/offpath/pkg/rules"
)

// ruleSet is a set of rules with its text, from which every field can be shown as it was written.
type ruleSet struct {
	set   *rules.Set
	text  []byte
	nodes map[string]*yaml.Node // each rule's mapping
}

// parseRules reads a text that is, or ought to be, a set.
func parseRules(text []byte) (*ruleSet, error) {
	set, err := rulesfile.Read(text)
	if err != nil {
		return nil, err
	}
	return newRuleSet(set, text)
}

func newRuleSet(set *rules.Set, text []byte) (*ruleSet, error) {
	s := &ruleSet{set: set, text: text, nodes: make(map[string]*yaml.Node)}
	_, list, err := ruleList(text)
	if err != nil {
		return nil, err
	}
	for _, rule := range list.Content {
		s.nodes[textOf(fieldOf(rule, "name"))] = rule
	}
	return s, nil
}

// ruleList returns the document of a good set, and in it the list of rules.
func ruleList(text []byte) (document, list *yaml.Node, err error) {
	document = new(yaml.Node)
	if err := yaml.Unmarshal(text, document); err != nil {
		return nil, nil, err // unreachable: it has been read before
	}
	if len(document.Content) == 1 {
		if list := fieldOf(document.Content[0], "rules"); list != nil {
			return document, list, nil
		}
	}
	return nil, nil, errors.New("the rules are not a list: they are in another format than offpath's own")
}

// fieldOf returns the value of a mapping's field, or nil.
func fieldOf(mapping *yaml.Node, name string) *yaml.Node {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == name {
			return mapping.Content[i+1]
		}
	}
	return nil
}

func textOf(node *yaml.Node) string {
	if node == nil {
		return ""
	}
	return node.Value
}

// fields are a rule's fields but its name, in order, each with its value in one line.
func (s *ruleSet) fields(name string) (names []string, values map[string]string) {
	values = make(map[string]string)
	rule := s.nodes[name]
	if rule == nil {
		return nil, values
	}
	for i := 0; i+1 < len(rule.Content); i += 2 {
		if field := rule.Content[i].Value; field != "name" {
			names = append(names, field)
			values[field] = oneLine(rule.Content[i+1])
		}
	}
	return names, values
}

// line is a rule in one line: key: [user], limit: 15/second.
func (s *ruleSet) line(name string) string {
	names, values := s.fields(name)
	parts := make([]string, len(names))
	for i, field := range names {
		parts[i] = field + ": " + values[field]
	}
	return strings.Join(parts, ", ")
}

// oneLine writes a value in one line, without its comments.
func oneLine(node *yaml.Node) string {
	text, err := yaml.Marshal(flowing(node))
	if err != nil { // unreachable: it has been read before
		return err.Error()
	}
	return strings.Join(strings.Fields(string(text)), " ")
}

func flowing(node *yaml.Node) *yaml.Node {
	flow := *node
	flow.HeadComment, flow.LineComment, flow.FootComment = "", "", ""
	if flow.Kind != yaml.ScalarNode {
		flow.Style = yaml.FlowStyle
	}
	flow.Content = make([]*yaml.Node, len(node.Content))
	for i, child := range node.Content {
		flow.Content[i] = flowing(child)
	}
	return &flow
}

// without returns the text without these rules. Comments stay, those of the rules apart; blank lines may not.
func without(text []byte, names []string) ([]byte, error) {
	document, list, err := ruleList(text)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		at := slices.IndexFunc(list.Content, func(rule *yaml.Node) bool { return textOf(fieldOf(rule, "name")) == name })
		if at < 0 {
			return nil, fmt.Errorf("rule %q: there is no such rule", name)
		}
		list.Content = slices.Delete(list.Content, at, at+1)
	}
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	if err := errors.Join(encoder.Encode(document), encoder.Close()); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// change is what becomes of one rule.
type change struct {
	Rule   string        `json:"rule"`
	What   string        `json:"what"` // added, removed or changed
	Fields []fieldChange `json:"fields,omitempty"`
}

// fieldChange is what becomes of one field of a rule that stays; "" is a field that is not there.
type fieldChange struct {
	Field string `json:"field"`
	Old   string `json:"old"`
	New   string `json:"new"`
}

// changesBetween says what becomes of each rule: of the old set's in its order, and then of new ones. Either may be nil.
func changesBetween(old, new *ruleSet) []change {
	changes := []change{}
	for _, rule := range old.rules() {
		now, stays := new.lookup(rule.Name)
		switch {
		case !stays:
			changes = append(changes, change{Rule: rule.Name, What: "removed"})
		case !reflect.DeepEqual(rule, now):
			changes = append(changes, change{Rule: rule.Name, What: "changed", Fields: fieldChanges(old, new, rule.Name)})
		}
	}
	for _, rule := range new.rules() {
		if _, was := old.lookup(rule.Name); !was {
			changes = append(changes, change{Rule: rule.Name, What: "added"})
		}
	}
	return changes
}

func (s *ruleSet) rules() []*rules.Rule {
	if s == nil {
		return nil
	}
	return s.set.Rules()
}

func (s *ruleSet) lookup(name string) (*rules.Rule, bool) {
	if s == nil {
		return nil, false
	}
	return s.set.Lookup(name)
}

func fieldChanges(old, new *ruleSet, name string) (changes []fieldChange) {
	names, were := old.fields(name)
	more, are := new.fields(name)
	for _, field := range more {
		if _, was := were[field]; !was {
			names = append(names, field)
		}
	}
	for _, field := range names {
		if were[field] != are[field] {
			changes = append(changes, fieldChange{field, were[field], are[field]})
		}
	}
	return changes
}
