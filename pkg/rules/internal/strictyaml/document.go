// Package strictyaml reads a YAML document into Go values and reports every mistake in it, with its
// place. The YAML library parses and decodes; this package refuses what the library would let pass,
// such as null values, and words its errors for people who write the document.
package strictyaml

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"
)

// MaxSize is the most bytes of a document.
const MaxSize = 1 << 20

// maxDepth bounds how deep lists and mappings may be nested, by aliases too: a path to a place
// costs as much. A rule has at most 64 attributes, each of which takes two levels in a file of
// envoyproxy/ratelimit.
const maxDepth = 256

// MaxMistakes bounds how many mistakes of a document are reported.
const MaxMistakes = 100

// Mistake is something wrong in a document. Line and Column count from 1, in lines and characters;
// they are 0 for the document as a whole.
type Mistake struct {
	Line, Column int
	Reason       string
	path         []any
}

func mistakeAt(line, column int, format string, args ...any) *Mistake {
	return &Mistake{Line: line, Column: column, Reason: fmt.Sprintf(format, args...)}
}

// Document is one parsed document and what is wrong with it. It is not safe for concurrent use.
type Document struct {
	root     *yaml.Node
	line     int // in the text
	column   int
	format   Format
	mistakes []Mistake
	warnings []Mistake

	// While it is read:
	path    []any                     // to the value
	fields  map[reflect.Type][]string // the names of structs' fields
	open    map[*yaml.Node]bool       // nodes with an anchor that the value is in
	aliases int                       // that the value is in
	aliased int                       // values that aliases have stood for
}

// Parse parses the one document in the text, as ParseAll does.
func Parse(text []byte) (*Document, *Mistake) {
	docs, m := ParseAll(text)
	switch {
	case m != nil:
		return nil, m
	case len(docs) > 1:
		return nil, mistakeAt(docs[1].line, docs[1].column, "a second document: want one, "+
			"with all rules, and no --- between them")
	}
	return docs[0], nil
}

// maxDocuments bounds the documents of a text.
const maxDocuments = 1000

// ParseAll parses the documents in the text, which may begin with a byte order mark: at least one,
// without those that are empty. The second result says why there are none; such a mistake hides all
// others.
func ParseAll(text []byte) (all []*Document, m *Mistake) {
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	if m := checkText(text); m != nil {
		return nil, m
	}
	nodes, err := parse(text)
	if err != nil {
		return nil, syntaxError(text, err)
	}
	for i, node := range nodes {
		root := node.Content[0]
		if i == maxDocuments {
			return nil, mistakeAt(node.Line, node.Column, "more than %d documents", maxDocuments)
		}
		if root.Tag != nullTag {
			all = append(all, &Document{
				root: root, line: node.Line, column: node.Column,
				fields: make(map[reflect.Type][]string), open: make(map[*yaml.Node]bool),
			})
		}
	}
	switch {
	case len(all) > 0:
		return all, nil
	case len(nodes) > 0:
		return nil, mistakeAt(nodes[0].Line, nodes[0].Column, emptyDocument)
	}
	return nil, mistakeAt(1, 1, emptyDocument)
}

// IsEmpty reports whether the mistake is that there is nothing in the text, comments apart.
func (m *Mistake) IsEmpty() bool { return m.Reason == emptyDocument }

const emptyDocument = "is empty: want rules, such as " +
	"rules: [{name: per-user, key: [user], limit: 15/second}]"

// parse returns up to one document more than a text may have.
func parse(text []byte) (docs []*yaml.Node, err error) {
	// The library's parser has panicked on strange input before; ours must not.
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("cannot be parsed: %v", p)
		}
	}()
	loader, err := yaml.NewLoader(bytes.NewReader(text),
		yaml.WithPlugin(loaderlimits.New(loaderlimits.DepthValue(maxDepth))))
	if err != nil {
		return nil, err
	}
	for len(docs) <= maxDocuments {
		var doc yaml.Node
		switch err := loader.Load(&doc); {
		case errors.Is(err, io.EOF):
			return docs, nil
		case err != nil:
			return nil, err
		}
		docs = append(docs, &doc)
	}
	return docs, nil
}

func syntaxError(text []byte, err error) *Mistake {
	at, ok := errors.AsType[*yaml.LoadError](err)
	if !ok {
		return mistakeAt(1, 1, "not YAML: %v", err)
	}
	line, column := max(at.Mark.Line, 1), max(at.Mark.Column, 1)
	lines := bytes.Split(text, []byte("\n"))
	// The library counts the end of the text as a line of its own.
	if line > len(lines) {
		line, column = len(lines), utf8.RuneCount(lines[len(lines)-1])+1
	}
	remedy := syntax(at.Message, string(lines[line-1]), column)
	return mistakeAt(line, column, "not YAML: %s%s", at.Message, remedy)
}

// checkText refuses what YAML does not allow in a text. The library refuses most of it, but does
// not say where.
func checkText(text []byte) *Mistake {
	if len(text) > MaxSize {
		return mistakeAt(0, 0, "is longer than %d bytes: want fewer rules, or shorter lists", MaxSize)
	}
	line, column := 1, 0
	for i, c := range string(text) {
		column++
		switch {
		case c == utf8.RuneError && text[i] != 0xef:
			return mistakeAt(line, column, "byte %#02x is not UTF-8: save the file as UTF-8", text[i])
		case !allowed(c):
			return mistakeAt(line, column, "character %U is not allowed: leave it out", c)
		case c == '\n':
			line, column = line+1, 0
		}
	}
	return nil
}

// allowed reports whether YAML 1.1 lets the character stand in a text.
func allowed(c rune) bool {
	switch {
	case c == '\t' || c == '\n' || c == '\r' || c == 0x85:
		return true
	case c < ' ' || 0x7f <= c && c < 0xa0:
		return false
	}
	return c != '\ufeff' && c != '\ufffe' && c != '\uffff'
}

// Fields are the names of the document's fields, if it is a mapping.
func (d *Document) Fields() (names []string) {
	for i := 0; d.root.Kind == yaml.MappingNode && i < len(d.root.Content); i += 2 {
		names = append(names, d.root.Content[i].Value)
	}
	return names
}

// Mistakes are all mistakes, in the order of the document; of more than 100, the first that were
// found.
func (d *Document) Mistakes() []Mistake {
	slices.SortStableFunc(d.mistakes, func(a, b Mistake) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return d.mistakes
}

// Refuse reports a mistake at the path: names of fields, places in lists from 0, and Keys.
// Where the document ends before the path does, it is reported as far along as there is something.
// One that follows from another mistake, at the same path, beneath it or above it, is left out.
func (d *Document) Refuse(path []any, reason string) {
	if d.full() || d.Refused(path) {
		return
	}
	d.add(d.at(path), path, PathText(path, d.format.List)+reason)
}

// at is what the path leads to, or where the document ends before it does.
func (d *Document) at(path []any) *yaml.Node {
	at := d.root
	for i, step := range path {
		next := child(at, step, i == len(path)-1)
		if next == nil {
			break
		}
		at = next
	}
	return at
}

// Warn notes something about what is at the path that whoever wrote it may not expect.
func (d *Document) Warn(path []any, reason string) {
	if len(d.warnings) < MaxMistakes {
		at := d.at(path)
		reason = PathText(path, d.format.List) + reason
		d.warnings = append(d.warnings, Mistake{at.Line, at.Column, reason, path})
	}
}

// Warnings are what Warn has noted, up to 100, in that order.
func (d *Document) Warnings() []Mistake { return d.warnings }

// Refused reports whether there is a mistake at the path, beneath it or above it.
func (d *Document) Refused(path []any) bool {
	return slices.ContainsFunc(d.mistakes, func(m Mistake) bool {
		for i := range min(len(path), len(m.path)) {
			if field(path[i]) != field(m.path[i]) {
				return false
			}
		}
		return true
	})
}

// refuse reports a mistake at the node that is read.
func (d *Document) refuse(n *yaml.Node, format string, args ...any) {
	path := slices.Clone(d.path)
	d.add(n, path, PathText(path, d.format.List)+fmt.Sprintf(format, args...))
}

// refuseName reports a mistake at the name of a field of the mapping that is read.
func (d *Document) refuseName(n *yaml.Node, field, format string, args ...any) {
	path := append(slices.Clone(d.path), field)
	within := strings.TrimSuffix(PathText(path, d.format.List), label(field))
	d.add(n, path, within+fmt.Sprintf(format, args...))
}

// add adds a mistake, once: aliases have others read the same.
func (d *Document) add(at *yaml.Node, path []any, reason string) {
	told := func(m Mistake) bool {
		return m.Line == at.Line && m.Column == at.Column && m.Reason == reason
	}
	if !d.full() && !slices.ContainsFunc(d.mistakes, told) {
		d.mistakes = append(d.mistakes, Mistake{at.Line, at.Column, reason, path})
	}
}

// full reports whether further mistakes are left out.
func (d *Document) full() bool { return len(d.mistakes) >= MaxMistakes }
