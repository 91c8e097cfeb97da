package rules

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/offpath-io/offpath/pkg/rules/internal/node"
)

// MaxSize is the most bytes of YAML that Parse and Load accept.
const MaxSize = node.MaxSize

// Error says why rules were refused, and where.
type Error struct {
	// File is the path given to Load, else empty.
	File string
	// Line and Column count from 1, in lines and characters. They are 0 where there is
	// no text, or no one place in it, to point at.
	Line, Column int
	// Rule is which rule NewSet refused, from 1, or 0.
	Rule int
	// Reason is what is wrong: the field, what it holds, what is wanted.
	Reason string
}

// Error is "file:line:column: reason", as far as these are known.
func (e *Error) Error() string {
	switch {
	case e.File != "" && e.Line > 0:
		return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Reason)
	case e.File != "":
		return fmt.Sprintf("%s: %s", e.File, e.Reason)
	case e.Line > 0:
		return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Reason)
	}
	return e.Reason
}

// Load parses the file at path. Besides *Error, it returns what reading the file did.
func Load(path string) (*Set, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("load rules: %w", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, MaxSize+1)) // Parse refuses the one byte more
	if err != nil {
		return nil, fmt.Errorf("load rules: %w", err)
	}
	set, err := Parse(data)
	if refusal, ok := errors.AsType[*Error](err); ok {
		refusal.File = path
	}
	return set, err
}

// Parse reads a set from YAML; deploy/rules.yaml shows all there is. Every error is an
// *Error. Anything not understood is refused rather than skipped: a mistyped field
// would otherwise be a limit that does not hold.
//
// Anchors, aliases and merge keys are refused: a rule reads the same wherever it
// stands, and no short file can grow into a long one.
func Parse(data []byte) (*Set, error) {
	doc, err := node.Document(data)
	if err != nil {
		return nil, refused(err)
	}
	set, err := readSet(doc)
	return set, refused(err)
}

// refused is the error of package node as this one's.
func refused(err error) error {
	if at, ok := errors.AsType[*node.Error](err); ok {
		return &Error{Line: at.Line, Column: at.Column, Reason: at.Reason}
	}
	return err
}
