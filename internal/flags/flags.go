// Package flags runs cobra's commands with an environment: each flag of a [Topic] is also a
// variable, a prefix and the flag's name in capitals with _ for -, so that --log-level is
// OFFPATH_LOG_LEVEL. The flag beats the variable, the variable beats the default, and an empty
// variable counts as none. Help lists the flags by topic. No error shows the value of a secret.
package flags

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/offpath-io/offpath/internal/redact"
)

// UsageError says what is wrong with the arguments or the environment. A command that returns one
// ends with exit status 2.
type UsageError struct{ Reason string }

// Error returns the reason, which names the flag or the variable.
func (e *UsageError) Error() string { return e.Reason }

// Usagef returns a UsageError, for mistakes that only the command can find.
func Usagef(format string, args ...any) error {
	return &UsageError{Reason: fmt.Sprintf(format, args...)}
}

// Required refuses a flag --name without a value.
func Required(name, value string) error {
	if value == "" {
		return Usagef("--%s URL is needed", name)
	}
	return nil
}

// Topic adds flags to a command, under a heading of its help.
func Topic(cmd *cobra.Command, heading string, add func(*pflag.FlagSet)) {
	set := pflag.NewFlagSet(heading, pflag.ContinueOnError)
	set.SortFlags = false
	add(set)
	set.VisitAll(func(f *pflag.Flag) { f.Annotations = map[string][]string{topicKey: {heading}} })
	cmd.Flags().SortFlags = false
	cmd.Flags().AddFlagSet(set)
}

const topicKey = "topic"

// topicOf returns "" for the flags of cobra itself, which are no variables.
func topicOf(f *pflag.Flag) string { return strings.Join(f.Annotations[topicKey], "") }

// Add adds the flag --name, which sets *p to the result of parse. *p holds the default. The usage
// names the value between backquotes. Errors of parse must not quote a secret.
func Add[T any](s *pflag.FlagSet, p *T, name, usage string, parse func(text string) (T, error)) {
	s.Var(value[T]{p, parse}, name, usage)
}

type value[T any] struct {
	p     *T
	parse func(text string) (T, error)
}

func (v value[T]) Type() string { return "value" }

func (v value[T]) String() string {
	if v.p == nil { // pflag asks a zero value
		return ""
	}
	return fmt.Sprint(*v.p)
}

func (v value[T]) Set(text string) error {
	parsed, err := v.parse(text)
	if err == nil {
		*v.p = parsed
	}
	return err
}

// AddSecret adds a setting that only an environment variable can make, that of the flag --name:
// every user of a machine can read the arguments of its processes.
func AddSecret(s *pflag.FlagSet, p *string, name, usage string) {
	s.Var(secret{p}, name, usage)
	_ = s.MarkHidden(name) // it exists
}

type secret struct{ p *string }

func (secret) Type() string     { return "" }
func (secret) String() string   { return "" }
func (secret) Set(string) error { return errors.New("a secret: want it in the environment") }

// NoArguments refuses arguments, and suggests the command that may have been meant. It is for
// [cobra.Command.Args].
func NoArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := args[0]
	if strings.Contains(text, "://") { // a URL whose flag is missing may hold a password
		text = redact.URLs(text)
	}
	names := commands(cmd)
	if near := nearest(args[0], names); near != "" {
		return Usagef("argument %q: did you mean %s?", text, near)
	}
	if len(names) > 0 {
		return Usagef("argument %q: want one of the commands %s", text, strings.Join(names, ", "))
	}
	return Usagef("argument %q: want flags only", text)
}

// NeedsCommand refuses a call without a command beneath this one. It is for [cobra.Command.RunE].
func NeedsCommand(cmd *cobra.Command, _ []string) error {
	return Usagef("want one of the commands %s", strings.Join(commands(cmd), ", "))
}

// commands returns the names of those beneath a command.
func commands(cmd *cobra.Command) (names []string) {
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return names
}

// nearest returns the name that cobra would suggest for a mistyped one, "" for none.
func nearest(typed string, names []string) string {
	c := cobra.Command{SuggestionsMinimumDistance: 2}
	for _, name := range names {
		c.AddCommand(&cobra.Command{Use: name, Run: func(*cobra.Command, []string) {}})
	}
	if near := c.SuggestionsFor(typed); typed != "" && len(near) > 0 {
		return near[0]
	}
	return ""
}

// explain turns an error of pflag into a UsageError that shows no value, which may be a secret.
func explain(cmd *cobra.Command, err error) error {
	if help, _ := cmd.Flags().GetBool("help"); help {
		return pflag.ErrHelp
	}
	if e, ok := errors.AsType[*pflag.NotExistError](err); ok {
		name := "--" + e.GetSpecifiedName()
		if short := e.GetSpecifiedShortnames(); short != "" {
			short, _, _ = strings.Cut(short, "=")
			name = "-" + short
		}
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		if near := nearest(strings.TrimLeft(name, "-"), names); near != "" {
			return Usagef("unknown flag %s: did you mean --%s?", name, near)
		}
		return Usagef("unknown flag %s", name)
	}
	if e, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return Usagef("--%s: %v", e.GetFlag().Name, e.Unwrap())
	}
	if e, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		return Usagef("--%s: needs a value", e.GetFlag().Name)
	}
	return Usagef("an argument begins with - and names no flag")
}
