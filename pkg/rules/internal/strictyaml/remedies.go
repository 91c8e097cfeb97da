package strictyaml

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// What to write instead of a mistake. A remedy follows a reason, after a colon; "" is none.

// Remedies say what to write in a document instead of common mistakes.
type Remedies struct {
	// Shapes have an example for fields that are written in another shape, such as a single value
	// in place of a mapping. A name and a slash stands for the values within that field.
	Shapes map[string]string
	// Fields have the remedies for unknown fields of the list's entries that readers know from
	// elsewhere, and Outside that for unknown fields of the document.
	Fields  map[string]string
	Outside string
}

// then is the remedy after a colon.
func then(remedy string) string {
	if remedy == "" {
		return ""
	}
	return ": write " + remedy
}

// shape is the remedy for a value whose shape is not the one of its field.
func (d *Document) shape() string {
	shapes := d.format.Remedies.Shapes
	for at := len(d.path) - 1; at >= max(0, len(d.path)-2); at-- {
		if name, ok := d.path[at].(string); ok {
			if at == len(d.path)-1 {
				if shape := shapes[name]; shape != "" {
					return shape
				}
			} else if shape := shapes[name+"/"]; shape != "" {
				return shape
			}
		}
	}
	return ""
}

// list is the remedy for a single value in place of a list of strings.
func list(n *yaml.Node) string {
	if n.Kind != yaml.ScalarNode || len(n.Value) > 40 || n.Value == "" {
		return ""
	}
	parts := strings.Split(n.Value, ",")
	for i, part := range parts {
		parts[i] = inFlow(strings.TrimSpace(part), n.Tag)
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

var safeInFlow = regexp.MustCompile(`^[A-Za-z_/.][-A-Za-z0-9_/.]*$`)

// inFlow is a string as it may be written in a list.
func inFlow(text, tag string) string {
	if tag == strTag && safeInFlow.MatchString(text) {
		return text
	}
	return strconv.Quote(text)
}

// single is the remedy for a list of one value in place of the value.
func single(n *yaml.Node) string {
	if n.Kind == yaml.SequenceNode && len(n.Content) == 1 {
		if one := n.Content[0]; one.Kind == yaml.ScalarNode && one.Tag == strTag && len(one.Value) <= 40 {
			return inFlow(one.Value, one.Tag)
		}
	}
	return ""
}

// quotes is the remedy for what YAML did not take for a string.
func quotes(n *yaml.Node) string {
	if n.Kind == yaml.ScalarNode && n.Tag != nullTag && n.Style&yaml.TaggedStyle == 0 && len(n.Value) <= 40 {
		return then(strconv.Quote(n.Value) + ", in quotes")
	}
	return ""
}

// truth is the remedy for a word that is no truth value.
func truth(n *yaml.Node) string {
	switch word := strings.ToLower(n.Value); word {
	case "y", "1", "t":
		return then("true")
	case "n", "0", "f":
		return then("false")
	}
	is, ok := truths[strings.ToLower(n.Value)]
	if !ok {
		return ""
	}
	return then(strconv.FormatBool(is) + unquoted(n, strconv.FormatBool(is)))
}

// unquoted adds to a remedy that it is to be written without quotes, if that is all.
func unquoted(n *yaml.Node, remedy string) string {
	if n.Value == remedy && n.Tag == strTag {
		return ", without quotes"
	}
	return ""
}

var thousands = strings.NewReplacer("_", "", ",", "", "'", "", " ", "")

// whole is the remedy for a number that is written in another way.
func whole(n *yaml.Node, least, most int64) string {
	value, err := strconv.ParseFloat(thousands.Replace(n.Value), 64)
	// Between these bounds a float64 has every whole number.
	if err != nil || value != float64(int64(value)) || value < float64(least) || value > float64(most) || value > 1<<53 {
		return ""
	}
	text := strconv.FormatInt(int64(value), 10)
	return then(text + unquoted(n, text))
}

// unknown is the reason and the remedy for a field that is not known. meant is the field that it
// probably is, or "".
func (d *Document) unknown(name string, known []string) (meant, reason string) {
	if remedy := d.format.Remedies.Fields[name]; remedy != "" && isEntry(d.path, d.format.List) {
		return name, fmt.Sprintf("unknown field %.40q: %s", name, remedy)
	}
	if meant = Closest(name, known); meant != "" {
		return meant, fmt.Sprintf("unknown field %.40q: did you mean %q?", name, meant)
	}
	reason = fmt.Sprintf("unknown field %.40q (want %s)", name, strings.Join(known, ", "))
	if len(d.path) == 0 {
		reason += d.format.Remedies.Outside
	}
	return name, reason
}

// Closest is the one of the names that the text is fewest typing errors away from, at most two, or
// "". Capitals and hyphens are no errors.
func Closest(text string, names []string) string {
	if len(text) > 80 {
		return ""
	}
	plain := strings.NewReplacer("-", "_", " ", "_")
	text = strings.ToLower(plain.Replace(text))
	for errs := 0; errs <= min(2, len(text)/2); errs++ {
		for _, name := range names {
			if isNear(text, strings.ToLower(plain.Replace(name)), errs) {
				return name
			}
		}
	}
	return ""
}

// isNear reports whether inserting, deleting or replacing so many characters makes b of a.
func isNear(a, b string, errs int) bool {
	for a != "" && b != "" && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	if a == b || errs == 0 {
		return a == b
	}
	return a != "" && isNear(a[1:], b, errs-1) || b != "" && isNear(a, b[1:], errs-1) ||
		a != "" && b != "" && isNear(a[1:], b[1:], errs-1)
}

// syntax is the remedy for a mistake in YAML itself, by the library's message and the line.
func syntax(message, line string, column int) string {
	before := line[:min(max(column-1, 0), len(line))]
	switch {
	case strings.TrimLeft(before, " ") == "" && strings.HasPrefix(strings.TrimLeft(line, " "), "\t"):
		return ": indent by spaces, not tabs"
	case strings.Contains(message, "unknown anchor"):
		return ": write a value that begins with * in quotes"
	case strings.Contains(message, "cannot start any token"):
		return ": write a value that begins with @, ` or % in quotes"
	case strings.Contains(message, "mapping values are not allowed"):
		return ": write each field on a line of its own, and a value with a colon and a space in quotes"
	case strings.Contains(message, "',' or ']'"):
		return ": close the list with ]"
	case strings.Contains(message, "',' or '}'"):
		return ": close the mapping with }"
	case strings.Contains(message, "did not find expected key"),
		strings.Contains(message, "did not find expected '-' indicator"):
		return ": begin all fields of a rule in the same column"
	case strings.Contains(message, "unexpected end of stream"):
		return ": close the quotes"
	}
	return ""
}
