package rules

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// Each refusal with its line, column and reason.
func TestRefusals(t *testing.T) {
	long := strings.Repeat("x", 129)
	for _, tt := range []struct{ why, yaml, want string }{
		// The file as a whole.
		{"empty", "", "1:1: is empty"},
		{"an empty document", "# a\n---", "2:1: is empty"},
		{"nothing in a word", "~\n", "1:1: is empty"},
		{"no mapping", "- a\n", "1:1: file: want a mapping, got a list"},
		{"no rules", "{}\n", "1:1: rules: is missing"},
		{"rules of nothing", "rules:\n", "1:7: rules: has no value: give it one, or leave it out"},
		{"rules: a mapping", "rules: {a: b}\n", "1:8: rules: want a list, got a mapping"},
		{"an empty list", "rules: []\n", "1:8: rules: there are no rules"},
		{"unknown field", "rulez: []\n", `1:1: unknown field "rulez": did you mean "rules"?`},
		{"two documents", one() + "---\n" + one(), "5:1: a second document: want one"},
		{"a second one that is empty", one() + "---\n", "5:1: a second document: want one"},
		{"a second one that is broken", one() + "---\n[", "6:2: not YAML: did not find expected node content"},
		{"a rule of nothing", "rules:\n- \n", "rule: want a mapping, got nothing"},
		{"a rule that is a list", "rules:\n- [a]\n", "2:3: rule: want a mapping, got a list"},
		{"a rule with an unknown field", one("limits: 2/s"), `5:3: unknown field "limits": did you mean "limit"?`},
		{"a field twice", one("limit: 2/s"), `5:3: field "limit" occurs twice, first on line 4`},
		{"rules twice", one() + "rules: []\n", `5:1: field "rules" occurs twice, first on line 1`},
		{"a field name that is no string", one("1: a"), "5:3: want the name of a field, got a number (write it in quotes)"},
		{"a field name that is a list", one("? [a]\n  : b"), "5:5: want the name of a field, got a list"},

		// Each field.
		{"name missing", "rules:\n- key: [u]\n  limit: 1/s\n", "2:3: name: is missing"},
		{"key missing", "rules:\n- name: a\n  limit: 1/s\n", "2:3: key: is missing"},
		{"limit missing", "rules:\n- name: a\n  key: [u]\n", "2:3: limit: is missing"},
		{"name a number", named("12"), "2:9: name: want a string, got a number (write it in quotes)"},
		{"name a list", named("[a]"), "2:9: name: want a single value, got a list"},
		{"name empty", named("''"), "2:9: name: is missing or empty"},
		{"name too long", named(long), "2:9: name: has 129 bytes: want at most 128"},
		{"name with a space", named("a b"), "2:9: name: contains ' '"},
		{"name with a line end", named(`"a\nb"`), `2:9: name: contains '\n'`},
		{"name with a zero-width space", named(`"a\u200bb"`), `2:9: name: contains '\u200b'`},
		{"name of an earlier rule", one() + "- name: a\n  key: [u]\n  limit: 2/s\n", `5:9: name: "a" is the name of an earlier rule`},
		{"a foreign tag", named("!secret a"), `2:9: name: the tag "!secret" is not supported`},
		{"match a list", one("match: [api]"), "5:10: match: want a mapping, got a list"},
		{"match a number", one("match: {a: b, version: 2}"), "5:26: match: version: want a string, got a number (write it in quotes)"},
		{"match a list", one("match: {api: [a, b]}"), "5:16: match: api: want a single value, got a list"},
		{"match twice", one("match: {api: a, api: b}"), `5:19: match: field "api" occurs twice, first on line 5`},
		{"match without a name", one("match: {a: b, '': c}"), `5:17: match: attribute "": is empty`},
		{"match tagged as a set", one("match: !!set {a, b}"), `5:10: match: the tag "!!set" is not supported`},
		{"match too much", one("match: {" + many(65, "a%d: b,") + "}"), "5:10: match: has 65 attributes: want at most 64"},
		{"key a string", keyed("user"), "3:8: key: want a list, got a string"},
		{"key twice", keyed("[a, b, a]"), `3:15: key: attribute "a" occurs twice`},
		{"key with an empty name", keyed("[a, '']"), `3:12: key: attribute "": is empty`},
		{"key too long", keyed("[" + many(65, "a%d,") + "]"), "3:8: key: has 65 attributes: want at most 64"},
		{"on_missing", one("on_missing: Skip"), `5:15: on_missing: "Skip": want skip or deny or empty`},
		{"the default by its Go name", one("on_outage: default"), `5:14: on_outage: "default": want share or open or closed`},
		{"enforcement", one("enforcement: hard"), `5:16: enforcement: "hard": want async or strict`},
		{"an open strict rule", one("enforcement: strict", "on_outage: open"), "6:14: on_outage: open lets requests pass without a permit"},
		{"a strict rule that keeps to its share", one("on_outage: share", "enforcement: strict"), "5:14: on_outage: share lets requests pass without a permit"},
		{"an open strict rule, the other way round", one("on_outage: open", "enforcement: strict"), "5:14: on_outage: open lets requests pass without a permit"},
		{"on_outage", one("on_outage: deny"), `5:14: on_outage: "deny": want share or open or closed`},
		{"algorithm", one("algorithm: gcra"), `5:14: algorithm: "gcra": want sliding_window or fixed_window or sliding_log or token_bucket or leaky_bucket`},
		{"limit", limited("15/fortnight"), `4:10: limit: "15/fortnight": unknown unit "fortnight" (want second, minute, hour, day, week or a span such as 10m)`},
		{"limit a number", limited("15"), `4:10: limit: "15": want hits per time, such as 15/second or 3000/10m`},
		{"limit far too long", limited(strings.Repeat("9", 1000) + "/s"), "4:10: limit: "},
		{"buckets a string", one("buckets: many"), `5:12: buckets: "many": want a whole number from 1`},
		{"buckets a fraction", one("buckets: 1.5"), `5:12: buckets: "1.5": want a whole number`},
		{"buckets 0", one("buckets: 0"), `5:12: buckets: "0": want a whole number from 1`},
		{"buckets too many", one("buckets: 1441"), "5:12: buckets: 1441 buckets: want 1 to 1440"},
		{"buckets beyond int64", one("buckets: 99999999999999999999"), "5:12: buckets: "},
		{"buckets that do not divide", one("buckets: 60"), "5:12: buckets: 60 buckets: 1s cut into 60 is not a whole number of milliseconds"},
		{"buckets of a fixed window", one("buckets: 2", "algorithm: fixed_window"), "5:12: buckets: 2 buckets: a fixed window has 1"},

		// Anchors, aliases, merges.
		{"an anchor", one("on_outage: &o open"), "5:14: on_outage: anchors and aliases are not supported"},
		{"an alias to itself", "rules: &r [*r]\n", "1:8: rules: anchors and aliases are not supported"},
		{"an alias to nothing", one("match: *x"), "5:10: not YAML: unknown anchor 'x' referenced"},
		{"a merge key", one("<<: {buckets: 2}"), "5:3: merge keys are not supported: write it out"},
		{"a quoted one is a name like others", one("'<<': {}"), `5:3: unknown field "<<"`},

		// No YAML, no text, too much of it.
		{"a tab", "rules:\n\t- name: a\n", "2:1: not YAML: found character that cannot start any token"},
		{"bad indentation", "rules:\n- name: a\n  key: [u]\n limit: 1/s\n", "4:2: not YAML: did not find expected"},
		{"an open list", "rules:\n- name: a\n  key: [u\n  limit: 1/s\n", "4:8: not YAML: did not find expected ',' or ']'"},
		{"on the first line", "rules: ]\n", "1:8: not YAML: did not find expected node content"},
		{"NUL", "rules:\n- name: a\x00b\n", "2:10: character U+0000 is not allowed"},
		{"NUL after a letter of two bytes", "# é\x00\n", "1:4: character U+0000 is not allowed"},
		{"a second byte order mark", "\ufeff\ufeff" + one(), "1:1: character U+FEFF is not allowed"},
		{"not UTF-8", "rules:\n- name: \xff\n", "2:9: byte 0xff is not UTF-8"},
		{"a directory of NULs", strings.Repeat("\x00", 100), "1:1: character U+0000"},
		{"too deep", "rules: " + strings.Repeat("[", 100_000), "1:264: not YAML: exceeded max depth of 256"},
		{"deep, but not too deep", "rules: " + strings.Repeat("[", 250) + strings.Repeat("]", 250), "1:9: rule: want a mapping, got a list"},
		{"too long", one() + strings.Repeat("#", MaxSize), "is longer than 1048576 bytes"},
	} {
		refuses(t, tt.why, tt.yaml, tt.want)
	}
}

// All mistakes are told at once, in the order of the file, and nothing that only follows from another.
func TestAllMistakesAtOnce(t *testing.T) {
	for _, tt := range []struct {
		why, yaml string
		want      []string
	}{
		{"missing", "rules:\n- name: a\n", []string{
			"2:3: key: is missing (key: [] is one counter for all)",
			"2:3: limit: is missing",
		}},
		{"in several rules", "rules:\n- {name: a, key: [u], limit: 1/fortnight}\n- {name: b, key: u, limit: 1/s}\n- {name: a, key: [], limit: 1/s}\n", []string{
			`2:30: limit: "1/fortnight": unknown unit "fortnight" (want second, minute, hour, day,`,
			"3:18: key: want a list, got a string",
			`4:10: name: "a" is the name of an earlier rule`,
		}},
		{"in one rule", one("status: 500", "match: {a b: c, d: 1}", "cost: ''", "replaces: [c, a]", "deny: {ip: [x, 10.0.0.0/8, y]}"), []string{
			"5:11: status: 500: want 429 or 503",
			`6:11: match: attribute "a b": contains ' '`,
			"6:22: match: d: want a string, got a number",
			"7:9: cost: is empty",
			`8:14: replaces: there is no rule "c"`,
			`8:17: replaces: "a" is this rule itself`,
			`9:15: deny: ip: "x": want an address or a prefix`,
			`9:30: deny: ip: "y": want an address or a prefix`,
		}},
		{"a typing error that leaves nothing to follow", "rules:\n- name: a\n  key: [u]\n  limits: 1/s\n  algorithm: token_buckets\n  burst: 5\n", []string{
			`4:3: unknown field "limits": did you mean "limit"?`,
			`5:14: algorithm: "token_buckets": want sliding_window or`,
		}},
		{"by the name of a rule that is wrong", one("replaces: [b]", "overrides: [{match: {}, limit: 2x}, {match: {u: v}, limit: 3}]") + "- {name: b, key: 1}\n", []string{
			`6:62: overrides: entry 2: limit: "3": want a limit such as 200/second, a factor such `,
			"7:3: limit: is missing",
			"7:18: key: want a list, got a number",
		}},
		{"overrides", one("overrides: [{match: {}, limit: 2x}, {match: {u: v}, limit: 5/s, burst: 3}]"), []string{
			"5:23: overrides: entry 1: match: is missing or empty",
			"5:74: overrides: entry 2: burst: sliding_window has none",
		}},
		{"elastic how", one("throttle: elastic"), []string{
			"2:3: elastic: up_to: is missing or 0%: want more than 100%, at most 10000%",
			"2:3: elastic: while: rule: is missing",
			"2:3: elastic: while: below: is missing or 0%",
		}},
		{"elastic: nothing", one("elastic: {up_to: 200%}"), []string{
			"5:12: elastic: while: rule: is missing",
			"5:12: elastic: while: below: is missing or 0%",
		}},
		{"anchors", "rules:\n- &r {name: a, key: [u], limit: 1/s}\n- *r\n", []string{
			"2:3: anchors and aliases are not supported: write it out",
			"3:3: anchors and aliases are not supported: write it out",
		}},
		{"an alias as a field name", "&n name: x\n*n : y\n", []string{
			"1:1: anchors and aliases are not supported: write it out",
			"1:1: rules: is missing",
			"2:1: anchors and aliases are not supported: write it out",
		}},
	} {
		_, err := Parse([]byte(tt.yaml))
		refusal, ok := errors.AsType[*Error](err)
		if !ok || len(refusal.More) != len(tt.want)-1 {
			t.Errorf("%s: got %v, want %q", tt.why, err, tt.want)
			continue
		}
		for i, e := range append([]Error{*refusal}, refusal.More...) {
			if got := fmt.Sprintf("%d:%d: %s", e.Line, e.Column, e.Reason); !strings.HasPrefix(got, tt.want[i]) {
				t.Errorf("%s: got %q, want %q", tt.why, got, tt.want[i])
			}
		}
	}
}

// A bomb of aliases is refused before it is followed, and a file of mistakes has an end.
func TestMistakesAreBounded(t *testing.T) {
	for _, text := range []string{laughs(), "rules:\n" + strings.Repeat("- {name: 1, nme: 2}\n", 10_000), "rules:\n" + strings.Repeat("- *x\n- ~\n", 1000)} {
		_, err := Parse([]byte(text))
		refusal, ok := errors.AsType[*Error](err)
		if !ok || len(refusal.More) >= 100 || len(err.Error()) > 20_000 {
			t.Errorf("%.300v", err)
		}
	}
	var list []Rule
	for range 200 {
		list = append(list, Rule{})
	}
	_, err := NewSet(list...)
	if refusal, ok := errors.AsType[*Error](err); !ok || len(refusal.More) != 99 || refusal.More[98].Rule != 100 {
		t.Errorf("%.300v", err)
	}
}

// refuses expects a refusal: "line:column: reason" or only a part of the reason.
func refuses(t *testing.T, why, text, want string) {
	t.Helper()
	_, err := Parse([]byte(text))
	refusal, ok := errors.AsType[*Error](err)
	if !ok {
		t.Errorf("%s: got %v, want %q", why, err, want)
		return
	}
	got := refusal.Reason
	if refusal.Line > 0 {
		got = fmt.Sprintf("%d:%d: %s", refusal.Line, refusal.Column, got)
	}
	if !strings.Contains(got, want) || want[0] >= '1' && want[0] <= '9' && !strings.HasPrefix(got, want) {
		t.Errorf("%s: got %q, want %q", why, got, want)
	}
	if len(refusal.More) > 0 {
		t.Errorf("%s: more than one mistake: %v", why, refusal.More)
	}
	if len(got) > 500 {
		t.Errorf("%s: the error has %d bytes", why, len(got))
	}
}

func named(name string) string {
	return "rules:\n- name: " + name + "\n  key: [u]\n  limit: 1/s\n"
}

func keyed(key string) string {
	return "rules:\n- name: a\n  key: " + key + "\n  limit: 1/s\n"
}

func limited(limit string) string {
	return "rules:\n- name: a\n  key: [u]\n  limit: " + limit + "\n"
}

func many(n int, format string) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, format, i)
	}
	return text.String()
}

// laughs would be 9^9 strings if aliases were followed.
func laughs() string {
	text := "a0: &a0 [" + strings.Repeat("ha,", 9) + "]\n"
	for i := range 9 {
		text += fmt.Sprintf("a%d: &a%d [%s]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*a%d,", i), 9))
	}
	return text
}
