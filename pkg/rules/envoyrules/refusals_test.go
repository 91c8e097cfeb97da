package envoyrules

import (
	"fmt"
	"strings"
	"testing"

	"github.com/offpath-io/offpath/internal/testing/refusaltest"
	"github.com/offpath-io/offpath/pkg/rules"
)

// with is a file with this descriptor, from line 3, column 5 on.
func with(descriptor string) string {
	return "domain: d\ndescriptors:\n  - " + strings.ReplaceAll(descriptor, "\n", "\n    ") + "\n"
}

const ok = "rate_limit: {unit: second, requests_per_unit: 1}"

// All mistakes of a file are told at once, in its order. The mistakes are comments in the file.
func TestRefusals(t *testing.T) {
	refusaltest.Check(t, "testdata/refusals.yaml", func(document []byte) error {
		_, err := Import(document)
		return err
	})
}

// laughs would be 9^9 descriptors.
func laughs() string {
	text := "domain: d\ndescriptors:\n- {key: a, descriptors: &a0 [{key: b}]}\n"
	for i := range 9 {
		nested := strings.Repeat(fmt.Sprintf("{key: b, descriptors: *a%d},", i), 9)
		text += fmt.Sprintf("- {key: a, value: v%d, descriptors: &a%d [%s]}\n", i, i+1, nested)
	}
	return text
}

// many has 1,000 values beside a key under which there are 1,000 limits.
func many() string {
	var text strings.Builder
	text.WriteString("domain: d\ndescriptors:\n- key: a\n  descriptors:\n")
	for i := range 1000 {
		fmt.Fprintf(&text, "  - {key: b%d, %s}\n", i, ok)
	}
	for i := range 1000 {
		fmt.Fprintf(&text, "- {key: a, value: v%d}\n", i)
	}
	return text.String()
}

// Anchors and merges read as if they were written out.
func TestAnchors(t *testing.T) {
	short := "domain: d\ndescriptors:\n- &a {key: a, rate_limit: &l {unit: second, requests_per_unit: 1}}\n- {<<: *a, value: x}\n" +
		"- {key: b, rate_limit: {<<: [{unit: hour}, *l], requests_per_unit: 2}}\n- {key: c, rate_limit: *l}\n"
	long := "domain: d\ndescriptors:\n- {key: a, rate_limit: {unit: second, requests_per_unit: 1}}\n- {key: a, value: x, rate_limit: {unit: second, requests_per_unit: 1}}\n" +
		"- {key: b, rate_limit: {unit: hour, requests_per_unit: 2}}\n- {key: c, rate_limit: {unit: second, requests_per_unit: 1}}\n"
	a, err := Import([]byte(short))
	must(t, err)
	b, err := Import([]byte(long))
	must(t, err)
	if changes := rules.Diff(a, b); len(changes) > 0 {
		t.Errorf("differ by %v", changes)
	}
}

// Names that are aliases, collections with a scalar's tag, and nesting without end are refused,
// soon.
func TestHostileFiles(t *testing.T) {
	const aliased = "domain: &key descriptors\ndescriptors:\n- key: a\n  *key :\n  - key: b\n"
	var chain strings.Builder
	chain.WriteString("domain: d\ndescriptors:\n- key: z\n  metadata:\n  - &a0 {key: k0, rate_limit: {unit: day, requests_per_unit: 1}}\n")
	for i := 1; i < 15_000; i++ {
		fmt.Fprintf(&chain, "  - &a%d {key: k%d, descriptors: [*a%d]}\n", i, i, i-1)
	}
	chain.WriteString("- *a14999\n")
	merges := "domain: d\ndescriptors:\n- &a0 {key: a}\n"
	for i := range 9 {
		merges += fmt.Sprintf("- &a%d {value: v%[1]d, <<: [%s]}\n", i+1, strings.Repeat(fmt.Sprintf("*a%d,", i), 9))
	}
	wrong := "domain: d\ndescriptors:\n- &a {key: a"
	for i := range 90 {
		wrong += fmt.Sprintf(", foo%d: 1", i)
	}
	wrong += "}\n- {key: b, descriptors: [" + strings.Repeat("*a,", 3000) + "]}\n"
	empty := "domain: d\ndescriptors:\n- {metadata: &a {" + strings.Repeat("<<: [],", 4000) + "}, <<: [" +
		strings.Repeat("*a,", 4000) + "], key: a, " + ok + "}\n"
	deep := "domain: d\ndescriptors: " + strings.Repeat("[{key: a, descriptors: ", 4000) + "[" +
		strings.Repeat("{key: x, foo: 1},", 20_000) + "]" + strings.Repeat("}]", 4000)
	for _, tt := range []struct{ why, text, want string }{
		{"an alias for a name, and a bad limit", aliased + "    rate_limit: foo\n", "rate_limit"},
		{"an alias for a name, and an unknown field", aliased + "    foo: foo\n", "foo"},
		{"a mapping that says it is a number", with("key: a\nrate_limit: !!int {unit: day, requests_per_unit: 1}"), `the tag "!!int" is not supported here`},
		{"a list that says it is null", "domain: d\ndescriptors: !!null\n- key: a\n", "not supported here"},
		{"a long chain of aliases", chain.String(), "aliases nest the file too deep"},
		{"deep, with many mistakes", deep, "max depth"},
		{"aliases of aliases", laughs(), "line 3, column 30: aliases make the file too large"},
		{"a million overrides", many(), "their rules would exclude more than 200000"},
		{"wildcards that begin alike, without limits", wildcards(5000, "{key: k, value: '*%d'}"), "too many wildcards of these files begin alike"},
		{"merges of merges", merges, "line 4, column 32: aliases make the file too large"},
		{"aliases of unknown fields", wrong, "aliases make the file too large"},
		{"many merges of nothing", empty, "aliases make the file too large"},
	} {
		_, err := Read([]byte(tt.text))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.why, err, tt.want)
		}
	}
}
