package scenario

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/rules"
)

const evening = `# an evening
description: two kinds of callers
duration: 5s
checkers: 3
flush: 20ms
rules:
  - name: per-user
    key: [user]
    limit: 100/second
  - name: logins
    key: [ip]
    limit: 600/m
    algorithm: fixed_window
streams:
  - rule: per-user
    keys: 10
    zipf: 1.5
    load: 0.5
    route: hop 100ms
  - {rule: logins, keys: new, rate: 50, cost: 2..5}
  - rule: logins
    phases:
      - {for: 1s, load: 2}
      - {for: 500ms..1s, rate: 0..30}
`

func load(t *testing.T, text string, s Settings) (Scenario, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "evening.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Load(path, s)
}

func TestLoad(t *testing.T) {
	sc, err := load(t, evening, Settings{Checkers: new(5)})
	if err != nil {
		t.Fatal(err)
	}
	if sc.Name != "evening" || sc.Description != "two kinds of callers" || sc.Duration != 5*time.Second ||
		sc.Warmup != 2*time.Minute || sc.Checkers != 5 || sc.Aggregators != 2 || sc.Flush != 20*time.Millisecond || sc.TimerOnly {
		t.Errorf("got %+v", sc)
	}
	if len(sc.Rules) != 2 || sc.Rules[1].Name != "logins" || !sc.Rules[1].Window.Fixed || sc.Rules[1].Limit != 600 {
		t.Errorf("rules are %+v", sc.Rules)
	}
	want := []Stream{
		{Rule: 0, Keys: 10, Zipf: 1.5, Phases: always(500), Route: Route{Kind: Hop, Every: 100 * time.Millisecond}},
		{Rule: 1, Phases: always(50), Cost: Cost{2, 5}},
		{Rule: 1, Keys: 1, Phases: []Phase{
			{Least: time.Second, Most: time.Second, From: 20, To: 20},
			{Least: 500 * time.Millisecond, Most: time.Second, To: 30},
		}},
	}
	if !reflect.DeepEqual(sc.Streams, want) || len(all(New(&sc, 1))) == 0 {
		t.Errorf("streams are %+v, want %+v", sc.Streams, want)
	}
}

// TestRefusals: each change to a good file is refused, at the line where it is.
func TestRefusals(t *testing.T) {
	for _, test := range []struct {
		from, to string
		line     int
		reason   string
	}{
		{"flush: 20ms", "flsh: 20ms", 5, `unknown field "flsh"`},
		{"flush: 20ms", "flush: 20", 5, `flush: "20": want a duration`},
		{"flush: 20ms", "flush: 20us", 5, "flush: 20µs: want 1ms to 1m"},
		{"duration: 5s", "duration: 0s", 3, "duration"},
		{"duration: 5s", "duration: [5s]", 3, "want a single value"},
		{"duration: 5s", "warmup: -1s", 3, "warmup"},
		{"checkers: 3", "checkers: many", 4, `checkers: "many": want a whole number`},
		{"checkers: 3", "checkers: 0", 4, "checkers: 0: want 1 to"},
		{"checkers: 3", "duration: 1s", 4, "duration is there twice"},
		{"limit: 100/second", "limit: 100/fortnight", 9, "limit"},
		{"    key: [ip]\n", "", 10, "key"},
		{"algorithm: fixed_window", "algorithm: fixed", 13, "algorithm"},
		{"- rule: per-user", "- rule: per-usr", 15, `rule: "per-usr": there is no such rule`},
		{"- rule: per-user\n    keys", "- keys", 15, "want a rule: there are 2"},
		{"keys: 10", "keys: -1", 16, `keys: "-1"`},
		{"keys: 10", "kyes: 10", 16, `unknown field "kyes"`},
		{"zipf: 1.5", "zipf: x", 17, `zipf: "x"`},
		{"zipf: 1.5", "zipf: 1", 15, "zipf 1: want more than 1"},
		{"checkers: 3", "aggregators: 1000", 4, "aggregators: 1000: want 1 to"},
		{"duration: 5s", "duration: 99999h", 3, "duration"},
		{"duration: 5s", "warmup: 99999h", 3, "warmup"},
		{"flush: 20ms", "flush: 20h", 5, "flush: 20h0m0s: want 1ms to 1m"},
		{"flush: 20ms", "flush: !wat 20ms", 5, "tags (!wat) are not understood"},
		{"flush: 20ms", "*flush : 20ms", 5, "unknown anchor"},
		{"flush: 20ms", "flush: &f 20ms", 5, "anchors (&f) are not understood"},
		{"description: two kinds of callers", "name: ~", 2, "name: want a single value"},
		{"keys: 10", "keys: new", 15, "no popularity among keys that are new"},
		{"load: 0.5", "load: -1", 18, `load: "-1": want a number`},
		{"load: 0.5", "load: 0..5", 15, "needs phases"},
		{"    load: 0.5\n", "", 15, "want a load"},
		{"load: 0.5", "{load: 0.5}", 0, "yaml"},
		{"route: hop 100ms", "route: hop", 19, `route: "hop": want`},
		{"rate: 50,", "rate: .inf,", 20, "rate"},
		{"rate: 50,", "rate: 50, load: 1,", 20, "want a load"},
		{"cost: 2..5", "cost: 5..2", 20, `cost: "5..2": want 1 to`},
		{"cost: 2..5", "cost: 0", 20, `cost: "0": want 1 to`},
		{"algorithm: fixed_window", "algorithm: leaky_bucket", 20, "one by one"},
		{"{for: 1s, load: 2}", "{for: 1s}", 23, "want a load"},
		{"{for: 1s, load: 2}", "{load: 2}", 23, "phase: for is missing"},
		{"{for: 1s, load: 2}", "{for: soon, load: 2}", 23, `for: "soon"`},
		{"{for: 1s, load: 2}", "{for: 2s..1s, load: 2}", 23, "want an interval"},
		{evening[strings.Index(evening, "streams:"):], "", 2, "streams is missing"},
		{evening[strings.Index(evening, "streams:"):], "streams: []\n", 14, "streams: want a list of 1 to 26"},
		{evening, "{rules: [], streams: []}", 1, "each on a line"},
		{evening, "a: [", 0, "yaml"},
		{evening, "", 1, "there is no scenario"},
		{evening, evening + "---\nmore: 1\n", 25, "nothing after it"},
		{evening, evening + "---\na: [\n", 0, "nothing after it"},
	} {
		if strings.Count(evening, test.from) != 1 {
			t.Fatalf("%q is there %d times", test.from, strings.Count(evening, test.from))
		}
		_, err := load(t, strings.Replace(evening, test.from, test.to, 1), Settings{})
		refusal, ok := errors.AsType[*rules.Error](err)
		if !ok {
			t.Errorf("%q: error %v, want a refusal", test.to, err)
			continue
		}
		if refusal.Line == 0 && !strings.Contains(refusal.Reason, "yaml: line ") { // which the library says in words
			t.Errorf("%q: refused without a line: %s", test.to, refusal.Reason)
		}
		if refusal.Line != test.line || !strings.Contains(refusal.Reason, test.reason) || !strings.Contains(refusal.File, "evening.yaml") {
			t.Errorf("%q: refused in %q, line %d: %s; want line %d: …%s…", test.to, filepath.Base(refusal.File), refusal.Line, refusal.Reason, test.line, test.reason)
		}
	}
	if _, err := load(t, evening, Settings{Limit: new(int64(5))}); err == nil || !strings.Contains(err.Error(), "said in the file") {
		t.Errorf("a limit beside the file: error %v", err)
	}
	if _, err := Load(filepath.Join(t.TempDir(), "none.yaml"), Settings{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: error %v", err)
	}
}

// TestExample: the example of the documentation is one that works.
func TestExample(t *testing.T) {
	sc, err := Load("../example.yaml", Settings{})
	if err != nil {
		t.Fatal(err)
	}
	if sc.Name != "example" || len(sc.Rules) != 2 || len(sc.Streams) != 3 || sc.Checkers != 6 || len(all(New(&sc, 1))) < 50_000 {
		t.Errorf("got %+v", sc)
	}
}
