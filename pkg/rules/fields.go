package rules

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/offpath-io/offpath/pkg/rules/internal/node"
)

// reader reads the value of a field into a rule. what is the field's name, for errors. It says what is wrong with
// its form; whether the rule makes sense is for validate.
type reader func(at *yaml.Node, what string, r *Rule) error

// ruleFields are the fields of a rule, in the order in which errors list them and Marshal writes them.
var ruleFields = []struct {
	name string
	read reader
}{
	{"name", text(func(r *Rule) *string { return &r.Name })},
	{"match", func(at *yaml.Node, what string, r *Rule) (err error) {
		r.Match, err = readMatch(at, what)
		return err
	}},
	{"exclude", readExclude},
	{"exact", truth(func(r *Rule) *bool { return &r.Exact })},
	{"key", func(at *yaml.Node, what string, r *Rule) (err error) {
		r.Key, err = readTexts(at, what)
		return err
	}},
	{"on_missing", word(onMissingWords, 0, func(r *Rule) *OnMissing { return &r.OnMissing })},
	{"limit", readRuleLimit},
	{"buckets", func(at *yaml.Node, what string, r *Rule) (err error) {
		r.Window.Buckets, err = readWhole[int](at, what)
		return err
	}},
	{"algorithm", word(algorithmWords, 0, func(r *Rule) *Algorithm { return &r.Algorithm })},
	{"burst", func(at *yaml.Node, what string, r *Rule) (err error) {
		r.Burst, err = readWhole[int64](at, what)
		return err
	}},
	{"unlimited", truth(func(r *Rule) *bool { return &r.Unlimited })},
	{"enforcement", word(enforcementWords, 0, func(r *Rule) *Enforcement { return &r.Enforcement })},
	{"on_outage", word(onOutageWords, Share, func(r *Rule) *OnOutage { return &r.OnOutage })},
	{"throttle", word(throttleWords, 0, func(r *Rule) *ThrottleKind { return &r.Throttle.Kind })},
	{"soft", readSoft},
	{"elastic", readElastic},
	{"on_limit", readOnLimit},
	{"max_wait", readMaxWait},
	{"max_depth", func(at *yaml.Node, what string, r *Rule) (err error) {
		r.OnLimit.MaxDepth, err = readWhole[int](at, what)
		return err
	}},
	{"status", func(at *yaml.Node, what string, r *Rule) (err error) {
		r.Status, err = readWhole[int](at, what)
		return err
	}},
	{"shadow", truth(func(r *Rule) *bool { return &r.Shadow })},
	{"overrides", readOverrides},
	{"allow", func(at *yaml.Node, what string, r *Rule) (err error) {
		r.Allow, err = readLists(at, what)
		return err
	}},
	{"deny", func(at *yaml.Node, what string, r *Rule) (err error) {
		r.Deny, err = readLists(at, what)
		return err
	}},
	{"cost", text(func(r *Rule) *string { return &r.Cost })},
	{"count", word(countWords, 0, func(r *Rule) *Count { return &r.Count })},
	{"priority", readPriority},
	{"replaces", func(at *yaml.Node, what string, r *Rule) (err error) {
		r.Replaces, err = readTexts(at, what)
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
func readRule(at *yaml.Node) (r Rule, err error) {
	fields, err := node.Fields(at, "rule", ruleFieldNames, "name")
	if err != nil {
		return Rule{}, err
	}
	for _, f := range fields {
		place := slices.Index(ruleFieldNames, f.Name)
		if err := ruleFields[place].read(f.Value, f.Name, &r); err != nil {
			return Rule{}, err
		}
	}
	return r, readNeeds(at, fields, &r)
}

// readNeeds refuses a rule without the fields that it cannot be without, and says of what kind its throttle is if no
// field does.
func readNeeds(at *yaml.Node, fields []node.Field, r *Rule) error {
	switch {
	case r.Unlimited:
	case node.ValueOf(fields, "key") == nil:
		return node.Errorf(at, "key: is missing (key: [] is one counter for all)")
	case node.ValueOf(fields, "limit") == nil:
		return node.Errorf(at, "limit: is missing")
	}
	if node.ValueOf(fields, "throttle") == nil {
		switch {
		case node.ValueOf(fields, "elastic") != nil:
			r.Throttle.Kind = Elastic
		case node.ValueOf(fields, "soft") != nil:
			r.Throttle.Kind = Soft
		}
	}
	if empty := node.ValueOf(fields, "cost"); empty != nil && r.Cost == "" {
		return node.Errorf(empty, "cost: is empty")
	}
	return nil
}

func text(of func(*Rule) *string) reader {
	return func(at *yaml.Node, what string, r *Rule) (err error) {
		*of(r), err = node.Text(at, what)
		return err
	}
}

func truth(of func(*Rule) *bool) reader {
	return func(at *yaml.Node, what string, r *Rule) error {
		if err := node.Kind(at, what, yaml.ScalarNode); err != nil {
			return err
		}
		if at.Tag != "!!bool" || at.Value != "true" && at.Value != "false" {
			return node.Errorf(at, "%s: %.40q: want true or false", what, at.Value)
		}
		*of(r) = at.Value == "true"
		return nil
	}
}

// word reads one of the words from first on; its value is its place among them.
func word[T ~uint8](words []string, first T, of func(*Rule) *T) reader {
	return func(at *yaml.Node, what string, r *Rule) (err error) {
		place, err := readWord(at, what, words[first:])
		*of(r) = first + T(place)
		return err
	}
}

func readWord(at *yaml.Node, what string, words []string) (int, error) {
	text, err := node.Text(at, what)
	if err != nil {
		return 0, err
	}
	i := slices.Index(words, text)
	if i < 0 {
		return 0, node.Errorf(at, "%s: %.40q: want %s", what, text, strings.Join(words, " or "))
	}
	return i, nil
}

func readMatch(at *yaml.Node, what string) ([]Condition, error) {
	fields, err := node.Fields(at, what, nil)
	if err != nil {
		return nil, err
	}
	match := make([]Condition, len(fields))
	for i, f := range fields {
		value, err := node.Text(f.Value, fmt.Sprintf("%s: %.40q", what, f.Name))
		if err != nil {
			return nil, err
		}
		match[i].Name = f.Name
		match[i].Op, match[i].Value = parsePattern(value)
	}
	return match, nil
}

func readTexts(at *yaml.Node, what string) ([]string, error) {
	if err := node.Kind(at, what, yaml.SequenceNode); err != nil {
		return nil, err
	}
	texts := make([]string, len(at.Content))
	for i, entry := range at.Content {
		text, err := node.Text(entry, what)
		if err != nil {
			return nil, err
		}
		texts[i] = text
	}
	return texts, nil
}

// readWhole reads a whole number from 1.
func readWhole[T int | int64](at *yaml.Node, what string) (T, error) {
	if err := node.Kind(at, what, yaml.ScalarNode); err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(at.Value, 10, strconv.IntSize)
	// Plain decimal only: YAML reads 010 as eight and 1_0 as ten.
	if at.Tag != "!!int" || err != nil || strconv.FormatInt(n, 10) != at.Value || n < 1 {
		return 0, node.Errorf(at, "%s: %.40q: want a whole number from 1", what, at.Value)
	}
	return T(n), nil
}
