package main

import (
	"bytes"
	"encoding/json"
	"testing"

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
