package rules

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// reader reads the value of a field into a rule. what is the field's name, for errors. It says what is wrong with
// its form; whether the rule makes sense is for validate.
type reader func(node *yaml.Node, what string, r *Rule) error

// ruleFields are the fields of a rule, in the order in which errors list them and Marshal writes them.
var ruleFields = []struct {
	name string
	read reader
}{
	{"name", text(func(r *Rule) *string { return &r.Name })},
	{"match", func(node *yaml.Node, what string, r *Rule) (err error) {
		r.Match, err = readMatch(node, what)
		return err
	}},
	{"exact", truth(func(r *Rule) *bool { return &r.Exact })},
	{"key", func(node *yaml.Node, what string, r *Rule) (err error) {
		r.Key, err = readTexts(node, what)
		return err
	}},
	{"on_missing", word(onMissingWords, 0, func(r *Rule) *OnMissing { return &r.OnMissing })},
	{"limit", readRuleLimit},
	{"buckets", func(node *yaml.Node, what string, r *Rule) (err error) {
		r.Window.Buckets, err = readWhole[int](node, what)
		return err
	}},
	{"algorithm", word(algorithmWords, 0, func(r *Rule) *Algorithm { return &r.Algorithm })},
	{"burst", func(node *yaml.Node, what string, r *Rule) (err error) {
		r.Burst, err = readWhole[int64](node, what)
		return err
	}},
	{"unlimited", truth(func(r *Rule) *bool { return &r.Unlimited })},
	{"enforcement", word(enforcementWords, 0, func(r *Rule) *Enforcement { return &r.Enforcement })},
	{"on_outage", word(onOutageWords, Open, func(r *Rule) *OnOutage { return &r.OnOutage })},
	{"throttle", word(throttleWords, 0, func(r *Rule) *ThrottleKind { return &r.Throttle.Kind })},
	{"soft", readSoft},
	{"elastic", readElastic},
	{"on_limit", readOnLimit},
	{"max_wait", readMaxWait},
	{"max_depth", func(node *yaml.Node, what string, r *Rule) (err error) {
		r.OnLimit.MaxDepth, err = readWhole[int](node, what)
		return err
	}},
	{"status", func(node *yaml.Node, what string, r *Rule) (err error) {
		r.Status, err = readWhole[int](node, what)
		return err
	}},
	{"shadow", truth(func(r *Rule) *bool { return &r.Shadow })},
	{"overrides", readOverrides},
	{"allow", func(node *yaml.Node, what string, r *Rule) (err error) {
		r.Allow, err = readLists(node, what)
		return err
	}},
	{"deny", func(node *yaml.Node, what string, r *Rule) (err error) {
		r.Deny, err = readLists(node, what)
		return err
	}},
	{"cost", text(func(r *Rule) *string { return &r.Cost })},
	{"count", word(countWords, 0, func(r *Rule) *Count { return &r.Count })},
	{"priority", readPriority},
	{"replaces", func(node *yaml.Node, what string, r *Rule) (err error) {
		r.Replaces, err = readTexts(node, what)
		return err
	}},
}

// ruleFieldNames are the names of ruleFields.
var ruleFieldNames = func() (names []string) {
	for _, f := range ruleFields {
		names = append(names, f.name)
	}
	return names
}()

// readRule makes a rule of its node.
func readRule(node *yaml.Node) (r Rule, err error) {
	fields, err := readFields(node, "rule", ruleFieldNames, "name")
	if err != nil {
		return Rule{}, err
	}
	for _, f := range fields {
		at := slices.Index(ruleFieldNames, f.name)
		if err := ruleFields[at].read(f.value, f.name, &r); err != nil {
			return Rule{}, err
		}
	}
	return r, readNeeds(node, fields, &r)
}

// readNeeds refuses a rule without the fields that it cannot be without, and says of what kind its throttle is if no
// field does.
func readNeeds(node *yaml.Node, fields []field, r *Rule) error {
	switch {
	case r.Unlimited:
	case valueOf(fields, "key") == nil:
		return errorAt(node, "key: is missing (key: [] is one counter for all)")
	case valueOf(fields, "limit") == nil:
		return errorAt(node, "limit: is missing")
	}
	if valueOf(fields, "throttle") == nil {
		switch {
		case valueOf(fields, "elastic") != nil:
			r.Throttle.Kind = Elastic
		case valueOf(fields, "soft") != nil:
			r.Throttle.Kind = Soft
		}
	}
	if empty := valueOf(fields, "cost"); empty != nil && r.Cost == "" {
		return errorAt(empty, "cost: is empty")
	}
	return nil
}

func text(of func(*Rule) *string) reader {
	return func(node *yaml.Node, what string, r *Rule) (err error) {
		*of(r), err = readText(node, what)
		return err
	}
}

func truth(of func(*Rule) *bool) reader {
	return func(node *yaml.Node, what string, r *Rule) error {
		if err := checkKind(node, what, yaml.ScalarNode); err != nil {
			return err
		}
		if node.Tag != "!!bool" || node.Value != "true" && node.Value != "false" {
			return errorAt(node, "%s: %.40q: want true or false", what, node.Value)
		}
		*of(r) = node.Value == "true"
		return nil
	}
}

// word reads one of the words from first on; its value is its place among them.
func word[T ~uint8](words []string, first T, of func(*Rule) *T) reader {
	return func(node *yaml.Node, what string, r *Rule) (err error) {
		at, err := readWord(node, what, words[first:])
		*of(r) = first + T(at)
		return err
	}
}

func readWord(node *yaml.Node, what string, words []string) (int, error) {
	text, err := readText(node, what)
	if err != nil {
		return 0, err
	}
	i := slices.Index(words, text)
	if i < 0 {
		return 0, errorAt(node, "%s: %.40q: want %s", what, text, strings.Join(words, " or "))
	}
	return i, nil
}

func readMatch(node *yaml.Node, what string) ([]Condition, error) {
	fields, err := readFields(node, what, nil)
	if err != nil {
		return nil, err
	}
	match := make([]Condition, len(fields))
	for i, f := range fields {
		value, err := readText(f.value, fmt.Sprintf("%s: %.40q", what, f.name))
		if err != nil {
			return nil, err
		}
		match[i].Name = f.name
		match[i].Op, match[i].Value = parsePattern(value)
	}
	return match, nil
}

func readTexts(node *yaml.Node, what string) ([]string, error) {
	if err := checkKind(node, what, yaml.SequenceNode); err != nil {
		return nil, err
	}
	texts := make([]string, len(node.Content))
	for i, entry := range node.Content {
		text, err := readText(entry, what)
		if err != nil {
			return nil, err
		}
		texts[i] = text
	}
	return texts, nil
}

// readWhole reads a whole number from 1.
func readWhole[T int | int64](node *yaml.Node, what string) (T, error) {
	if err := checkKind(node, what, yaml.ScalarNode); err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(node.Value, 10, strconv.IntSize)
	// Plain decimal only: YAML reads 010 as eight and 1_0 as ten.
	if node.Tag != "!!int" || err != nil || strconv.FormatInt(n, 10) != node.Value || n < 1 {
		return 0, errorAt(node, "%s: %.40q: want a whole number from 1", what, node.Value)
	}
	return T(n), nil
}
