package rules

import (
	"fmt"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/offpath-io/offpath/pkg/rules/internal/node"
)

func readRuleLimit(at *yaml.Node, what string, r *Rule) error {
	text, err := node.Text(at, what)
	if err != nil {
		return err
	}
	r.Limit, r.Window.Length, err = parseLimit(text)
	if err != nil {
		return node.Errorf(at, "%s: %.40q: %v", what, text, err)
	}
	return nil
}

func readPercent(at *yaml.Node, what string) (float64, error) {
	text, err := node.Text(at, what)
	if err != nil {
		return 0, err
	}
	part, err := parsePercent(text)
	if err != nil {
		return 0, node.Errorf(at, "%s: %.40q: %v", what, text, err)
	}
	return part, nil
}

func readSoft(at *yaml.Node, what string, r *Rule) error {
	fields, err := node.Fields(at, what, []string{"exceed"}, "exceed")
	if err != nil {
		return err
	}
	r.Throttle.Exceed, err = readPercent(node.ValueOf(fields, "exceed"), what+": exceed")
	return err
}

func readElastic(at *yaml.Node, what string, r *Rule) error {
	fields, err := node.Fields(at, what, []string{"up_to", "while"}, "up_to", "while")
	if err != nil {
		return err
	}
	if r.Throttle.UpTo, err = readPercent(node.ValueOf(fields, "up_to"), what+": up_to"); err != nil {
		return err
	}
	what += ": while"
	fields, err = node.Fields(node.ValueOf(fields, "while"), what, []string{"rule", "below"}, "rule", "below")
	if err != nil {
		return err
	}
	for _, f := range fields {
		switch f.Name {
		case "rule":
			r.Throttle.While, err = node.Text(f.Value, what+": rule")
		case "below":
			r.Throttle.Below, err = readPercent(f.Value, what+": below")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func readOnLimit(at *yaml.Node, what string, r *Rule) error {
	place, err := readWord(at, what, onLimitWords)
	r.OnLimit.Queue = place == 1
	return err
}

func readMaxWait(at *yaml.Node, what string, r *Rule) error {
	text, err := node.Text(at, what)
	if err != nil {
		return err
	}
	if r.OnLimit.MaxWait, err = parseSpan(text); err != nil || text == "" {
		return node.Errorf(at, "%s: %.40q: want a span such as 200ms or 2s", what, text)
	}
	return nil
}

// overrideFields are the fields of an override.
var overrideFields = []string{"match", "limit", "buckets", "burst", "until"}

func readOverrides(at *yaml.Node, what string, r *Rule) error {
	if err := node.Kind(at, what, yaml.SequenceNode); err != nil {
		return err
	}
	r.Overrides = make([]Override, len(at.Content))
	for i, entry := range at.Content {
		if err := readOverride(entry, fmt.Sprintf("%s: entry %d", what, i+1), &r.Overrides[i]); err != nil {
			return err
		}
	}
	return nil
}

func readOverride(at *yaml.Node, what string, o *Override) error {
	fields, err := node.Fields(at, what, overrideFields, "match", "limit")
	if err != nil {
		return err
	}
	for _, f := range fields {
		what := what + ": " + f.Name
		switch f.Name {
		case "match":
			o.Match, err = readMatch(f.Value, what)
		case "limit":
			err = readOverrideLimit(f.Value, what, o)
		case "buckets":
			o.Window.Buckets, err = readWhole[int](f.Value, what)
		case "burst":
			o.Burst, err = readWhole[int64](f.Value, what)
		case "until":
			o.Until, err = readTime(f.Value, what)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readOverrideLimit reads a limit, a factor, unlimited or blocked.
func readOverrideLimit(at *yaml.Node, what string, o *Override) error {
	text, err := node.Text(at, what)
	if err != nil {
		return err
	}
	switch {
	case text == Unlimited.String():
		o.Action = Unlimited
	case text == Blocked.String():
		o.Action = Blocked
	case strings.Contains(text, "/"):
		o.Limit, o.Window.Length, err = parseLimit(text)
	case strings.HasSuffix(text, "x"):
		if o.Factor, err = parseFactor(text); err == nil && o.Factor == 0 {
			err = fmt.Errorf("want more than 0")
		}
	default:
		err = fmt.Errorf("want a limit such as 200/second, a factor such as 10x, unlimited or blocked")
	}
	if err != nil {
		return node.Errorf(at, "%s: %.40q: %v", what, text, err)
	}
	return nil
}

// readTime reads a time with its date and zone.
func readTime(at *yaml.Node, what string) (time.Time, error) {
	if err := node.Kind(at, what, yaml.ScalarNode); err != nil {
		return time.Time{}, err
	}
	t, err := time.Parse(time.RFC3339, at.Value)
	if at.Tag != "!!timestamp" && at.Tag != "!!str" || err != nil || t.IsZero() {
		return time.Time{}, node.Errorf(at, "%s: %.40q: want a time such as 2026-12-01T00:00:00Z", what, at.Value)
	}
	return t, nil
}

func readLists(at *yaml.Node, what string) ([]List, error) {
	fields, err := node.Fields(at, what, nil)
	if err != nil {
		return nil, err
	}
	lists := make([]List, len(fields))
	for i, f := range fields {
		lists[i].Attribute = f.Name
		if lists[i].Values, err = readTexts(f.Value, fmt.Sprintf("%s: %.40q", what, f.Name)); err != nil {
			return nil, err
		}
	}
	return lists, nil
}

func readExclude(at *yaml.Node, what string, r *Rule) error {
	lists, err := readLists(at, what)
	for _, list := range lists {
		if err == nil && len(list.Values) == 0 {
			err = node.Errorf(at, "%s: %.40q: is empty: want the values that the rule does not apply to", what, list.Attribute)
		}
		for _, value := range list.Values {
			c := Condition{Name: list.Attribute}
			c.Op, c.Value = parsePattern(value)
			r.Exclude = append(r.Exclude, c)
		}
	}
	return err
}

func readPriority(at *yaml.Node, what string, r *Rule) error {
	fields, err := node.Fields(at, what, []string{"by", "shares"}, "by", "shares")
	if err != nil {
		return err
	}
	if r.Priority.By, err = node.Text(node.ValueOf(fields, "by"), what+": by"); err != nil {
		return err
	}
	if r.Priority.By == "" {
		return node.Errorf(node.ValueOf(fields, "by"), "%s: by: is empty: want the attribute that says which class", what)
	}
	what += ": shares"
	shares, err := node.Fields(node.ValueOf(fields, "shares"), what, nil)
	if err != nil {
		return err
	}
	r.Priority.Shares = make(map[string]float64, len(shares))
	for _, share := range shares {
		part, err := readPercent(share.Value, fmt.Sprintf("%s: %.40q", what, share.Name))
		if err != nil {
			return err
		}
		r.Priority.Shares[share.Name] = part
	}
	return nil
}
