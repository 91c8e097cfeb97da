package strictyaml

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Format says what may stand in a document.
type Format struct {
	// List is the name of the field whose entries are what the document is about. Errors do not
	// name the path to such an entry, only the path within it.
	List string
	// Nullable are the names of the fields that may be null. Entries of lists may not.
	Nullable []string
	// Loose allows anchors, aliases, merge keys, and tags of single values.
	Loose bool
}

// maxAliased bounds how many values aliases may stand for.
const maxAliased = 1 << 18

// Decode reads the document into a pointer to a struct with yaml tags. What is wrong with it is
// added to the mistakes, and is zero in the struct. An entry of Format.List keeps its place
// whatever is wrong with it, if the list is one of pointers.
//
// The library could decode, too, but lets pass what is a mistake here, and its errors have no path.
// So this package walks the library's nodes. Fields of type struct{} are known and not read.
func (d *Document) Decode(into any, format Format) {
	d.format = format
	if d.root.Kind != yaml.MappingNode {
		d.refuse(d.root, "file: want a mapping, got %s", describe(d.root))
		return
	}
	d.read(d.root, reflect.ValueOf(into).Elem())
}

// read reads the node that d.path leads to.
func (d *Document) read(n *yaml.Node, into reflect.Value) {
	if into.Type() == reflect.TypeFor[struct{}]() {
		return
	}
	if n.Kind == yaml.AliasNode && d.format.Loose {
		if d.open[n.Alias] {
			d.refuse(n, "anchor %.40q contains itself", n.Value)
			return
		}
		d.aliases++
		defer func() { d.aliases-- }()
		n = n.Alias
	}
	if d.stopped(n) || d.refused(n) {
		return
	}
	if n.Anchor != "" {
		d.open[n] = true
		defer delete(d.open, n)
	}
	if n.Tag != nullTag { // else it may be null, and is zero
		d.readValue(n, into)
	}
}

// stopped counts the node, if an alias stands for it, and reports whether no more is read.
func (d *Document) stopped(n *yaml.Node) bool {
	if d.aliases > 0 && !d.done() {
		if d.aliased++; d.aliased > maxAliased {
			// The rest is not read, so that nothing can be said of it: the mistake is everywhere.
			d.add(n, nil, "aliases make the file too large: write them out")
		}
	}
	return d.done()
}

// done reports whether no more is read: there are too many mistakes, or values of aliases.
func (d *Document) done() bool { return d.full() || d.aliased > maxAliased }

// refused refuses a node that is a mistake whatever is read from it.
func (d *Document) refused(n *yaml.Node) bool {
	name, _ := d.step(1).(string)
	_, entry := d.step(1).(int)
	switch {
	case !d.format.Loose && (n.Kind == yaml.AliasNode || n.Anchor != ""):
		d.refuse(n, "anchors and aliases are not supported: write it out")
	case entry && d.step(2) == d.format.List && n.Kind != yaml.MappingNode:
		one := strings.TrimSuffix(d.format.List, "s")
		d.refuse(n, "%s: want a mapping, got %s", one, describe(n))
	case n.Tag == nullTag && n.Kind == yaml.ScalarNode && !slices.Contains(d.format.Nullable, name):
		d.refuse(n, "has no value: give it one, or leave it out")
	case n.Tag == mergeTag:
		d.refuse(n, "<< is a merge key here: write it in quotes")
	case tagNames[n.Tag] == "" && !(d.format.Loose && n.Kind == yaml.ScalarNode):
		d.refuse(n, "the tag %.40q is not supported", n.Tag)
	case n.Kind == yaml.MappingNode && n.Tag != "!!map",
		n.Kind == yaml.SequenceNode && n.Tag != "!!seq":
		d.refuse(n, "the tag %.40q is not supported here", n.Tag)
	default:
		return false
	}
	return true
}

// step is a step of d.path, counted from its end, or nil.
func (d *Document) step(back int) any {
	if back > len(d.path) {
		return nil
	}
	return d.path[len(d.path)-back]
}

// readValue reads what is not null.
func (d *Document) readValue(n *yaml.Node, into reflect.Value) {
	switch value := into.Addr().Interface().(type) {
	case yaml.Unmarshaler:
		d.readBy(n, into, func() error { return value.UnmarshalYAML(n) })
		return
	case encoding.TextUnmarshaler:
		d.readBy(n, into, func() error { return value.UnmarshalText([]byte(n.Value)) })
		return
	case mapping:
		d.readMapping(n, func(name, field *yaml.Node) {
			d.readField(name.Value, field, reflect.ValueOf(value.add(name.Value)).Elem())
		})
		return
	}
	switch kind := into.Kind(); kind {
	case reflect.Pointer:
		into.Set(reflect.New(into.Type().Elem()))
		d.readValue(n, into.Elem())
	case reflect.Struct:
		d.readStruct(n, into)
	case reflect.Map:
		into.Set(reflect.MakeMap(into.Type()))
		d.readMapping(n, func(name, field *yaml.Node) {
			value := reflect.New(into.Type().Elem()).Elem()
			d.readField(name.Value, field, value)
			into.SetMapIndex(reflect.ValueOf(name.Value), value)
		})
	case reflect.Slice:
		d.readList(n, into)
	case reflect.Bool:
		d.readBy(n, into, func() error { return readBool(n, into) })
	case reflect.String:
		d.readBy(n, into, func() error { return readString(n, into) })
	default:
		panic(fmt.Sprintf("strictyaml: a field of type %v", into.Type()))
	}
}

// readBy reads a single value.
func (d *Document) readBy(n *yaml.Node, into reflect.Value, read func() error) {
	if n.Kind != yaml.ScalarNode {
		d.refuse(n, "want a single value, got %s", describe(n))
	} else if err := read(); err != nil {
		into.SetZero()
		d.refuse(n, "%v", err)
	}
}

// readBool takes the words of YAML 1.2.
func readBool(n *yaml.Node, into reflect.Value) error {
	if n.Tag != "!!bool" || n.Value != "true" && n.Value != "false" {
		return fmt.Errorf("%.40q: want true or false", n.Value)
	}
	into.SetBool(n.Value == "true")
	return nil
}

// readString takes no numbers and the like for strings: YAML may have understood something else
// than was meant, such as 1e3 or 2026-03-05.
func readString(n *yaml.Node, into reflect.Value) error {
	if n.Tag != strTag {
		return fmt.Errorf("want a string, got %s%s", describe(n), quotes(n))
	}
	into.SetString(n.Value)
	return nil
}

func (d *Document) readList(n *yaml.Node, into reflect.Value) {
	if n.Kind != yaml.SequenceNode {
		d.refuse(n, "want a list, got %s", describe(n))
		return
	}
	into.Set(reflect.MakeSlice(into.Type(), len(n.Content), len(n.Content)))
	for i, entry := range n.Content {
		d.readField(i, entry, into.Index(i))
	}
}

// readField reads what a further step leads to.
func (d *Document) readField(step any, n *yaml.Node, into reflect.Value) {
	d.path = append(d.path, step)
	d.read(n, into)
	d.path = d.path[:len(d.path)-1]
}

func (d *Document) readStruct(n *yaml.Node, into reflect.Value) {
	names, ok := d.fields[into.Type()]
	if !ok {
		names = fieldsOf(into.Type())
		d.fields[into.Type()] = names
	}
	d.readMapping(n, func(name, field *yaml.Node) {
		if i := slices.Index(names, name.Value); i >= 0 {
			d.readField(name.Value, field, into.Field(i))
			return
		}
		meant := closest(name.Value, names)
		if meant == "" {
			known := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == "" })
			d.refuseName(name, name.Value, "unknown field %.40q (want %s)", name.Value,
				strings.Join(known, ", "))
			return
		}
		d.refuseName(name, meant, "unknown field %.40q: did you mean %q?", name.Value, meant)
	})
}

// fieldsOf are the names of a struct's fields in YAML, "" for those that it does not have there.
func fieldsOf(t reflect.Type) (names []string) {
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		names = append(names, name)
	}
	return names
}

// readMapping calls read for each name of a mapping and its value: those that are merged into it
// last. It refuses names that are no strings or occur twice.
func (d *Document) readMapping(n *yaml.Node, read func(name, field *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		d.refuse(n, "want a mapping, got %s", describe(n))
		return
	}
	lines := make(map[string]int, len(n.Content)/2)
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content) && !d.done(); i += 2 {
		at, field := n.Content[i], n.Content[i+1]
		name := at
		if at.Kind == yaml.AliasNode && d.format.Loose {
			name = at.Alias
		}
		switch line, twice := lines[name.Value]; {
		case name.Tag == mergeTag && d.format.Loose:
			merged = append(merged, field)
		case name.Tag == mergeTag:
			d.refuseName(at, at.Value, "merge keys are not supported: write it out")
		case name.Kind == yaml.AliasNode, name.Anchor != "" && !d.format.Loose:
			d.refuseName(at, name.Value, "anchors and aliases are not supported: write it out")
		case name.Tag != strTag:
			d.refuseName(at, name.Value, "want the name of a field, got %s%s", describe(name),
				quotes(name))
		case twice:
			d.refuseName(at, name.Value, "field %.40q occurs twice, first on line %d", name.Value,
				line)
		default:
			lines[name.Value] = at.Line
			read(name, field)
		}
	}
	for _, from := range merged {
		d.merge(from, lines, read)
	}
}

// merge calls read for each name that is merged into a mapping from others, unless the mapping has
// it.
func (d *Document) merge(from *yaml.Node, lines map[string]int, read func(name, field *yaml.Node)) {
	if from.Kind == yaml.SequenceNode {
		for _, one := range from.Content {
			d.merge(one, lines, read)
		}
		return
	}
	n := from
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch {
	case n.Kind != yaml.MappingNode:
		d.refuseName(from, "<<", `"<<": want a mapping or a list of mappings`)
		return
	case d.open[n]:
		d.refuseName(from, "<<", `"<<": anchor %.40q contains itself`, n.Anchor)
		return
	}
	d.aliases++
	defer func() { d.aliases-- }()
	if d.stopped(from) {
		return
	}
	d.open[n] = true
	defer delete(d.open, n)
	d.readMapping(n, func(name, field *yaml.Node) {
		if _, taken := lines[name.Value]; !taken {
			lines[name.Value] = name.Line
			read(name, field)
		}
	})
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
