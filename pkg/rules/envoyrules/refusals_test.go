package envoyrules

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/offpath-io/offpath/pkg/rules"
)

// with is a file with this descriptor, from line 3, column 5 on.
func with(descriptor string) string {
	return "domain: d\ndescriptors:\n  - " + strings.ReplaceAll(descriptor, "\n", "\n    ") + "\n"
}

const ok = "rate_limit: {unit: second, requests_per_unit: 1}"

func TestRefusals(t *testing.T) {
	limited := func(limit string) string { return with("key: a\nrate_limit: {" + limit + "}") }
	for _, tt := range []struct{ why, text, want string }{
		{"no domain", "descriptors: []\n", "1:1: domain: is missing"},
		{"an empty domain", "domain: ''\n", "1:9: domain: is missing or empty"},
		{"a domain of nothing", "domain:\n", "1:8: domain: is missing or empty"},
		{"an unknown field", "domain: d\nlimits: []\n", `2:1: unknown field "limits" (want domain, descriptors)`},
		{"descriptors of nothing", "domain: d\ndescriptors:\n", "1:1: there are no rate limits"},
		{"no list", "domain: d\ndescriptors: a\n", "2:14: descriptors: want a list, got a string"},
		{"no mapping", with("a"), "3:5: descriptor: want a mapping, got a string"},
		{"a misspelt field", with("ky: a"), `3:5: unknown field "ky": did you mean "key"?`},
		{"no key", with("value: a"), "3:5: key: is missing or empty"},
		{"an empty key", with("key: ''"), "3:10: key: is missing or empty"},
		{"a key that is a list", with("key: [a]"), "3:10: key: want a single value, got a list"},
		{"a wildcard in a key", with("key: a*"), `3:10: key: "a*": wildcards are for values`},
		{"the domain's key", with("key: domain"), `3:10: key: "domain" is the attribute`},
		{"a key twice on the way", with("key: a\ndescriptors: [{key: b, descriptors: [{key: a}]}]"), `4:48: key: "a" occurs twice on the way here`},
		{"a key with a space", with("key: a b\n" + ok), `3:5: rule 1 ("d|a%20b"): match: attribute "a b": contains ' '`},
		{"a wildcard in the middle", with("key: a\nvalue: x/*/y"), `4:12: value: "x/*/y": a wildcard is supported at the end alone`},
		{"two wildcards", with("key: a\nvalue: x*y*"), `4:12: value: "x*y*": a wildcard`},
		{"the same twice", with("key: a\nvalue: 7\n"+ok) + "  - {key: a, value: '7'}\n", "6:5: descriptor: the same key and value as entry 1"},
		{"no unit", limited("requests_per_unit: 1"), "4:17: rate_limit: unit: is missing"},
		{"a strange unit", limited("unit: fortnight, requests_per_unit: 1"), `4:24: rate_limit: unit: "fortnight": want second, minute,`},
		{"no requests", limited("unit: second"), "4:17: rate_limit: requests_per_unit: is missing"},
		{"negative requests", limited("unit: second, requests_per_unit: -1"), `4:51: rate_limit: requests_per_unit: "-1": want a whole number from 0 to 4294967295`},
		{"too many requests", limited("unit: second, requests_per_unit: 4294967296"), `want a whole number`},
		{"half a request", limited("unit: second, requests_per_unit: 0.5"), `want a whole number`},
		{"an unknown field of a limit", limited("unit: second, requests_per_unit: 1, burst: 2"), `4:54: rate_limit: unknown field "burst"`},
		{"shadow at the wrong place", limited("unit: second, requests_per_unit: 1, shadow_mode: true"), `rate_limit: unknown field "shadow_mode"`},
		{"unlimited per second", limited("unlimited: true, unit: second"), "4:41: rate_limit: unit: is for a limit"},
		{"unlimited or so", limited("unlimited: maybe"), `4:29: rate_limit: unlimited: "maybe": want true or false`},
		{"replaces a string", limited("unlimited: true, replaces: a"), "4:45: rate_limit: replaces: want a list, got a string"},
		{"replaces nothing", limited("unlimited: true, replaces: [{name: ''}]"), "4:53: rate_limit: replaces: entry 1: name: is missing or empty"},
		{"replaces itself", limited("unlimited: true, name: a, replaces: [{name: a}]"), `4:62: rate_limit: replaces: entry 1: name: "a" is this one itself`},
		{"replaces each other", "domain: d\ndescriptors:\n- {key: a, rate_limit: {unlimited: true, name: a, replaces: [{name: b}]}}\n- {key: b, rate_limit: {unlimited: true, name: b, replaces: [{name: a}]}}\n",
			`3:3: rule 1 ("d|a"): replaces: the rules that this one replaces replace it`},
		{"quota mode", with("key: a\nquota_mode: true\n" + ok), "4:17: quota_mode: is not supported"},
		{"sharing without a wildcard", with("key: a\nvalue: x\nshare_threshold: true\n" + ok), "5:22: share_threshold: the value is no wildcard"},
		{"an anchor in itself", "domain: d\ndescriptors: &a [{key: a, descriptors: *a}]\n", "2:40: descriptors: anchor 'a' value contains itself"},
		{"a merge of nothing", with("key: a\n<<: b"), `4:9: "<<": map merge requires map or sequence of maps as the value`},
		{"merges of nothing", with("key: a\n<<: [b]"), `4:10: "<<": map merge requires map or sequence of maps as the value`},
		{"laughs", laughs(), "aliases make the file too large"},
		{"a tagged one", with("key: !!set {a}"), `3:10: key: the tag "!!set" is not supported`},
		{"a million overrides", many(), "its rules would exclude more than 200000"},
	} {
		_, err := Import([]byte(tt.text))
		refusal, ok := errors.AsType[*rules.Error](err)
		if !ok {
			t.Errorf("%s: got %v, want %q", tt.why, err, tt.want)
			continue
		}
		if len(refusal.More) > 0 {
			t.Errorf("%s: more than one mistake: %v", tt.why, refusal.More)
		}
		if got := fmt.Sprintf("%d:%d: %s", refusal.Line, refusal.Column, refusal.Reason); refusal.Line < 1 || !strings.Contains(got, tt.want) || tt.want[0] <= '9' && !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.why, got, tt.want)
		}
	}
}

// All mistakes are told at once.
func TestAllMistakesAtOnce(t *testing.T) {
	_, err := Import([]byte("descriptors:\n- key: a\n  rate_limit: {unit: minutes, requests_per_unit: -1}\n- {key: a*, shadow_mode: maybe, metadata: {any: }}\n- ~\n" +
		"- {key: b, quota_mode: true, descriptors: [{key: b, rate_limit: {unit: day}}]}\n"))
	want := `line 1, column 1: domain: is missing or empty
line 3, column 22: rate_limit: unit: "minutes": want second, minute, hour, day, week, month or year
line 3, column 50: rate_limit: requests_per_unit: "-1": want a whole number from 0 to 4294967295
line 4, column 9: key: "a*": wildcards are for values
line 4, column 26: shadow_mode: "maybe": want true or false
line 5, column 3: descriptor: want a mapping, got nothing
line 6, column 24: quota_mode: is not supported
line 6, column 50: key: "b" occurs twice on the way here; here a request has each attribute once
line 6, column 65: rate_limit: requests_per_unit: is missing`
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
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

// Names that are aliases, collections with a scalar's tag, and nesting without end are refused, soon.
func TestHostileFiles(t *testing.T) {
	const aliased = "domain: &key descriptors\ndescriptors:\n- key: a\n  *key :\n  - key: b\n"
	var chain strings.Builder
	chain.WriteString("domain: d\ndescriptors:\n- key: z\n  metadata:\n  - &a0 {key: k0, rate_limit: {unit: day, requests_per_unit: 1}}\n")
	for i := 1; i < 15_000; i++ {
		fmt.Fprintf(&chain, "  - &a%d {key: k%d, descriptors: [*a%d]}\n", i, i, i-1)
	}
	chain.WriteString("- *a14999\n")
	deep := "domain: d\ndescriptors: " + strings.Repeat("[{key: a, descriptors: ", 4000) + "[" +
		strings.Repeat("{key: x, foo: 1},", 20_000) + "]" + strings.Repeat("}]", 4000)
	for _, tt := range []struct{ why, text, want string }{
		{"an alias for a name, and a bad limit", aliased + "    rate_limit: foo\n", "rate_limit"},
		{"an alias for a name, and an unknown field", aliased + "    foo: foo\n", "foo"},
		{"a mapping that says it is a number", with("key: a\nrate_limit: !!int {unit: day, requests_per_unit: 1}"), `the tag "!!int" is not supported here`},
		{"a list that says it is null", "domain: d\ndescriptors: !!null\n- key: a\n", "not supported here"},
		{"a long chain of aliases", chain.String(), "within each other"},
		{"deep, with many mistakes", deep, "max depth"},
	} {
		_, err := Read([]byte(tt.text))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.why, err, tt.want)
		}
	}
}
