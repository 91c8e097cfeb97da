package rules

import (
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/window"
)

func expect(t *testing.T, set *Set, want ...Rule) {
	t.Helper()
	got := set.Rules()
	if len(got) != len(want) {
		t.Fatalf("got %d rules, want %d", len(got), len(want))
	}
	for i := range got {
		r := *got[i]
		r.in = nil // what the set knows of it
		if !reflect.DeepEqual(r, want[i]) {
			t.Errorf("rule %d: got %+v, want %+v", i, r, want[i])
		}
	}
}

func TestEveryField(t *testing.T) {
	full := Rule{Name: "a/b:ü", Match: []Condition{{Name: "method", Value: "POST"}, {Name: "empty", Value: ""}},
		Key: []string{"user", "header:X-Key"}, OnMissing: Empty, Enforcement: Strict, OnOutage: Closed, Status: 429, Limit: 3000, Algorithm: FixedWindow,
		Window: window.Shape{Length: 10 * time.Minute, Buckets: 1, Fixed: true}}
	plain := Rule{Name: "a", Key: []string{"u"}, OnOutage: Share, Status: 429, Limit: 1, Window: window.Shape{Length: time.Second, Buckets: 1}}
	with := func(change func(*Rule)) Rule { r := plain; change(&r); return r }
	for _, tt := range []struct {
		why, yaml string
		want      Rule
	}{
		{"all at once", "rules:\n- name: a/b:ü\n  match: {method: POST, empty: ''}\n  key: [user, 'header:X-Key']\n  on_missing: empty\n" +
			"  enforcement: strict\n  on_outage: closed\n  limit: 3000/10m\n  buckets: 1\n  algorithm: fixed_window\n", full},
		{"defaults", one(), plain},
		{"the defaults in words", one("match: {}", "on_missing: skip", "enforcement: async", "on_outage: share", "buckets: 1", "algorithm: sliding_window"), plain},
		{"deny", one("on_missing: deny"), with(func(r *Rule) { r.OnMissing = Deny })},
		{"buckets", one("buckets: 1000"), with(func(r *Rule) { r.Window.Buckets = 1000 })},
		{"strict", one("enforcement: strict"), with(func(r *Rule) { r.Enforcement, r.OnOutage = Strict, Closed })},
		{"strict in both words", one("on_outage: closed", "enforcement: strict"), with(func(r *Rule) { r.Enforcement, r.OnOutage = Strict, Closed })},
		{"open", one("on_outage: open"), with(func(r *Rule) { r.OnOutage = Open })},
		{"quoted", one(`"on_outage": "closed"`), with(func(r *Rule) { r.OnOutage = Closed })},
		{"a number that is said to be a string", one("match: {v: !!str 2}"), with(func(r *Rule) { r.Match = []Condition{{Name: "v", Value: "2"}} })},
		{"CRLF", strings.ReplaceAll(one("buckets: 2"), "\n", "\r\n"), with(func(r *Rule) { r.Window.Buckets = 2 })},
		{"a byte order mark", "\ufeff" + one(), plain},
		{"one document with its marks", "%YAML 1.1\n---\n" + one() + "...\n", plain},
		{"JSON", `{"rules":[{"name":"a","key":["u"],"limit":"1/second"}]}`, plain},
		{"no line end", strings.TrimSuffix(one(), "\n"), plain},
		{"comments", "# é\n" + strings.ReplaceAll(one("buckets: 1"), "\n", " # c\n"), plain},
	} {
		set, err := Parse([]byte(tt.yaml))
		if err != nil {
			t.Errorf("%s: %v", tt.why, err)
			continue
		}
		expect(t, set, tt.want)
	}
}

// one is a file of one rule with more fields, each on a line of its own from line 5 on.
func one(fields ...string) string {
	text := "rules:\n- name: a\n  key: [u]\n  limit: 1/s\n"
	for _, field := range fields {
		text += "  " + field + "\n"
	}
	return text
}

func TestErrorsNameTheirPlace(t *testing.T) {
	_, err := Parse([]byte("rules: [{name: a}]"))
	refusal, ok := errors.AsType[*Error](err)
	if !ok {
		t.Fatal(err)
	}
	refusal.File = "rules.yaml"
	want := "rules.yaml:1:9: key: is missing: write key: [user], for example, or key: [] for one counter for all\n" +
		"rules.yaml:1:9: limit: is missing: write limit: 15/second, for example, or unlimited: true"
	if err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if err := (&Error{File: "rules.yaml", Reason: "is too long"}); err.Error() != "rules.yaml: is too long" {
		t.Error(err)
	}
}

// FuzzParse: no input panics, every refusal has a reason, and what was accepted is
// accepted again. The examples of docs/rules.md are read by envoyrules' tests, those in deploy by
// deploy's.
func FuzzParse(f *testing.F) {
	example, err := os.ReadFile("../../deploy/rules.yaml")
	must(f, err)
	for _, seed := range []string{string(example), allFields, one(), one("match: {a: b}", "buckets: 10", "algorithm: sliding_window"),
		one("algorithm: fixed_window", "on_outage: closed", "on_missing: deny"), "rules: &r [*r]\n", one("<<: {a: b}"), laughs(),
		one() + "---\n" + one(), "\ufeff" + one(), "rules:\r\n- name: 'a\r\n", "? [a]\n: {b: - c}\n", "a: |2\n   b\n #c\n", "%TAG ! a\n---\n!b\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		set, err := Parse(data)
		if err != nil {
			refusal, ok := errors.AsType[*Error](err)
			if !ok || refusal.Reason == "" || set != nil {
				t.Fatalf("%v, %+v", set, err)
			}
			if lines := strings.Count(string(data), "\n") + 1; refusal.Line > lines && !strings.ContainsAny(string(data), "\r\u0085\u2028\u2029") {
				t.Fatalf("line %d of %d: %v", refusal.Line, lines, err)
			}
			return
		}
		var copies []Rule
		for _, r := range set.Rules() {
			copies = append(copies, *r)
		}
		again, err := NewSet(copies...)
		if err != nil {
			t.Fatalf("refused the second time: %v", err)
		}
		if !slices.EqualFunc(set.Rules(), again.Rules(), (*Rule).Equal) {
			t.Fatal("changed the second time")
		}
		text, err := set.Marshal()
		if err != nil {
			return // it has become too long
		}
		if again, err = Parse(text); err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		if !slices.EqualFunc(set.Rules(), again.Rules(), (*Rule).Equal) {
			t.Fatalf("changed by %v", Diff(set, again))
		}
	})
}

// TestAttributesMayBeNamedRules: the name of the list of rules is no other name than others,
// further down.
func TestAttributesMayBeNamedRules(t *testing.T) {
	r := parse(t, `rules:
  - {name: a, key: [rules], limit: 1/second, match: {rules: x}, exclude: {rules: [y, z]}, allow: {rules: [v]}, deny: {rules: [w]}}
`).Rules()[0]
	if len(r.Allow) != 1 || r.Allow[0].Attribute != "rules" || len(r.Deny) != 1 || len(r.Exclude) != 2 {
		t.Errorf("%+v", r)
	}
	_, err := Parse([]byte("rules:\n  - {name: a, limit: 1/second, deny: {rules: [7, {}]}}\n"))
	if err == nil || !strings.Contains(err.Error(), "rules: ") || strings.Contains(err.Error(), "want a mapping") {
		t.Errorf("a mistake within: %v", err)
	}
}
