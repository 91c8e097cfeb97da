package flags

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Environment is what a command runs in. All fields but Saved are needed.
type Environment struct {
	Prefix         string // of the variables
	Getenv         func(string) string
	Stdout, Stderr io.Writer
	// Saved returns values of flags, by their names, that count where neither an argument nor a
	// variable says otherwise. Names of other commands' flags are passed over. Its errors, and the
	// name of where the values are from, are for people. It is called once arguments and variables
	// have been read.
	Saved func(cmd *cobra.Command) (from string, values map[string]string, err error)
}

// ExitError ends a command with its status, and with the message of Err unless that is nil.
type ExitError struct {
	Status int
	Err    error
}

// Error returns the message.
func (e *ExitError) Error() string { return fmt.Sprint(e.Err) }

// Unwrap returns Err.
func (e *ExitError) Unwrap() error { return e.Err }

// Run runs the command that the arguments name, root or one beneath it, and returns its exit
// status: 0, that of an [ExitError], 2 after a [UsageError], 1 after any other error. It prints the
// error.
func (e Environment) Run(ctx context.Context, root *cobra.Command, args []string) int {
	root.SetArgs(append([]string{}, args...)) // of nil cobra would make the process' own
	root.SetOut(e.Stdout)
	root.SetErr(e.Stderr)
	root.SetFlagErrorFunc(explain)
	root.SetHelpFunc(e.help)
	root.SetVersionTemplate("{{.Version}}\n")
	root.SilenceErrors, root.SilenceUsage = true, true
	understood := false // or an error is one of usage
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		understood = true
		return e.Read(cmd)
	}
	root.InitDefaultCompletionCmd(args...)
	prepare(root)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	status := 1
	if exit, ok := errors.AsType[*ExitError](err); ok {
		if status = exit.Status; exit.Err == nil {
			return status
		}
	}
	fmt.Fprintf(e.Stderr, "%s: %v\n", root.Name(), err)
	if _, ok := errors.AsType[*UsageError](err); ok || !understood {
		fmt.Fprintf(e.Stderr, "%s --help lists the flags.\n", cmd.CommandPath())
		return 2
	}
	return status
}

// prepare gives every command --help and --version.
func prepare(cmd *cobra.Command) {
	cmd.Flags().BoolP("help", "h", false, "print this help")
	cmd.Flags().Bool("version", false, "print the version")
	for _, c := range cmd.Commands() {
		if c.Name() == "completion" {
			c.Short = "print a script with which a shell completes commands and flags"
		}
		c.Version = cmd.Version
		prepare(c)
	}
}

func (e Environment) variable(f *pflag.Flag) string {
	return e.Prefix + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
}

// Read sets the flags that were not given from their variables, and then from what is saved. Run
// does so before it runs a command; completing arguments needs it, too.
func (e Environment) Read(cmd *cobra.Command) error {
	var errs []error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		text := e.Getenv(e.variable(f))
		if f.Changed || text == "" || topicOf(f) == "" {
			return
		}
		if s, ok := f.Value.(secret); ok {
			*s.p = text
			f.Changed = true
		} else if err := cmd.Flags().Set(f.Name, text); err != nil {
			errs = append(errs, Usagef("%s: %v", e.variable(f), errors.Unwrap(err)))
		}
	})
	if err := cmp.Or(errs...); err != nil || e.Saved == nil {
		return err
	}
	return e.readSaved(cmd)
}

func (e Environment) readSaved(cmd *cobra.Command) error {
	from, values, err := e.Saved(cmd)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		f := cmd.Flags().Lookup(name)
		if f == nil || f.Changed {
			continue
		}
		if err := cmd.Flags().Set(name, values[name]); err != nil {
			return fmt.Errorf("%s: %s: %w", from, name, errors.Unwrap(err))
		}
	}
	return nil
}

// rank puts what a command is about before what most commands have in common.
func rank(heading string) int {
	switch {
	case heading == "Other":
		return 2
	case strings.HasPrefix(heading, "Access to "):
		return 1
	}
	return 0
}

// help prints the usage of a command, its commands, and its flags by topic.
func (e Environment) help(cmd *cobra.Command, _ []string) {
	w := cmd.OutOrStdout()
	fmt.Fprintf(w, "Usage: %s\n\n%s\n", cmd.UseLine(),
		strings.TrimSpace(cmp.Or(cmd.Long, cmd.Short)))
	if cmd.HasExample() {
		fmt.Fprintf(w, "\nExamples:\n%s\n", cmd.Example)
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprint(w, "\nCommands, each with --help:\n")
	}
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			fmt.Fprintf(w, "  %-12s %s\n", c.Name(), c.Short)
		}
	}
	fmt.Fprint(w,
		"\nA flag overrides the environment variable beside it.\n")
	var headings []string
	topics := map[string]*pflag.FlagSet{}
	secrets := map[string]string{}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		shown, heading := *f, cmp.Or(topicOf(f), "Other")
		if topics[heading] == nil {
			headings = append(headings, heading)
			topics[heading] = &pflag.FlagSet{}
		}
		if _, ok := f.Value.(secret); ok {
			secrets[heading] += fmt.Sprintf("      %s   %s (environment only)\n", e.variable(f),
				f.Usage)
		}
		if topicOf(f) != "" {
			shown.Usage += " [" + e.variable(f) + "]"
		}
		if shown.NoOptDefVal != "" { // --json rather than --json[=true|false]
			shown.Value, shown.NoOptDefVal = struct{ pflag.Value }{f.Value}, ""
		}
		topics[heading].AddFlag(&shown)
	})
	slices.SortStableFunc(headings, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
	for _, heading := range headings {
		topics[heading].SortFlags = false
		fmt.Fprintf(w, "\n%s:\n%s%s", heading, topics[heading].FlagUsagesWrapped(100),
			secrets[heading])
	}
}
