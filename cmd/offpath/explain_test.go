package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/offpath-io/offpath/cmd/checker/api"
	"github.com/offpath-io/offpath/internal/flags"
)

const explainRules = `
rules:
  - name: per-user
    key: [user]
    limit: 10/minute
    cost: tokens
    deny: {user: [eve]}
    overrides: [{match: {tier: gold}, limit: 2x}]
  - {name: api, match: {api: create}, key: [user], limit: 3/minute, shadow: true}
  - {name: load, key: [], limit: 50/minute, throttle: elastic, elastic: {up_to: 200%, while: {rule: per-user, below: 10%}}}
`

// TestExplain: the verdict and what each rule says, in words; the status is 1 for a denial, 2 for
// what cannot be answered.
func TestExplain(t *testing.T) {
	path := file(t, explainRules)
	imported := file(t, "domain: mail\ndescriptors: [{key: to, rate_limit: {unit: day, requests_per_unit: 5}}]\n")
	for _, test := range []struct {
		args, in string
		status   int
		out, err []string // parts
	}{
		{"", `{"user":"k"}`, 0, []string{
			"allowed: per-user leaves the least", `per-user  "k"  1`, `does not apply: there is no attribute api: want "create"`,
		}, nil},
		{"--cost 4", `{"user":"k","tier":"gold","tokens":"x","api":"create"}`, 0, []string{
			"api would deny it, but is a shadow rule", "per-user/tier=gold",
			"20     20    allows, its cost attribute is no cost, override 1", "denies; retrying is in vain, shadow",
		}, nil},
		{"", `{"user":"k","tokens":"11"}`, 1, []string{"denied (429) by per-user; retrying is in vain"}, nil},
		{"", `{"user":"eve"}`, 1, []string{"denies: the caller is on its deny list"}, nil},
		{"--rules " + imported, `{"user":"k"}`, 0, []string{"allowed: no rule matches the request", `does not apply: there is no attribute domain: want "mail"`}, nil},
		{"--on-no-match deny --rules " + imported, `{"user":"k"}`, 1, []string{"denied (403): no rule matches the request"}, nil},
		{"--on-no-match deny --rules " + imported, `{"domain":"mail","to":"k"}`, 0, []string{"allowed: mail|to leaves the least"}, nil},
		{"--on-no-match no", `{}`, 2, nil, []string{`"no": want allow or deny`}},
		{"--cost 51", `{}`, 1, []string{"denied (429) by load"}, nil}, // nobody says that there is room
		{"--rules " + imported + " --cost 6", `{"domain":"mail","to":"k"}`, 1, []string{"denied (429)"}, nil},
		{"", `{"user":1}`, 2, nil, []string{`standard input: attribute "user": want a string`}},
		{"", `{"user":"k"} {}`, 2, nil, []string{"goes on"}},
		{"", strings.Repeat(" ", api.MaxBody+1), 2, nil, []string{"longer than"}},
		{"", "\xff", 2, nil, []string{"UTF-8"}},
		{"--cost 0", `{}`, 2, nil, []string{"--cost", "--help"}},
		{"--nonsense", `{}`, 2, nil, []string{"nonsense", "--help"}},
		{"--help", "", 0, []string{"standard input", "--json"}, nil},
		{"--rules " + path + "x", "{}", 2, nil, []string{path + "x"}},
	} {
		args := strings.Fields(test.args)
		if !strings.Contains(test.args, "--rules") {
			args = append(args, "--rules", path)
		}
		out, errs := explained(t, test.status, strings.NewReader(test.in), args...)
		for _, want := range test.out {
			if !strings.Contains(out, want) {
				t.Errorf("%s %.40s: no %q in\n%s", test.args, test.in, want, out)
			}
		}
		for _, want := range test.err {
			if !strings.Contains(errs, want) {
				t.Errorf("%s %.40s: no %q in\n%s", test.args, test.in, want, errs)
			}
		}
	}
	out, _ := explained(t, 1, strings.NewReader(`{"user":"k","tokens":"11"}`), "--rules", path, "--json")
	var said api.Explained
	if err := json.Unmarshal([]byte(out), &said); err != nil ||
		said.Decision.Allowed || !said.Rules[0].Part.Decides || said.Rules[1].Applies {
		t.Errorf("%v: %s", err, out)
	}
	if _, errs := explained(t, 2, strings.NewReader("{}")); !strings.Contains(errs, "want --rules FILE") {
		t.Errorf("without rules: %s", errs)
	}
	if _, errs := explained(t, 2, iotest.ErrReader(errors.New("gone")), "--rules", path); !strings.Contains(errs, "gone") {
		t.Errorf("without input: %s", errs)
	}
}

// explained runs the command, and fails the test if it ends with another status.
func explained(t *testing.T, status int, in io.Reader, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	e := flags.Environment{Prefix: "OFFPATH_", Getenv: func(string) string { return "" }, Stdout: &out, Stderr: &errs}
	cmd := newCommand(e)
	cmd.SetIn(in)
	equal(t, args, e.Run(t.Context(), cmd, append([]string{"explain"}, args...)), status)
	return out.String(), errs.String()
}
