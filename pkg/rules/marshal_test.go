package rules

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// What is written is read back as the same, and written the same again.
func TestMarshalAndParse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set := randomSet(t)
		text, err := set.Marshal()
		must(t, err)
		again, err := Parse(text)
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		if !slices.EqualFunc(set.Rules(), again.Rules(), (*Rule).Equal) {
			t.Fatalf("not the same after\n%s%v", text, Diff(set, again))
		}
		if changes := Diff(set, again); len(changes) > 0 {
			t.Fatalf("differ by %v", changes)
		}
		twice, err := again.Marshal()
		if err != nil || string(twice) != string(text) {
			t.Fatalf("%v, written first\n%s, then\n%s", err, text, twice)
		}
	})
}

const allFields = `rules:
  - name: whole-service
    key: []
    limit: 100000/second
    buckets: 10
    enforcement: strict
  - name: full
    match: {api: createURL, path: /v1/*, user: '*', glob: a\*}
    exclude: {path: [/v1/health, /v1/static/*], plan: ['*']}
    exact: true
    key: [user, "12"]
    on_missing: deny
    limit: 100/1h30m
    algorithm: token_bucket
    burst: 200
    on_outage: closed
    throttle: elastic
    elastic: {up_to: 200%, while: {rule: whole-service, below: 70%}}
    on_limit: queue
    max_wait: 200ms
    max_depth: 7
    status: 503
    shadow: true
    overrides:
      - {match: {tier: gold}, limit: 10x}
      - {match: {user: kristie}, limit: unlimited}
      - {match: {user: bob}, limit: blocked, until: '2026-12-01T00:00:00Z'}
      - {match: {tier: silver}, limit: 200/second, burst: 400}
    allow: {ip: [10.0.0.0/8, '2001:db8::/32'], user: [admin]}
    deny: {user: [mallory]}
    cost: tokens
    count: all
    priority: {by: class, shares: {analytics: 50%, critical: 100%, default: 90%}}
    replaces: [whole-service]
  - name: soft
    key: [user]
    limit: 10/second
    throttle: soft
    soft: {exceed: 12.5%}
  - name: leaky
    key: [user]
    limit: 10/second
    algorithm: leaky_bucket
    on_limit: queue
    max_wait: 2s
  - name: free
    match: {plan: internal}
    unlimited: true
  - name: ordered
    match: {api: mail, user: a*b}
    exact: true
    ordered: true
    key: [user]
    limit: 1/second
`

// The form in which sets are written, with every field.
func TestMarshalWritesEveryField(t *testing.T) {
	set := parse(t, allFields)
	text, err := set.Marshal()
	if err != nil || string(text) != allFields {
		t.Errorf("%v, got\n%s", err, text)
	}
	for field := range reflect.TypeFor[fileRule]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		if !strings.Contains(allFields, name+":") {
			t.Errorf("%s is not written", name)
		}
	}
}

func TestTenThousandRulesFitAFile(t *testing.T) {
	n := thousands()
	text, err := manyRules(t, n, families[0]).Marshal()
	if err != nil || len(text)*10_000 > MaxSize*n {
		t.Fatalf("%d rules are %d bytes, %v", n, len(text), err)
	}
	text = append(text, strings.Repeat("#", MaxSize-len(text))...)
	if again, err := Parse(text); err != nil || len(again.Rules()) != n {
		t.Error(err)
	}
	_, err = newSet(t, matching("a", "api", strings.Repeat("x", MaxSize))).Marshal()
	if _, ok := errors.AsType[*Error](err); !ok || !strings.Contains(err.Error(), "as YAML: want at most 1048576") {
		t.Errorf("longer than a file may be: %v is a %T", err, err)
	}
}

func TestDiff(t *testing.T) {
	old := parse(t, "rules:\n- {name: a, key: [u], limit: 1/s}\n- {name: b, key: [u], limit: 1/s, shadow: true}\n- {name: c, key: [], limit: 5/10m, exclude: {x: [a, b]}}\n")
	for _, tt := range []struct {
		why, text string
		want      []string
	}{
		{"nothing", "rules:\n- {name: b, limit: 1/second, key: [u], shadow: true, status: 429}\n- {name: c, key: [], limit: 5/10m, exclude: {x: [b, a, b]}}\n- {name: a, key: [u], limit: 1/s}\n", nil},
		{"each kind", "rules:\n- {name: b, key: [u, api], limit: 2/s}\n- {name: d, match: {api: x}, key: [u], limit: 1/s}\n- {name: c, key: [], limit: 5/10m, exclude: {x: [b, a]}}\n", []string{
			"- a  key: [u], limit: 1/second",
			"~ b\n    key: [u] -> [u, api]\n    limit: 1/second -> 2/second\n    shadow: true -> (default)",
			"+ d  match: {api: x}, key: [u], limit: 1/second",
		}},
	} {
		var got []string
		for _, c := range Diff(old, parse(t, tt.text)) {
			got = append(got, c.String())
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.why, got, tt.want)
		}
	}
	if all := Diff(nil, old); len(all) != 3 || all[2].Kind != Added {
		t.Errorf("from nothing: %v", all)
	}
	if all := Diff(old, nil); len(all) != 3 || all[2].Kind != Removed {
		t.Errorf("to nothing: %v", all)
	}
	if got := fmt.Sprint(Change{Kind: 9}, ChangeKind(9)); !strings.Contains(got, "invalid") {
		t.Errorf("got %q", got)
	}
}

// A rule that differs in a field is told to differ in just that field.
func TestDiffFindsTheField(t *testing.T) {
	set := parse(t, allFields)
	for field, change := range map[string]struct{ old, new string }{
		"match":      {"path: /v1/*, ", "path: /v2/*, "},
		"exclude":    {"/v1/health", "/v1/ready"},
		"exact":      {"exact: true", "exact: false"},
		"ordered":    {"ordered: true", "ordered: false"},
		"key":        {`[user, "12"]`, "[]"},
		"on_missing": {"on_missing: deny", "on_missing: skip"},
		"limit":      {"100/1h30m", "101/1h30m"},
		"burst":      {"burst: 200", "burst: 201"},
		"elastic":    {"below: 70%", "below: 50%"},
		"max_wait":   {"200ms", "400ms"},
		"max_depth":  {"max_depth: 7", "max_depth: 8"},
		"status":     {"503", "429"},
		"shadow":     {"shadow: true", "shadow: false"},
		"overrides":  {"10x", "11x"},
		"allow":      {"10.0.0.0/8, ", ""},
		"deny":       {"deny: {user: [mallory]}", "deny: {}"},
		"cost":       {"tokens", "bytes"},
		"count":      {"count: all", "count: admitted"},
		"priority":   {"default: 90%", "default: 80%"},
		"replaces":   {"replaces: [whole-service]", "replaces: []"},
	} {
		other := parse(t, strings.Replace(allFields, change.old, change.new, 1))
		if got := Diff(set, other); len(got) != 1 || len(got[0].Fields) != 1 || got[0].Fields[0].Field != field {
			t.Errorf("%s: got %v", field, got)
		}
	}
}

// A change of rules: read, make the index, tell what changed.
func BenchmarkParse(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		text, err := manyRules(b, n, families[0]).Marshal()
		must(b, err)
		b.Run(fmt.Sprint("rules=", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Parse(text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
