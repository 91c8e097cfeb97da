package main

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/offpath-io/offpath/cmd/internal/rulesfile"
	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/internal/natssource"
	"github.com/offpath-io/offpath/pkg/rules"
)

const schemaSummary = `
Prints a JSON Schema of the files of rules, by which editors complete and check them. A file says
where it is in a comment at its top:

# yaml-language-server: $schema=rules.schema.json`

// newSchema returns the command that prints the schema.
func newSchema() *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "print a JSON Schema of rules, for editors", Long: schemaSummary,
		Args: flags.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(rules.Schema())
			return err
		},
	}
}

const validateSummary = `
Reads a file of rules, all files of a directory, or - for standard input, in offpath's format or that
of envoyproxy/ratelimit, and says how many rules there are. Otherwise it prints every mistake with its
file, line and column, and what to write instead, and the exit status is 1. It needs no NATS.`

// newValidate returns the command that validates files.
func newValidate() *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use: "validate FILE|DIR", Short: "say whether files are a good set of rules", Long: validateSummary,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return flags.Usagef("want one FILE or DIR, or - for standard input")
			}
			return nil
		},
	}
	flags.Topic(cmd, "Output", out.addFlags)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r, err := rulesfile.Open(args[0], cmd.InOrStdin())
		if refusal, ok := errors.AsType[*rules.Error](err); ok {
			return refuseFile(cmd, out, refusal)
		}
		if err != nil {
			return err
		}
		for _, w := range r.Warnings {
			cmd.PrintErrln("warning:", w)
		}
		n := len(r.Set.Rules())
		return out.print(cmd.OutOrStdout(), map[string]any{
			"valid": true, "rules": n, "size": len(r.Text), "digest": natssource.Digest(r.Text),
		}, fmt.Sprintf("%s: %s, valid\n", args[0], count(n, "rule")))
	}
	return cmd
}

// refuseFile prints all mistakes, each as an editor or a compiler's user expects it: on a line of
// its own that begins with its place.
func refuseFile(cmd *cobra.Command, out output, refusal *rules.Error) error {
	answer := plainMistake(refusal, refusal.File)
	answer["valid"] = false
	for i := range refusal.More {
		more, _ := answer["more"].([]map[string]any)
		one := &refusal.More[i]
		answer["more"] = append(more, plainMistake(one, cmp.Or(one.File, refusal.File)))
	}
	var err error
	if out.json {
		err = out.print(cmd.OutOrStdout(), answer, "")
	} else {
		_, err = fmt.Fprintln(cmd.ErrOrStderr(), refusal)
	}
	return &flags.ExitError{Status: 1, Err: err}
}

func plainMistake(e *rules.Error, file string) map[string]any {
	return map[string]any{"file": file, "line": e.Line, "column": e.Column, "reason": e.Reason}
}
