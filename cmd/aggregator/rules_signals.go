package main

import (
	"fmt"
	"io"

	"go.yaml.in/yaml/v4"

	"github.com/offpath-io/offpath/cmd/internal/rulesfile"
	"github.com/offpath-io/offpath/pkg/rules"
)

// warnOfSignals names the rules that look at a signal, and where they do. They are no error: a service that embeds a
// checker and supplies the signal may take its rules from the same bucket. But no daemon has signals, so a checker command
// refuses the whole set, and goes on with the one before.
func warnOfSignals(stderr io.Writer, path string, text []byte, set *rules.Set) {
	if path == rulesfile.Stdin {
		path = "standard input"
	}
	var document yaml.Node
	for i, r := range set.Rules() {
		if r.Throttle.Signal == "" {
			continue
		}
		if document.Kind == 0 && yaml.Unmarshal(text, &document) != nil {
			return // unreachable: it has been read before
		}
		at := signalOf(&document, i)
		fmt.Fprintf(stderr, "warning: %s:%d:%d: rule %q: elastic: while: signal: the checker command has no signals, so it refuses this "+
			"set; only services that embed a checker and supply %q take it\n", path, at.Line, at.Column, r.Name, r.Throttle.Signal)
	}
}

// signalOf is the place of a rule's signal. Rules with signals are in offpath's own format, which has no aliases.
func signalOf(document *yaml.Node, rule int) *yaml.Node {
	at := document.Content[0]
	for _, name := range []string{"rules", "elastic", "while", "signal"} {
		if at = fieldOf(at, name); at == nil {
			return document // unreachable
		}
		if name == "rules" {
			at = at.Content[rule]
		}
	}
	return at
}
