package rules

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/offpath-io/offpath/pkg/window"
)

// Marshal writes the set as YAML, which Parse reads back to an equal set. It leaves out what is the default, so equal sets are
// written the same. The error is an *Error, for a set that is longer than MaxSize.
func (s *Set) Marshal() ([]byte, error) {
	list := &yaml.Node{Kind: yaml.SequenceNode}
	for _, r := range s.rules {
		rule := &yaml.Node{Kind: yaml.MappingNode}
		for _, f := range ruleWriters {
			if value := f.write(r); value != nil {
				rule.Content = append(rule.Content, textNode(f.name), value)
			}
		}
		list.Content = append(list.Content, rule)
	}
	var text bytes.Buffer
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	if err := encoder.Encode(mappingNode("rules", list)); err != nil {
		return nil, &Error{Reason: err.Error()}
	}
	if text.Len() > MaxSize {
		return nil, &Error{Reason: fmt.Sprintf("has %d bytes as YAML: want at most %d", text.Len(), MaxSize)}
	}
	return text.Bytes(), nil
}

// ruleWriters write the fields of a rule, in the order of ruleFields; nil for a field that has its default.
var ruleWriters = []struct {
	name  string
	write func(*Rule) *yaml.Node
}{
	{"name", func(r *Rule) *yaml.Node { return textNode(r.Name) }},
	{"match", func(r *Rule) *yaml.Node { return writeMatch(r.Match) }},
	{"exclude", writeExclude},
	{"exact", func(r *Rule) *yaml.Node { return writeTruth(r.Exact) }},
	{"key", func(r *Rule) *yaml.Node { return writeTexts(r.Key, !r.Unlimited) }},
	{"on_missing", func(r *Rule) *yaml.Node { return writeWord(r.OnMissing, Skip) }},
	{"limit", func(r *Rule) *yaml.Node {
		if r.Unlimited {
			return nil
		}
		return textNode(limitText(r.Limit, r.Window.Length))
	}},
	{"buckets", func(r *Rule) *yaml.Node { return writeWhole(int64(r.Window.Buckets), defaultBuckets(r.Window)) }},
	{"algorithm", func(r *Rule) *yaml.Node { return writeWord(r.Algorithm, SlidingWindow) }},
	{"burst", func(r *Rule) *yaml.Node {
		if !r.hasBurst() {
			return nil
		}
		return writeWhole(r.Burst, r.Limit)
	}},
	{"unlimited", func(r *Rule) *yaml.Node { return writeTruth(r.Unlimited) }},
	{"enforcement", func(r *Rule) *yaml.Node { return writeWord(r.Enforcement, Async) }},
	{"on_outage", func(r *Rule) *yaml.Node {
		if r.Enforcement == Strict {
			return nil // it can only be closed
		}
		return writeWord(r.OnOutage, Share)
	}},
	{"throttle", func(r *Rule) *yaml.Node { return writeWord(r.Throttle.Kind, Hard) }},
	{"soft", writeSoft},
	{"elastic", writeElastic},
	{"on_limit", func(r *Rule) *yaml.Node {
		if !r.OnLimit.Queue {
			return nil
		}
		return textNode(onLimitWords[1])
	}},
	{"max_wait", func(r *Rule) *yaml.Node {
		if !r.OnLimit.Queue {
			return nil
		}
		return textNode(spanText(r.OnLimit.MaxWait))
	}},
	{"max_depth", func(r *Rule) *yaml.Node {
		if !r.OnLimit.Queue || r.Algorithm == LeakyBucket {
			return nil
		}
		return writeWhole(int64(r.OnLimit.MaxDepth), DefaultDepth)
	}},
	{"status", func(r *Rule) *yaml.Node { return writeWhole(int64(r.Status), 429) }},
	{"shadow", func(r *Rule) *yaml.Node { return writeTruth(r.Shadow) }},
	{"overrides", writeOverrides},
	{"allow", func(r *Rule) *yaml.Node { return writeLists(r.Allow) }},
	{"deny", func(r *Rule) *yaml.Node { return writeLists(r.Deny) }},
	{"cost", func(r *Rule) *yaml.Node {
		if r.Cost == "" {
			return nil
		}
		return textNode(r.Cost)
	}},
	{"count", func(r *Rule) *yaml.Node { return writeWord(r.Count, Admitted) }},
	{"priority", writePriority},
	{"replaces", func(r *Rule) *yaml.Node { return writeTexts(r.Replaces, false) }},
}

// textNode is a string. The library puts it in quotes if it must, but not wherever a line of the text would
// change, so what is not plainly printable is always in quotes.
func textNode(text string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
	if strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) }) {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

// mappingNode is a mapping of names and values by turns, on a line of its own.
func mappingNode(name string, value *yaml.Node) *yaml.Node {
	return &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{textNode(name), value}}
}

// flow is a mapping on one line.
func flow(content ...*yaml.Node) *yaml.Node {
	return &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle, Content: content}
}

func writeTruth(is bool) *yaml.Node {
	if !is {
		return nil
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: "true"}
}

func writeWhole(n, byDefault int64) *yaml.Node {
	if n == byDefault {
		return nil
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.FormatInt(n, 10)}
}

func writeWord[T interface {
	comparable
	fmt.Stringer
}](word, byDefault T) *yaml.Node {
	if word == byDefault {
		return nil
	}
	return textNode(word.String())
}

func writeTexts(texts []string, evenEmpty bool) *yaml.Node {
	if len(texts) == 0 && !evenEmpty {
		return nil
	}
	list := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
	for _, text := range texts {
		list.Content = append(list.Content, textNode(text))
	}
	return list
}

func writeMatch(match []Condition) *yaml.Node {
	if len(match) == 0 {
		return nil
	}
	n := flow()
	for _, c := range match {
		n.Content = append(n.Content, textNode(c.Name), textNode(c.Pattern()))
	}
	return n
}

func writeExclude(r *Rule) *yaml.Node {
	var lists []List
	for i, c := range r.Exclude {
		if i == 0 || r.Exclude[i-1].Name != c.Name {
			lists = append(lists, List{Attribute: c.Name})
		}
		of := &lists[len(lists)-1]
		of.Values = append(of.Values, c.Pattern())
	}
	return writeLists(lists)
}

func writeSoft(r *Rule) *yaml.Node {
	if r.Throttle.Kind != Soft {
		return nil
	}
	return flow(textNode("exceed"), textNode(percent(r.Throttle.Exceed)))
}

func writeElastic(r *Rule) *yaml.Node {
	if r.Throttle.Kind != Elastic {
		return nil
	}
	while := flow(textNode("rule"), textNode(r.Throttle.While), textNode("below"), textNode(percent(r.Throttle.Below)))
	return flow(textNode("up_to"), textNode(percent(r.Throttle.UpTo)), textNode("while"), while)
}

func writeOverrides(r *Rule) *yaml.Node {
	if len(r.Overrides) == 0 {
		return nil
	}
	list := &yaml.Node{Kind: yaml.SequenceNode}
	for i := range r.Overrides {
		list.Content = append(list.Content, r.Overrides[i].write(r))
	}
	return list
}

func (o *Override) write(r *Rule) *yaml.Node {
	n := flow(textNode("match"), writeMatch(o.Match), textNode("limit"))
	shape := o.Window
	if shape == (window.Shape{}) {
		shape = r.Window
	}
	switch {
	case o.Action != Limited:
		n.Content = append(n.Content, textNode(o.Action.String()))
	case o.Factor != 0:
		n.Content = append(n.Content, textNode(strconv.FormatFloat(o.Factor, 'f', -1, 64)+"x"))
	default:
		n.Content = append(n.Content, textNode(limitText(o.Limit, shape.Length)))
		if buckets := writeWhole(int64(shape.Buckets), int64(r.bucketsOf(shape))); buckets != nil {
			n.Content = append(n.Content, textNode("buckets"), buckets)
		}
		if burst := writeWhole(o.Burst, o.Limit); r.hasBurst() && burst != nil {
			n.Content = append(n.Content, textNode("burst"), burst)
		}
	}
	if !o.Until.IsZero() {
		until := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!timestamp", Value: o.Until.Format(time.RFC3339Nano)}
		n.Content = append(n.Content, textNode("until"), until)
	}
	return n
}

func writeLists(lists []List) *yaml.Node {
	if len(lists) == 0 {
		return nil
	}
	n := flow()
	for _, list := range lists {
		entries := slices.Clone(list.Values)
		for _, p := range list.Prefixes {
			entries = append(entries, p.String())
		}
		n.Content = append(n.Content, textNode(list.Attribute), writeTexts(entries, false))
	}
	return n
}

func writePriority(r *Rule) *yaml.Node {
	if r.Priority.By == "" {
		return nil
	}
	shares := flow()
	for _, class := range slices.Sorted(maps.Keys(r.Priority.Shares)) {
		shares.Content = append(shares.Content, textNode(class), textNode(percent(r.Priority.Shares[class])))
	}
	return flow(textNode("by"), textNode(r.Priority.By), textNode("shares"), shares)
}

// defaultBuckets is into how many buckets a window is cut if a rule does not say so.
func defaultBuckets(s window.Shape) int64 { return int64(window.DefaultBuckets(s.Kind, s.Length)) }
