// Package flags reads a command's settings from its arguments and its environment.
//
// Each flag has an environment variable: OFFPATH_, or another prefix that the command has chosen, and
// the flag's name in capitals, with _ for -, so that --log-level is OFFPATH_LOG_LEVEL. The flag beats
// the variable, the variable beats the default; an empty variable is as good as none. Whatever is not
// understood, an argument too many included, is a [UsageError], never a setting that is silently
// something else.
package flags

import (
	"flag"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"

	"github.com/offpath-io/offpath/internal/redact"
)

// defaultPrefix of every environment variable.
const defaultPrefix = "OFFPATH_"

// UsageError says what is wrong with the arguments or the environment. A command that meets one
// ends with exit status 2.
type UsageError struct{ Reason string }

// Error returns the reason, which names the flag or the variable.
func (e *UsageError) Error() string { return e.Reason }

// Usagef returns a UsageError, for what only the command can know to be wrong.
func Usagef(format string, args ...any) error {
	return &UsageError{Reason: fmt.Sprintf(format, args...)}
}

// Set is the flags of one command. It is made, filled by [Add] and parsed by one goroutine.
type Set struct {
	command, summary, version string
	settings                  []*setting
	parser                    *flag.FlagSet
	help, showVersion         bool
	refused                   error // by the setting that was set last
	arguments                 *[]string
	argumentsName             string // as --help shows them
	prefix                    string // of the environment variables
}

// New returns a set with the flags --help and --version. The summary is for --help, after the line
// that names the command; version is the line that --version prints.
func New(command, summary, version string) *Set {
	s := &Set{command: command, summary: summary, version: version, prefix: defaultPrefix}
	s.parser = flag.NewFlagSet(command, flag.ContinueOnError)
	s.parser.SetOutput(io.Discard) // errors are the caller's to print
	s.parser.Usage = func() {}
	s.parser.BoolVar(&s.help, "help", false, "")
	s.parser.BoolVar(&s.help, "h", false, "")
	s.parser.BoolVar(&s.showVersion, "version", false, "")
	return s
}

// Arguments lets the command take arguments beside its flags, before, between and after them, which
// Parse puts into *p. Name is how --help shows them, such as "[FILE…]".
func (s *Set) Arguments(p *[]string, name string) { s.arguments, s.argumentsName = p, name }

// Prefix makes the environment variables begin with another text than OFFPATH_: a tool should not be
// led by settings that were meant for the daemons.
func (s *Set) Prefix(prefix string) { s.prefix = prefix }

// Given reports whether the flag of this name was set, by argument or by variable.
func (s *Set) Given(name string) bool {
	for _, setting := range s.settings {
		if setting.name == name {
			return setting.given
		}
	}
	return false
}

// Short lets the flag --name be written as a letter too: -f for --file.
func (s *Set) Short(letter, name string) {
	for _, setting := range s.settings {
		if setting.name == name {
			setting.short = letter
			s.parser.Var(argument{s, setting}, letter, setting.usage)
		}
	}
}

// setting is one flag.
type setting struct {
	name, placeholder, usage string
	short                    string // a letter, or ""
	byDefault                string
	isBool, given            bool
	set                      func(text string) error
	variableOnly             bool
}

// variable returns the name of a flag's environment variable.
func (s *Set) variable(flag string) string {
	return s.prefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// Add adds the flag --name, which sets *p to what parse makes of its text. What *p holds now is the
// default. The placeholder stands for the value in --help, "" for a flag that needs none. The errors
// of parse should quote as much of the text as may be shown; the flag's name is put before them.
func Add[T any](s *Set, p *T, name, placeholder, usage string, parse func(text string) (T, error)) {
	_, isBool := any(*p).(bool)
	added := &setting{name: name, placeholder: placeholder, usage: usage, byDefault: show(*p), isBool: isBool}
	added.set = func(text string) error {
		value, err := parse(text)
		if err == nil {
			*p = value
		}
		return err
	}
	s.settings = append(s.settings, added)
	s.parser.Var(argument{s, added}, name, usage)
}

func show(value any) string {
	switch v := value.(type) {
	case slog.Level:
		return strings.ToLower(v.String())
	case bool: // off, which goes without saying
		return ""
	}
	return fmt.Sprint(value)
}

// argument is a setting as the standard library's parser wants to see it.
type argument struct {
	set     *Set
	setting *setting
}

func (a argument) String() string   { return "" }
func (a argument) IsBoolFlag() bool { return a.setting.isBool }

func (a argument) Set(text string) error {
	a.setting.given = true
	if err := a.setting.set(text); err != nil {
		a.set.refused = Usagef("--%s: %v", a.setting.name, err)
		return err
	}
	return nil
}

// Parse sets everything from the arguments and the environment. If it was asked for help or for the
// version it prints that to stdout and returns done; the command has nothing else to do then. Every
// other error than one of stdout is a [UsageError].
func (s *Set) Parse(args []string, getenv func(string) string, stdout io.Writer) (done bool, err error) {
	rest, err := s.parse(args)
	switch {
	case s.help:
		return true, s.printHelp(stdout)
	case err != nil:
		return false, s.explain(err)
	case s.showVersion:
		_, err := fmt.Fprintln(stdout, s.version)
		return true, err
	case len(rest) > 0 && s.arguments == nil:
		return false, Usagef("argument %q: want flags only", shown(rest[0]))
	case s.arguments != nil:
		*s.arguments = rest
	}
	return false, s.readEnvironment(getenv)
}

// parse parses the flags and returns the other arguments. The standard library's parser stops at each
// of those; -- ends the flags.
func (s *Set) parse(args []string) (rest []string, err error) {
	for {
		if err := s.parser.Parse(args); err != nil {
			return rest, err
		}
		left := s.parser.Args()
		if parsed := len(args) - len(left); len(left) == 0 || parsed > 0 && args[parsed-1] == "--" {
			return append(rest, left...), nil
		}
		rest, args = append(rest, left[0]), left[1:]
	}
}

// explain turns an error of the standard library's parser into ours, which has two dashes.
func (s *Set) explain(err error) error {
	if s.refused != nil {
		return s.refused
	}
	const unknown, bare = "flag provided but not defined: -", "flag needs an argument: -"
	text := err.Error()
	if name, ok := strings.CutPrefix(text, unknown); ok {
		return Usagef("unknown flag --%s", name)
	}
	if name, ok := strings.CutPrefix(text, bare); ok {
		return Usagef("--%s: needs a value", name)
	}
	return &UsageError{Reason: text}
}

// shown is what may be told of an argument that nobody knows what to do with: it may be the URL that a flag is missing for.
func shown(text string) string {
	if strings.Contains(text, "://") {
		return redact.URLs(text)
	}
	return text
}

func (s *Set) readEnvironment(getenv func(string) string) error {
	for _, setting := range s.settings {
		text := getenv(s.variable(setting.name))
		if setting.given || text == "" {
			continue
		}
		setting.given = true
		if err := setting.set(text); err != nil {
			return Usagef("%s: %v", s.variable(setting.name), err)
		}
	}
	return nil
}

func (s *Set) printHelp(stdout io.Writer) error {
	var b strings.Builder
	usage := strings.TrimSpace(s.command + " " + s.argumentsName)
	fmt.Fprintf(&b, "Usage: %s [flags]\n\n%s\n\n", usage, strings.TrimSpace(s.summary))
	b.WriteString("Flags, each also an environment variable; the flag beats the variable:\n")
	for _, setting := range s.settings {
		if setting.variableOnly {
			s.describeSecret(&b, setting)
			continue
		}
		short := ""
		if setting.short != "" {
			short = "-" + setting.short + ", "
		}
		fmt.Fprintf(&b, "  %s--%s\n        %s\n        %s\n", short,
			strings.TrimSpace(setting.name+" "+setting.placeholder), setting.usage, s.origins(setting))
	}
	b.WriteString("  --help\n        print this and end\n  --version\n        print the version and end\n")
	_, err := io.WriteString(stdout, b.String())
	return err
}

// origins says where else a setting's value comes from.
func (s *Set) origins(setting *setting) string {
	variable := s.variable(setting.name)
	if setting.byDefault == "" {
		return "(" + variable + ")"
	}
	return "(" + variable + "; default " + setting.byDefault + ")"
}

// Text takes any text.
func Text(text string) (string, error) { return text, nil }

// Bool takes what strconv.ParseBool takes.
func Bool(text string) (bool, error) {
	value, err := strconv.ParseBool(text)
	if err != nil {
		return false, fmt.Errorf("%q: want true or false", text)
	}
	return value, nil
}
