package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/offpath-io/offpath/cmd/checker/door"
)

const explainRules = `
rules:
  - {name: per-user, key: [user], limit: 10/minute, cost: tokens, deny: {user: [eve]}, overrides: [{match: {tier: gold}, limit: 2x}]}
  - {name: api, match: {api: create}, key: [user], limit: 3/minute, shadow: true}
  - {name: load, key: [], limit: 50/minute, throttle: elastic, elastic: {up_to: 200%, while: {signal: cpu, below: 10%}}}
`

func TestExplain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(explainRules), 0o600); err != nil {
		t.Fatal(err)
	}
	none := func(string) string { return "" }
	for _, test := range []struct {
		args, in string
		status   int
		out, err []string // parts
	}{
		{"", `{"user":"k"}`, 0, []string{"allowed: per-user leaves the least", `per-user  "k"  1`, `does not apply: there is no attribute api: want "create"`}, nil},
		{"--cost 4", `{"user":"k","tier":"gold","tokens":"x","api":"create"}`, 0,
			[]string{"api would deny it, but is a shadow rule", "per-user/tier=gold", "20     20    allows, its cost attribute is no cost, override 1", "denies; retrying is in vain, shadow"}, nil},
		{"", `{"user":"k","tokens":"11"}`, 1, []string{"denied (429) by per-user; retrying is in vain"}, nil},
		{"", `{"user":"eve"}`, 1, []string{"denies: the caller is on its deny list"}, nil},
		{"--cost 51", `{}`, 1, []string{"denied (429) by load"}, nil}, // nobody says that there is room
		{"", `{"user":1}`, 2, nil, []string{`standard input: attribute "user": want a string`}},
		{"", `{"user":"k"} {}`, 2, nil, []string{"goes on"}},
		{"", strings.Repeat(" ", door.MaxBody+1), 2, nil, []string{"longer than"}},
		{"", "\xff", 2, nil, []string{"UTF-8"}},
		{"--cost 0", `{}`, 2, nil, []string{"--cost", "--help"}},
		{"--nonsense", `{}`, 2, nil, []string{"nonsense", "--help"}},
		{"--help", "", 0, []string{"standard input", "--json"}, nil},
	} {
		var out, errs bytes.Buffer
		args := append([]string{"--rules", file}, strings.Fields(test.args)...)
		if got := explain(args, none, strings.NewReader(test.in), &out, &errs); got != test.status {
			t.Errorf("%s %.40s: status %d, %s", test.args, test.in, got, errs.String())
		}
		for _, want := range test.out {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s %.40s: no %q in\n%s", test.args, test.in, want, out.String())
			}
		}
		for _, want := range test.err {
			if !strings.Contains(errs.String(), want) {
				t.Errorf("%s %.40s: no %q in\n%s", test.args, test.in, want, errs.String())
			}
		}
	}
	var out, errs bytes.Buffer
	if got := explain([]string{"--rules", file, "--json"}, none, strings.NewReader(`{"user":"k","tokens":"11"}`), &out, &errs); got != 1 {
		t.Errorf("status %d, %s", got, errs.String())
	}
	var said door.Explained
	if err := json.Unmarshal(out.Bytes(), &said); err != nil || said.Decision.Allowed || !said.Rules[0].Part.Decides || said.Rules[1].Applies {
		t.Errorf("%v: %s", err, out.String())
	}
	if got := explain(nil, none, strings.NewReader("{}"), &out, &errs); got != 2 || !strings.Contains(errs.String(), "want --rules FILE") {
		t.Errorf("without rules: %d, %s", got, errs.String())
	}
	if got := explain([]string{"--rules", file + "x"}, none, strings.NewReader("{}"), &out, &errs); got != 2 {
		t.Errorf("without a file: %d", got)
	}
	if got := explain([]string{"--rules", file}, none, iotest.ErrReader(errors.New("gone")), &out, &errs); got != 2 || !strings.Contains(errs.String(), "gone") {
		t.Errorf("without input: %d, %s", got, errs.String())
	}
}
