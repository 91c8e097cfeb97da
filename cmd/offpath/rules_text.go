package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/offpath-io/offpath/pkg/rules"
	"github.com/offpath-io/offpath/pkg/rules/envoyrules"
)

// ruleSet is a set of rules and the text that it was read from.
type ruleSet struct {
	*rules.Set
	text   []byte
	notOne error // why the text cannot be written, if it is of several files
}

// parseRules reads a text that is, or ought to be, a set.
func parseRules(text []byte) (*ruleSet, error) {
	set, err := envoyrules.Read(text)
	if err != nil {
		return nil, err
	}
	return &ruleSet{Set: set, text: text}, nil
}

// lineOf is a rule that was added to nothing, in one line: key: [user], limit: 15/second.
func lineOf(c rules.Change) string {
	parts := make([]string, len(c.Fields))
	for i, f := range c.Fields {
		parts[i] = f.Field + ": " + f.New
	}
	return strings.Join(parts, ", ")
}

// plain are the rules as values of JSON, with the fields of YAML that have not their default.
func (s *ruleSet) plain() ([]map[string]any, error) {
	text, err := s.Marshal()
	if err != nil {
		return nil, err
	}
	var file struct{ Rules []map[string]any }
	if err := yaml.Unmarshal(text, &file); err != nil {
		return nil, err // unreachable: it is YAML
	}
	return file.Rules, nil
}

// without returns the text without these rules. Comments stay, those of the rules apart; blank
// lines may not.
func without(text []byte, names []string) ([]byte, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, err // unreachable: it has been read before
	}
	list := fieldOf(document.Content[0], "rules")
	if list == nil {
		return nil, errors.New("the set is not in offpath's own format: change its file, and apply that")
	}
	for _, name := range names {
		at := slices.IndexFunc(list.Content, func(rule *yaml.Node) bool {
			field := fieldOf(rule, "name")
			return field != nil && field.Value == name
		})
		if at < 0 {
			return nil, fmt.Errorf("rule %q: there is no such rule", name)
		}
		list.Content = slices.Delete(list.Content, at, at+1)
	}
	return yaml.Dump(&document, yaml.WithV3Defaults(), yaml.WithIndent(2), yaml.WithLineWidth(-1))
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

// changesBetween says what becomes of each rule. Old may be nil, for nothing.
func changesBetween(old, new *ruleSet) []rules.Change {
	if old == nil {
		return rules.Diff(nil, new.Set)
	}
	return rules.Diff(old.Set, new.Set)
}

// changesText is a line for each rule, and for each field of those that change.
func changesText(changes []rules.Change) string {
	if len(changes) == 0 {
		return "no rule changes\n"
	}
	var b strings.Builder
	for _, c := range changes {
		fmt.Fprintln(&b, c)
	}
	return b.String()
}
