package flags

import (
	"fmt"
	"io"
)

// AddSecret adds a setting that only an environment variable makes, that of the flag --name if there were one: what is among a
// process' arguments, every user of its machine can read. The text is taken as it is, and shown nowhere.
func (s *Set) AddSecret(p *string, name, usage string) {
	s.settings = append(s.settings, &setting{name: name, usage: usage, variableOnly: true, set: func(text string) error {
		*p = text
		return nil
	}})
}

// describeSecret is its part of --help.
func (s *Set) describeSecret(w io.Writer, secret *setting) {
	fmt.Fprintf(w, "  %s\n        %s\n        (this variable only: flags are seen by every user of the machine)\n", s.variable(secret.name), secret.usage)
}
