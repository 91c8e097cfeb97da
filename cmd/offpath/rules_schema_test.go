package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/offpath-io/offpath"
	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/pkg/rules"
)

// TestValidate: a good file in either format, standard input, and every mistake of a bad one with
// its place, in the form of compilers.
func TestValidate(t *testing.T) {
	const theirs = "domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 5}}]\n"
	good, one := file(t, twoRules), file(t, theirs)
	bad := file(t, "rules:\n- {name: a, key: user, limit: 10/sec}\n")
	missing := good + "x"
	for _, tt := range []struct {
		path           string
		status         int
		stdout, stderr string
	}{
		{good, 0, good + ": 2 rules, valid\n", ""},
		{one, 0, one + ": 1 rule, valid\n", ""},
		{bad, 1, "", bad + ":2:18: key: want a list, got a string: write [user]\n" +
			bad + ":2:31: limit: \"10/sec\": unknown unit \"sec\": write 10/second\n"},
		{missing, 1, "", "offpath: load rules: open " + missing + ": no such file or directory\n"},
	} {
		status, stdout, stderr := daemontest.Run(t, run, nil, "rules", "validate", tt.path)
		equal(t, tt.path, status, tt.status)
		equal(t, tt.path, stdout, tt.stdout)
		equal(t, tt.path, stderr, tt.stderr)
	}
}

// TestValidateDirectory: a mistake of one of several files says which one; and the digest of good
// ones is that of a checker with the same directory.
func TestValidateDirectory(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) { must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)) }
	const theirs = "domain: %s\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: %s}}]\n"
	write("a.yaml", fmt.Sprintf(theirs, "a", "x"))
	write("b.yaml", fmt.Sprintf(theirs, "b", "y"))
	status, stdout, _ := daemontest.Run(t, run, nil, "rules", "validate", dir, "--json")
	type mistake struct{ File string }
	var answer struct {
		mistake
		More   []mistake
		Digest string
	}
	must(t, json.Unmarshal([]byte(stdout), &answer))
	if status != 1 || answer.File != filepath.Join(dir, "a.yaml") || len(answer.More) != 1 ||
		answer.More[0].File != filepath.Join(dir, "b.yaml") {
		t.Errorf("%d %s", status, stdout)
	}

	write("a.yaml", fmt.Sprintf(theirs, "a", "5"))
	write("b.yaml", fmt.Sprintf(theirs, "b", "6"))
	status, stdout, _ = daemontest.Run(t, run, nil, "rules", "validate", dir, "--json")
	must(t, json.Unmarshal([]byte(stdout), &answer))
	checker, err := offpath.Start(t.Context(), offpath.Options{NATS: "none", RulesFile: dir})
	must(t, err)
	defer func() { must(t, checker.Close()) }()
	if want := checker.Stats().Rules.Digest; status != 0 || answer.Digest != want || want == "" {
		t.Errorf("%d %s, want the digest %s", status, stdout, want)
	}
}

// TestValidateStandardInput: it has no path, and is called what it is.
func TestValidateStandardInput(t *testing.T) {
	for text, want := range map[string]string{
		twoRules: "-: 2 rules, valid\n", "rules: []": "standard input:1:8: rules: there are no rules: " +
			"to limit nobody, write one with unlimited: true\n",
	} {
		cmd := newValidate()
		var out bytes.Buffer
		cmd.SetIn(bytes.NewReader([]byte(text)))
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		cmd.SetArgs([]string{"-"})
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		_ = cmd.Execute() // the status is another test's
		equal(t, text, out.String(), want)
	}
}

// TestSchema: what is printed is the schema, and is JSON.
func TestSchema(t *testing.T) {
	status, stdout, stderr := daemontest.Run(t, run, nil, "rules", "schema")
	if status != 0 || stderr != "" || stdout != string(rules.Schema()) || !json.Valid([]byte(stdout)) {
		t.Errorf("%d %q %s", status, stderr, stdout)
	}
}
