package strictyaml

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"
)

// Format says what may stand in a document.
type Format struct {
	// List is the name of the field whose entries are what the document is about. Errors do not
	// name the path to such an entry, only the path within it.
	List string
	// Nullable are the names of the fields that may be null. Entries of lists may not.
	Nullable []string
	// Ignored are the names of the fields in which everything is right.
	Ignored []string
	// Loose allows anchors, aliases, merge keys, and tags of single values.
	Loose bool
}

// maxAliased bounds how many values aliases may stand for.
const maxAliased = 1 << 18

// Decode reads the document into a pointer to a struct with yaml tags. What is wrong with it is
// added to the mistakes, and is zero in the struct. An entry of Format.List keeps its place
// whatever is wrong with it, if the list is one of pointers.
func (d *Document) Decode(into any, format Format) {
	d.format = format
	if d.root.Kind != yaml.MappingNode {
		d.at(d.root, "file: want a mapping, got %s", describe(d.root))
		return
	}
	d.check(d.root, "")
	// The library looks for duplicate keys, too, but in quadratic time, and then skips the mapping.
	err := d.root.Load(into, yaml.WithKnownFields(), yaml.WithUniqueKeys(false),
		yaml.WithPlugin(loaderlimits.New(loaderlimits.AliasFunc(checkAliases))))
	if fatal, ok := err.(*yaml.LoadError); ok {
		path, _ := pathTo(d.root, fatal.Mark.Line, fatal.Mark.Column)
		// The rest has not been read, so that nothing can be said of it: the mistake is everywhere.
		d.add(fatal.Mark.Line, fatal.Mark.Column, nil, PathText(path, format.List)+fatal.Message)
		return
	}
	wrong, ok := err.(*yaml.LoadErrors)
	if !ok {
		return
	}
	for _, e := range wrong.Errors {
		if d.full() {
			return // looking for the path to a place is slow
		}
		path, _ := pathTo(d.root, e.Mark.Line, e.Mark.Column)
		d.refused(e, path, reflect.TypeOf(into))
	}
}

func checkAliases(aliased, _ int) error {
	if aliased > maxAliased {
		return errors.New("aliases make the file too large: write them out")
	}
	return nil
}

// check refuses what is a mistake whatever is read from the node, and makes it null, so that it is
// reported once. name is that of the field that the node is the value of.
func (d *Document) check(at *yaml.Node, name string) {
	switch {
	case d.full():
		return
	case at.Kind == yaml.AliasNode && d.format.Loose, slices.Contains(d.format.Ignored, name):
	case !d.format.Loose && (at.Kind == yaml.AliasNode || at.Anchor != ""):
		d.at(at, "anchors and aliases are not supported: write it out")
	case at.Tag == nullTag && !slices.Contains(d.format.Nullable, name):
		d.at(at, "has no value: give it one, or leave it out")
	case at.Tag == mergeTag:
		d.at(at, "<< is a merge key here: write it in quotes")
	case tagNames[at.Tag] == "" && !(d.format.Loose && at.Kind == yaml.ScalarNode):
		d.at(at, "the tag %.40q is not supported", at.Tag)
	case at.Kind == yaml.MappingNode && at.Tag != "!!map", at.Kind == yaml.SequenceNode && at.Tag != "!!seq":
		d.at(at, "the tag %.40q is not supported here", at.Tag)
	case at.Kind == yaml.MappingNode:
		d.checkMapping(at)
	case at.Kind == yaml.SequenceNode:
		for _, entry := range at.Content {
			plain := entry.Kind == yaml.ScalarNode || entry.Kind == yaml.SequenceNode
			if plain && name == d.format.List {
				one := strings.TrimSuffix(name, "s")
				d.at(entry, "%s: want a mapping, got %s", one, describe(entry))
				continue
			}
			d.check(entry, "")
		}
	}
}

// checkMapping refuses names that are no strings, and names that occur twice.
func (d *Document) checkMapping(at *yaml.Node) {
	lines := make(map[string]int, len(at.Content)/2)
	for i := 0; i+1 < len(at.Content); i += 2 {
		key, value := at.Content[i], at.Content[i+1]
		if key.Kind == yaml.AliasNode && d.format.Loose {
			key = key.Alias
		}
		reason := ""
		switch line, twice := lines[key.Value]; {
		case key.Tag == mergeTag && d.format.Loose:
			d.check(value, "")
			continue
		case key.Tag == mergeTag:
			reason = "merge keys are not supported: write it out"
		case key.Kind == yaml.AliasNode, key.Anchor != "" && !d.format.Loose:
			reason = "anchors and aliases are not supported: write it out"
		case key.Tag != strTag:
			reason = fmt.Sprintf("want the name of a field, got %s%s", describe(key), quotes(key))
		case twice:
			reason = fmt.Sprintf("field %.40q occurs twice, first on line %d", key.Value, line)
		default:
			lines[key.Value] = key.Line
			d.check(value, key.Value)
			continue
		}
		d.atKey(yaml.Mark{Line: key.Line, Column: key.Column}, key.Value, reason)
		null(at.Content[i])
		null(value)
	}
}

// at reports a mistake at the node, and makes it null, so that nothing else is reported of it.
func (d *Document) at(n *yaml.Node, format string, args ...any) {
	if !d.full() {
		path, _ := pathTo(d.root, n.Line, n.Column)
		d.add(n.Line, n.Column, path, PathText(path, d.format.List)+fmt.Sprintf(format, args...))
	}
	null(n)
}

// atKey reports a mistake at the name of a field.
func (d *Document) atKey(at yaml.Mark, field, reason string) {
	if d.full() {
		return
	}
	path, _ := pathTo(d.root, at.Line, at.Column)
	path = append(path, field)
	within := strings.TrimSuffix(PathText(path, d.format.List), label(field))
	d.add(at.Line, at.Column, path, within+reason)
}

func null(n *yaml.Node) {
	*n = yaml.Node{Kind: yaml.ScalarNode, Tag: nullTag, Line: n.Line, Column: n.Column}
}

// The errors of the library that are worded anew. Others are those of the types in package rules.
var (
	unknownField = regexp.MustCompile(`^(?s:field (.*) not found in type )`)
	wrongKind    = regexp.MustCompile(`^(?s:cannot construct \S+.* into )(\S+)(?: \(\w+\))?$`)
)

// refused reports an error of the library.
func (d *Document) refused(e *yaml.LoadError, path []any, into reflect.Type) {
	if m := unknownField.FindStringSubmatch(e.Message); m != nil {
		known := fieldsAt(into, path)
		reason := fmt.Sprintf("unknown field %.40q (want %s)", m[1], strings.Join(known, ", "))
		if meant := closest(m[1], known); meant != "" {
			reason = fmt.Sprintf("unknown field %.40q: did you mean %q?", m[1], meant)
			m[1] = meant
		}
		d.atKey(e.Mark, m[1], reason)
		return
	}
	reason := e.Message
	if m := wrongKind.FindStringSubmatch(reason); m != nil {
		want := "a mapping"
		switch {
		case strings.HasPrefix(m[1], "[]"):
			want = "a list"
		case m[1] == "string" || strings.HasSuffix(reason, ")"):
			want = "a single value"
		}
		reason = fmt.Sprintf("want %s, got %s", want, describe(nodeAt(d.root, path)))
	}
	d.add(e.Mark.Line, e.Mark.Column, path, PathText(path, d.format.List)+reason)
}

// fieldsAt are the fields of the struct that is read at the path.
func fieldsAt(t reflect.Type, path []any) (names []string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t.Kind() == reflect.Slice && len(path) > 0:
		return fieldsAt(t.Elem(), path[1:])
	case t.Kind() != reflect.Struct:
		return nil
	}
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ",")
		switch {
		case name == "":
		case len(path) > 0 && path[0] == name:
			return fieldsAt(t.Field(i).Type, path[1:])
		default:
			names = append(names, name)
		}
	}
	return names
}

// closest is the one of the names that the text is at most two typing errors away from, or "".
func closest(text string, names []string) (name string) {
	if len(text) > 40 {
		return ""
	}
	best := min(2, len(text)/2) + 1
	for _, n := range names {
		if errs := distance(text, n); errs < best {
			name, best = n, errs
		}
	}
	return name
}

// distance counts the characters that must be inserted, deleted or replaced to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
