package rules

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"
	"pgregory.net/rapid"
)

// schemaForTest compiles the schema. Compiling also checks it against the schema of schemas.
func schemaForTest(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
	must(t, err)
	c := jsonschema.NewCompiler()
	must(t, c.AddResource("rules.json", doc))
	compiled, err := c.Compile("rules.json")
	must(t, err)
	return compiled
}

// plainOf is YAML as an editor's language server reads it: by YAML 1.2, which has no dates.
func plainOf(n *yaml.Node) any {
	switch n.Kind {
	case yaml.DocumentNode:
		return plainOf(n.Content[0])
	case yaml.MappingNode:
		all := make(map[string]any)
		for i := 0; i+1 < len(n.Content); i += 2 {
			all[n.Content[i].Value] = plainOf(n.Content[i+1])
		}
		return all
	case yaml.SequenceNode:
		all := []any{}
		for _, one := range n.Content {
			all = append(all, plainOf(one))
		}
		return all
	}
	switch n.Tag {
	case "!!int", "!!float":
		return json.Number(strings.TrimLeft(strings.ReplaceAll(n.Value, "_", ""), "0") + map[bool]string{true: "0"}[strings.Trim(n.Value, "0") == ""])
	case "!!bool":
		is, err := strconv.ParseBool(n.Value)
		if err != nil {
			return n.Value // yes and no are strings
		}
		return is
	case "!!null":
		return nil
	}
	return n.Value
}

func validates(t *testing.T, s *jsonschema.Schema, text string) error {
	t.Helper()
	var n yaml.Node
	must(t, yaml.Unmarshal([]byte(text), &n))
	return s.Validate(plainOf(&n))
}

// TestSchemaAcceptsEveryFile of the repository that Parse accepts.
func TestSchemaAcceptsEveryFile(t *testing.T) {
	s := schemaForTest(t)
	paths, err := filepath.Glob("../../deploy/rules/*.yaml")
	must(t, err)
	texts := []string{allFields}
	for _, path := range append(paths, "../../deploy/rules.yaml") {
		text, err := os.ReadFile(path)
		must(t, err)
		texts = append(texts, string(text))
	}
	doc, err := os.ReadFile("../../docs/rules.md")
	must(t, err)
	for _, example := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(doc), -1) {
		text := example[1]
		if strings.HasPrefix(text, "- ") {
			text = "rules:\n" + text
		}
		if !strings.Contains(text, "domain:") { // which is of envoyproxy/ratelimit
			texts = append(texts, text)
		}
	}
	if len(texts) < 30 {
		t.Fatalf("found %d files", len(texts))
	}
	for _, text := range texts {
		if _, err := Parse([]byte(text)); err != nil {
			t.Errorf("%v in\n%s", err, text)
		}
		if err := validates(t, s, text); err != nil {
			t.Errorf("%v in\n%s", err, text)
		}
	}
}

// TestSchemaAcceptsWhatMarshalWrites: any set of rules.
func TestSchemaAcceptsWhatMarshalWrites(t *testing.T) {
	s := schemaForTest(t)
	rapid.Check(t, func(t *rapid.T) {
		text, err := randomSet(t).Marshal()
		must(t, err)
		var n yaml.Node
		must(t, yaml.Unmarshal(text, &n))
		if err := s.Validate(plainOf(&n)); err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
	})
}

// notInSchema are the reasons that a schema cannot express: other rules, sums, lengths in bytes,
// the forms of addresses and paths, and what YAML has made of the text before.
var notInSchema = regexp.MustCompile(strings.Join([]string{
	`there is no rule`, `is this rule itself`, `is unlimited, so there is no use`, `is the name of rule`,
	`the rules that this one replaces`, `want no circle`, `would be called`, `the rule's name has`,
	`keep one of them`, `is not a whole number of milliseconds`, `leaves less than one hit`,
	`want 1 to 1000000000000000: to limit nobody`, `hits: want 1 to \d+$`, `at most 366 days`, `span "0s": want more than 0`,
	`up_to: 100%: want more`, `below: is missing or 0%`, `exceed: is missing or 0%`, `exceed: 1000.1%`, `10[01]%: want more`, `0%: want more`,
	`1h1m0s: want whole`, `00000[01]x: want`, `0x": want more than 0`, `1.000001e\+06x`,
	`is in lower case`, `want an address or a prefix`, `has bits behind the prefix`, `IPv4 within IPv6`,
	`tag "!`, `anchors and aliases`, `merge keys`, `want the name of a field`, `contains '\\u200b'`,
	`so this has no meaning`, `there is no limit that this`, `burst: sliding_window has none`, `0001-01-01`,
	`"010": want`, `"1_0": want`, `"1e1": want`, `want at most 64`, `max_wait: "0s"`,
}, "|"))

// TestSchemaRefusesMistakes: each mistake of one rule is refused by Parse and by the schema, unless
// a schema cannot express it; and what Parse accepts the schema accepts.
func TestSchemaRefusesMistakes(t *testing.T) {
	s := schemaForTest(t)
	all, err := os.ReadFile("testdata/refusals.yaml")
	must(t, err)
	refused, accepted := 0, 0
	for line := range strings.Lines(string(all)) {
		rule, _, _ := strings.Cut(line, " # want ")
		if !strings.HasPrefix(rule, "- ") {
			continue
		}
		text := "rules:\n" + strings.TrimRight(rule, "\n") + "\n"
		var n yaml.Node
		if yaml.Unmarshal([]byte(text), &n) != nil {
			continue
		}
		_, mistake := Parse([]byte(text))
		err := s.Validate(plainOf(&n))
		switch {
		case mistake == nil && err != nil:
			t.Errorf("Parse accepts %s, and the schema does not: %v", rule, err)
		case mistake == nil:
			accepted++
		case err != nil:
			refused++
		default:
			for m := range strings.SplitSeq(mistake.Error(), "\n") {
				if !notInSchema.MatchString(m) {
					t.Errorf("the schema accepts %s: %s", strings.TrimSpace(rule), m)
				}
			}
		}
	}
	if refused < 150 || accepted < 5 {
		t.Errorf("%d refused by both, %d accepted by both", refused, accepted)
	}
}

// TestSchemaDescribesEveryField, so that an editor shows it.
func TestSchemaDescribesEveryField(t *testing.T) {
	paths := make(map[string]bool)
	var walk func(at reflect.Type, path string)
	walk = func(at reflect.Type, path string) {
		for at.Kind() == reflect.Pointer {
			at = at.Elem()
		}
		_, leaf := reflect.Zero(at).Interface().(described)
		switch {
		case leaf:
		case at.Kind() == reflect.Slice && at.Elem().Kind() != reflect.String && !strings.Contains(at.String(), "Mapping"):
			walk(at.Elem(), path+"[]")
		case at.Kind() == reflect.Struct:
			for field := range at.Fields() {
				name, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
				below := strings.TrimPrefix(path+"."+name, ".")
				paths[below] = true
				walk(field.Type, below)
			}
		}
	}
	walk(reflect.TypeFor[file](), "")
	for path := range paths {
		if abouts[path] == "" {
			t.Errorf("%s has no description", path)
		}
	}
	for path := range abouts {
		if !paths[path] {
			t.Errorf("%s is described, and is no field", path)
		}
	}
	for path := range constraints {
		if field := strings.TrimSuffix(path, "[]"); !paths[field] {
			t.Errorf("%s is constrained, and is no field", path)
		}
	}
}
