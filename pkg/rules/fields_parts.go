package rules

import (
	"fmt"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

func readRuleLimit(node *yaml.Node, what string, r *Rule) error {
	text, err := readText(node, what)
	if err != nil {
		return err
	}
	r.Limit, r.Window.Length, err = parseLimit(text)
	if err != nil {
		return errorAt(node, "%s: %.40q: %v", what, text, err)
	}
	return nil
}

func readPercent(node *yaml.Node, what string) (float64, error) {
	text, err := readText(node, what)
	if err != nil {
		return 0, err
	}
	part, err := parsePercent(text)
	if err != nil {
		return 0, errorAt(node, "%s: %.40q: %v", what, text, err)
	}
	return part, nil
}

func readSoft(node *yaml.Node, what string, r *Rule) error {
	fields, err := readFields(node, what, []string{"exceed"}, "exceed")
	if err != nil {
		return err
	}
	r.Throttle.Exceed, err = readPercent(valueOf(fields, "exceed"), what+": exceed")
	return err
}

func readElastic(node *yaml.Node, what string, r *Rule) error {
	fields, err := readFields(node, what, []string{"up_to", "while"}, "up_to", "while")
	if err != nil {
		return err
	}
	if r.Throttle.UpTo, err = readPercent(valueOf(fields, "up_to"), what+": up_to"); err != nil {
		return err
	}
	what += ": while"
	fields, err = readFields(valueOf(fields, "while"), what, []string{"rule", "signal", "below"}, "below")
	if err != nil {
		return err
	}
	for _, f := range fields {
		switch f.name {
		case "rule":
			r.Throttle.While, err = readText(f.value, what+": rule")
		case "signal":
			r.Throttle.Signal, err = readText(f.value, what+": signal")
		case "below":
			r.Throttle.Below, err = readPercent(f.value, what+": below")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func readOnLimit(node *yaml.Node, what string, r *Rule) error {
	at, err := readWord(node, what, onLimitWords)
	r.OnLimit.Queue = at == 1
	return err
}

func readMaxWait(node *yaml.Node, what string, r *Rule) error {
	text, err := readText(node, what)
	if err != nil {
		return err
	}
	if r.OnLimit.MaxWait, err = parseSpan(text); err != nil || text == "" {
		return errorAt(node, "%s: %.40q: want a span such as 200ms or 2s", what, text)
	}
	return nil
}

// overrideFields are the fields of an override.
var overrideFields = []string{"match", "limit", "buckets", "burst", "until"}

func readOverrides(node *yaml.Node, what string, r *Rule) error {
	if err := checkKind(node, what, yaml.SequenceNode); err != nil {
		return err
	}
	r.Overrides = make([]Override, len(node.Content))
	for i, entry := range node.Content {
		if err := readOverride(entry, fmt.Sprintf("%s: entry %d", what, i+1), &r.Overrides[i]); err != nil {
			return err
		}
	}
	return nil
}

func readOverride(node *yaml.Node, what string, o *Override) error {
	fields, err := readFields(node, what, overrideFields, "match", "limit")
	if err != nil {
		return err
	}
	for _, f := range fields {
		what := what + ": " + f.name
		switch f.name {
		case "match":
			o.Match, err = readMatch(f.value, what)
		case "limit":
			err = readOverrideLimit(f.value, what, o)
		case "buckets":
			o.Window.Buckets, err = readWhole[int](f.value, what)
		case "burst":
			o.Burst, err = readWhole[int64](f.value, what)
		case "until":
			o.Until, err = readTime(f.value, what)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readOverrideLimit reads a limit, a factor, unlimited or blocked.
func readOverrideLimit(node *yaml.Node, what string, o *Override) error {
	text, err := readText(node, what)
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
		return errorAt(node, "%s: %.40q: %v", what, text, err)
	}
	return nil
}

// readTime reads a time with its date and zone.
func readTime(node *yaml.Node, what string) (time.Time, error) {
	if err := checkKind(node, what, yaml.ScalarNode); err != nil {
		return time.Time{}, err
	}
	t, err := time.Parse(time.RFC3339, node.Value)
	if node.Tag != "!!timestamp" && node.Tag != "!!str" || err != nil || t.IsZero() {
		return time.Time{}, errorAt(node, "%s: %.40q: want a time such as 2026-12-01T00:00:00Z", what, node.Value)
	}
	return t, nil
}

func readLists(node *yaml.Node, what string) ([]List, error) {
	fields, err := readFields(node, what, nil)
	if err != nil {
		return nil, err
	}
	lists := make([]List, len(fields))
	for i, f := range fields {
		lists[i].Attribute = f.name
		if lists[i].Values, err = readTexts(f.value, fmt.Sprintf("%s: %.40q", what, f.name)); err != nil {
			return nil, err
		}
	}
	return lists, nil
}

func readPriority(node *yaml.Node, what string, r *Rule) error {
	fields, err := readFields(node, what, []string{"by", "shares"}, "by", "shares")
	if err != nil {
		return err
	}
	if r.Priority.By, err = readText(valueOf(fields, "by"), what+": by"); err != nil {
		return err
	}
	if r.Priority.By == "" {
		return errorAt(valueOf(fields, "by"), "%s: by: is empty: want the attribute that says which class", what)
	}
	what += ": shares"
	shares, err := readFields(valueOf(fields, "shares"), what, nil)
	if err != nil {
		return err
	}
	r.Priority.Shares = make(map[string]float64, len(shares))
	for _, share := range shares {
		part, err := readPercent(share.value, fmt.Sprintf("%s: %.40q", what, share.name))
		if err != nil {
			return err
		}
		r.Priority.Shares[share.name] = part
	}
	return nil
}
