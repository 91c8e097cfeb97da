package strictyaml

import (
	"cmp"
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strconv"
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
	// Loose allows anchors, aliases, merge keys, and tags of single values. Any single value is a
	// string then, as it is written, and truth values have the words of YAML 1.1.
	Loose bool
	// Remedies for mistakes.
	Remedies Remedies
}

// maxAliased bounds how many values aliases may stand for, with the names of their fields.
const maxAliased = 1 << 18

// Decode reads the document into a pointer to a struct with yaml tags. What is wrong with it is
// added to the mistakes, and is zero in the struct. An entry of Format.List keeps its place
// whatever is wrong with it, if the list is one of pointers.
//
// The library could decode, too, but accepts more than rules may have, and its errors have no path.
// So this package walks the library's nodes. Fields of type struct{} are known and not read; a
// *struct{} says whether there is one.
func (d *Document) Decode(into any, format Format) {
	d.format = format
	if d.root.Kind != yaml.MappingNode {
		d.refuse(d.root, "file: want a mapping, got %s%s", describe(d.root), then(format.Remedies.Shapes[""]))
		return
	}
	d.read(d.root, reflect.ValueOf(into).Elem())
}

// read reads the node that d.path leads to.
func (d *Document) read(n *yaml.Node, into reflect.Value) {
	switch into.Type() {
	case reflect.TypeFor[*struct{}]():
		if n.Tag != nullTag {
			into.Set(reflect.ValueOf(new(struct{})))
		}
		return
	case reflect.TypeFor[struct{}]():
		return
	}
	if n.Kind == yaml.AliasNode && d.format.Loose {
		if d.open[n.Alias] {
			d.refuse(n, "anchor %.40q contains itself", n.Value)
			return
		}
		if len(d.path) > maxDepth {
			d.add(n, nil, "aliases nest the file too deep: write them out")
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
	var name string // "" of an entry of a list
	if at := len(d.path) - 1; at >= 0 {
		name, _ = d.path[at].(string)
	}
	switch {
	case !d.format.Loose && (n.Kind == yaml.AliasNode || n.Anchor != ""):
		d.refuse(n, unaliased)
	case isEntry(d.path, d.format.List) && n.Kind != yaml.MappingNode:
		one := strings.TrimSuffix(d.format.List, "s")
		d.refuse(n, "%s: want a mapping, got %s%s", one, describe(n), then(d.format.Remedies.Shapes[one]))
	case n.Tag == nullTag && n.Kind == yaml.ScalarNode && !slices.Contains(d.format.Nullable, name):
		d.refuse(n, "has no value%s", cmp.Or(then(d.shape()), ": give it one, or leave it out"))
	case n.Tag == mergeTag:
		d.refuse(n, `<< is a merge key here: write "<<", in quotes`)
	case n.Kind == yaml.ScalarNode && tagNames[n.Tag] == "" && !d.format.Loose,
		n.Kind == yaml.MappingNode && n.Tag != "!!map",
		n.Kind == yaml.SequenceNode && n.Tag != "!!seq":
		d.refuse(n, "the tag %.40q is not supported here: leave it out", n.Tag)
	default:
		return false
	}
	return true
}

const unaliased = "anchors and aliases are not supported: write it out"

// readValue reads a value that is not null.
func (d *Document) readValue(n *yaml.Node, into reflect.Value) {
	switch value := into.Addr().Interface().(type) {
	case yaml.Unmarshaler, encoding.TextUnmarshaler, *bool, *string:
		d.readScalar(n, value)
		return
	case mapping:
		d.readMapping(n, func(name, field *yaml.Node) {
			d.readPart(name.Value, field, reflect.ValueOf(value.add(name.Value)).Elem())
		})
		return
	}
	switch into.Kind() {
	case reflect.Pointer:
		into.Set(reflect.New(into.Type().Elem()))
		d.readValue(n, into.Elem())
	case reflect.Slice:
		d.readList(n, into)
	default:
		d.readStruct(n, into)
	}
}

func (d *Document) readScalar(n *yaml.Node, into any) {
	if n.Kind != yaml.ScalarNode {
		d.refuse(n, "want a single value, got %s%s", describe(n), then(cmp.Or(single(n), d.shape())))
		return
	}
	var err error
	switch into := into.(type) {
	case yaml.Unmarshaler:
		err = into.UnmarshalYAML(n)
	case encoding.TextUnmarshaler:
		err = into.UnmarshalText([]byte(n.Value))
	case *bool:
		var known bool
		*into, known = truths[strings.ToLower(n.Value)]
		plain := n.Tag == "!!bool" && n.Value == strconv.FormatBool(*into)
		if !known || !plain && !d.format.Loose {
			err = fmt.Errorf("%.40q: want true or false%s", n.Value, truth(n))
		}
	case *string:
		// No numbers and the like: YAML may have understood something else than was meant, such as
		// 1e3 or 2026-03-05.
		if *into = n.Value; n.Tag != strTag && !d.format.Loose {
			err = fmt.Errorf("want a string, got %s%s", describe(n), quotes(n))
		}
	}
	if err != nil {
		d.refuse(n, "%v", err)
	}
}

func (d *Document) readList(n *yaml.Node, into reflect.Value) {
	if n.Kind != yaml.SequenceNode {
		remedy := d.shape()
		if into.Type().Elem().Kind() == reflect.String {
			remedy = cmp.Or(list(n), remedy)
		}
		d.refuse(n, "want a list, got %s%s", describe(n), then(remedy))
		return
	}
	into.Set(reflect.MakeSlice(into.Type(), len(n.Content), len(n.Content)))
	for i, entry := range n.Content {
		d.readPart(i, entry, into.Index(i))
	}
}

// readPart reads what a further step leads to.
func (d *Document) readPart(step any, n *yaml.Node, into reflect.Value) {
	d.path = append(d.path, step)
	d.read(n, into)
	d.path = d.path[:len(d.path)-1]
}

func (d *Document) readStruct(n *yaml.Node, into reflect.Value) {
	known := d.fields[into.Type()]
	if known == nil {
		for field := range into.Type().Fields() {
			if field.IsExported() { // else it is not one of the document's
				name, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
				known = append(known, name)
			}
		}
		d.fields[into.Type()] = known
	}
	d.readMapping(n, func(name, field *yaml.Node) {
		if i := slices.Index(known, name.Value); i >= 0 {
			d.readPart(name.Value, field, into.Field(i))
		} else {
			meant, reason := d.unknown(name.Value, known)
			d.refuseName(name, meant, "%s", reason)
		}
	})
}

// readMapping calls read for each name of a mapping and its value: those that are merged into it
// last. It refuses names that are no strings or occur twice.
func (d *Document) readMapping(n *yaml.Node, read func(name, field *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		d.refuse(n, "want a mapping, got %s%s", describe(n), then(d.shape()))
		return
	}
	lines := make(map[string]int, len(n.Content)/2)
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content) && !d.stopped(n.Content[i]); i += 2 {
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
			d.refuseName(at, name.Value, unaliased)
		case name.Tag != strTag:
			d.refuseName(at, name.Value, "want the name of a field, got %s%s", describe(name),
				quotes(name))
		case twice:
			d.refuseName(at, name.Value, "field %.40q occurs twice, first on line %d: "+
				"keep one of them", name.Value, line)
		default:
			lines[name.Value] = at.Line
			read(name, field)
		}
	}
	for _, from := range merged {
		if from.Kind != yaml.SequenceNode || from.Tag != "!!seq" {
			d.merge(from, lines, read)
			continue
		}
		for _, one := range from.Content {
			d.merge(one, lines, read)
		}
	}
}

// merge calls read for each name that is merged into a mapping from others, unless the mapping has
// it.
func (d *Document) merge(from *yaml.Node, lines map[string]int, read func(name, field *yaml.Node)) {
	n := from
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch {
	case n.Kind != yaml.MappingNode, n.Tag != "!!map":
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
