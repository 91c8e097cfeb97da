package rules

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"sort"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// MaxSize is the most bytes of YAML that Parse and Load accept.
const MaxSize = 1 << 20

// Error says why rules were refused, and where.
type Error struct {
	// File is the path given to Load, else empty.
	File string
	// Line and Column count from 1, in lines and characters. They are 0 where there is
	// no text, or no one place in it, to point at.
	Line, Column int
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
	text := bytes.TrimPrefix(data, []byte("\ufeff"))
	if err := checkText(text); err != nil {
		return nil, err
	}
	doc, err := readDocument(text)
	if err != nil {
		return nil, err
	}
	return readSet(doc)
}

// checkText refuses what is no text, which the YAML library does too, but without
// saying where.
func checkText(text []byte) error {
	if len(text) > MaxSize {
		return &Error{Reason: fmt.Sprintf("is longer than %d bytes", MaxSize)}
	}
	line, column := 1, 1
	for rest := text; len(rest) > 0; column++ {
		c, size := utf8.DecodeRune(rest)
		switch {
		case c == utf8.RuneError && size == 1:
			return &Error{Line: line, Column: column, Reason: fmt.Sprintf("byte %#02x is not UTF-8", rest[0])}
		case !allowed(c):
			return &Error{Line: line, Column: column, Reason: fmt.Sprintf("character %U is not allowed", c)}
		case c == '\n':
			line, column = line+1, 0
		}
		rest = rest[size:]
	}
	return nil
}

// allowed reports whether YAML lets the character stand in a text.
func allowed(c rune) bool {
	switch {
	case c == '\t' || c == '\n' || c == '\r' || c == 0x85:
		return true
	case c < ' ' || 0x7f <= c && c < 0xa0:
		return false
	}
	return c != '\ufeff' && c != '\ufffe' && c != '\uffff'
}

// readDocument returns the root of the one document in the text.
func readDocument(text []byte) (*yaml.Node, error) {
	docs, err := decode(text)
	switch {
	case err != nil:
		return nil, syntaxError(text, err)
	case len(docs) == 0:
		return nil, &Error{Line: 1, Column: 1, Reason: "is empty: want rules"}
	case len(docs) > 1:
		return nil, errorAt(docs[1], "a second document: want one")
	case docs[0].Content[0].Tag == "!!null":
		return nil, errorAt(docs[0], "is empty: want rules")
	}
	return docs[0].Content[0], nil
}

// decode reads up to two documents as nodes, in which aliases are not yet followed.
func decode(text []byte) (docs []*yaml.Node, err error) {
	// The library's parser has panicked on strange input before; ours must not.
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("cannot be parsed: %v", p)
		}
	}()
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for len(docs) < 2 {
		var doc yaml.Node
		err := decoder.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		if err != nil {
			return nil, err
		}
		docs = append(docs, &doc)
	}
	return docs, nil
}

var libraryPrefix = regexp.MustCompile(`^yaml: (line \d+: )?`)

// syntaxError is the library's error with the place of it. The library names, if any,
// the line at which the construct began that broke later, and that often wrongly. So
// we search for the line with which the text starts to fail in just this way.
func syntaxError(text []byte, err error) error {
	lines := bytes.SplitAfter(text, []byte("\n"))
	ends, end := make([]int, len(lines)), 0
	for i, line := range lines {
		end += len(line)
		ends[i] = end
	}
	at := sort.Search(len(lines)-1, func(i int) bool {
		_, shorter := decode(text[:ends[i]])
		return shorter != nil && shorter.Error() == err.Error()
	})
	indent := len(lines[at]) - len(bytes.TrimLeft(lines[at], " \t"))
	reason := strings.TrimSpace(libraryPrefix.ReplaceAllString(err.Error(), ""))
	return &Error{Line: at + 1, Column: indent + 1, Reason: "not YAML: " + reason}
}
