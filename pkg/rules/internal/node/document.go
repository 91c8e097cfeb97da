// Package node reads YAML as nodes that know their place, for readers that refuse what they do not understand, and say
// where it stands.
package node

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"sort"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// MaxSize is the most bytes that Document reads.
const MaxSize = 1 << 20

// Error says what is wrong, and where.
type Error struct {
	// Line and Column count from 1, in lines and characters; 0: the text as a whole.
	Line, Column int
	Reason       string
}

// Error is the place and the reason.
func (e *Error) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Reason)
}

// Errorf makes an *Error at the place of the node.
func Errorf(node *yaml.Node, format string, args ...any) error {
	return &Error{Line: node.Line, Column: node.Column, Reason: fmt.Sprintf(format, args...)}
}

// Document returns the root of the one document in the text, which may begin with a byte order mark. Every error is an *Error.
func Document(data []byte) (*yaml.Node, error) {
	text := bytes.TrimPrefix(data, []byte("\ufeff"))
	if err := checkText(text); err != nil {
		return nil, err
	}
	return readDocument(text)
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
		return nil, Errorf(docs[1], "a second document: want one")
	case docs[0].Content[0].Tag == "!!null":
		return nil, Errorf(docs[0], "is empty: want rules")
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
