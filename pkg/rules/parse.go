package rules

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/offpath-io/offpath/pkg/rules/internal/strictyaml"
)

// MaxSize is the most bytes of YAML that Parse accepts.
const MaxSize = strictyaml.MaxSize

// Error says why rules were refused, and where.
type Error struct {
	// File is the path of the file. The reader of the file sets it.
	File string
	// Line and Column count from 1, in lines and characters. They are 0 where there is
	// no text, or no one place in it, to point at.
	Line, Column int
	// Rule is which rule NewSet refused, from 1, or 0.
	Rule int
	// Reason names the field, its value, and the remedy.
	Reason string
	// More are further mistakes, in the order of the file, up to 100 in all. They have no More, and
	// no File if they are in the same one.
	More []Error
}

// Error is "file:line:column: reason", as far as these are known, on a line for each mistake.
func (e *Error) Error() string {
	var b strings.Builder
	e.write(&b, e.File)
	for i := range e.More {
		b.WriteByte('\n')
		e.More[i].write(&b, cmp.Or(e.More[i].File, e.File))
	}
	return b.String()
}

func (e *Error) write(b *strings.Builder, file string) {
	switch {
	case file != "" && e.Line > 0:
		fmt.Fprintf(b, "%s:%d:%d: ", file, e.Line, e.Column)
	case file != "":
		fmt.Fprintf(b, "%s: ", file)
	case e.Line > 0:
		fmt.Fprintf(b, "line %d, column %d: ", e.Line, e.Column)
	}
	b.WriteString(e.Reason)
}

// Parse reads a set from YAML; deploy/rules.yaml shows all fields. Every error is an *Error, which
// lists all mistakes. Anything not understood is refused rather than skipped: a mistyped field
// would otherwise be a limit that does not hold.
//
// Anchors, aliases and merge keys are refused: a rule reads the same wherever it
// stands, and no short file can grow into a long one.
func Parse(data []byte) (*Set, error) {
	doc, mistake := strictyaml.Parse(data)
	if mistake != nil {
		return nil, refusal([]strictyaml.Mistake{*mistake})
	}
	set := readSet(doc)
	if mistakes := doc.Mistakes(); len(mistakes) > 0 {
		return nil, refusal(mistakes)
	}
	return set, nil
}

// refusal is the error that lists these mistakes.
func refusal(mistakes []strictyaml.Mistake) *Error {
	all := make([]Error, len(mistakes))
	for i, m := range mistakes {
		all[i] = Error{Line: m.Line, Column: m.Column, Reason: m.Reason}
	}
	all[0].More = all[1:]
	return &all[0]
}

// readSet reads the document. The set is worth nothing if there are mistakes in it afterwards.
func readSet(doc *strictyaml.Document) *Set {
	var f file
	doc.Decode(&f, strictyaml.Format{List: "rules", Remedies: remedies})
	switch {
	case f.Rules == nil:
		doc.Refuse([]any{"rules"}, `is missing: write rules: and below it "- name: per-user" and its fields`)
	case len(f.Rules) == 0:
		doc.Refuse([]any{"rules"}, "there are no rules: to limit nobody, write one with unlimited: true")
	}
	report := func(i int, f fault) {
		doc.Refuse(append([]any{"rules", i}, f.path...), f.reason)
	}
	list := make([]Rule, len(f.Rules))
	for i, one := range f.Rules {
		if one == nil {
			continue // it has been refused already
		}
		list[i] = one.rule()
		if !doc.Refused([]any{"rules", i, "unlimited"}) {
			for _, f := range one.missing() {
				report(i, f)
			}
		}
	}
	unread := func(i int) bool { return doc.Refused([]any{"rules", i}) }
	return assemble(list, unread, report)
}
