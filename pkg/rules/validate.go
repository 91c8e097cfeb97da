package rules

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules/internal/strictyaml"
	"github.com/offpath-io/offpath/pkg/window"
)

const (
	maxName       = 128 // bytes of a rule's or an attribute's name
	maxAttributes = 64  // of a match or a key; looking through them is linear
)

// validate finds what is wrong with the rule by itself. Its defaults are filled in. What depends on
// several fields is checked only if each of them could be read and is right.
func (r *Rule) validate(unread bool) faults {
	all := join(
		validateName(r.Name).in("name"),
		validateMatch(r.Match).in("match"),
		validateExclude(r.Exclude).in("exclude"),
		validateKey(r.Key).in("key"),
		r.validateWords(),
		validateLists(r.Allow).in("allow"),
		validateLists(r.Deny).in("deny"),
		r.validateCost().in("cost"),
	)
	if unread || all != nil {
		return all
	}
	all = join(
		r.validateUnlimited(),
		r.validateLimit(),
		r.validateAlgorithm(),
		r.validateStrict(),
		r.Throttle.validate(),
		r.OnLimit.validate(r.Algorithm),
		r.validateOverrides(),
		r.validatePriority(),
	)
	if all == nil {
		return r.validateMost()
	}
	return all
}

func validateName(name string) faults {
	if name == "" {
		return faultf("is missing or empty")
	}
	if why := checkName(name); why != "" {
		return faultf("%s", why)
	}
	return nil
}

func validateMatch(match []Condition) (all faults) {
	if len(match) > maxAttributes {
		return faultf("has %d attributes: want at most %d", len(match), maxAttributes)
	}
	for i, c := range match {
		same := func(before Condition) bool { return before.Name == c.Name }
		if why := c.wrong(); why != "" {
			all.add(path{strictyaml.Key(c.Name)}, "attribute %.40q: %s", c.Name, why)
		} else if slices.ContainsFunc(match[:i], same) {
			all.add(path{strictyaml.Key(c.Name)}, "attribute %q occurs twice", c.Name)
		}
	}
	return all
}

func validateExclude(conditions []Condition) faults {
	for _, c := range conditions {
		if why := c.wrong(); why != "" {
			return faultf("attribute %.40q: %s", c.Name, why)
		}
	}
	return nil
}

// wrong says what is wrong with the condition, or "".
func (c *Condition) wrong() string {
	if why := checkName(c.Name); why != "" {
		return why
	}
	switch {
	case int(c.Op) >= len(opWords):
		return fmt.Sprintf("%d is not one of equal, present, prefix", c.Op)
	case !utf8.ValidString(c.Value):
		return "its value is not UTF-8"
	case c.Op == Present && c.Value != "":
		return "is to be present, so there is no value to compare"
	case c.Op == Prefix && c.Value == "":
		return "any value begins with an empty prefix: want present"
	}
	return c.wrongFold()
}

// wrongFold says what is wrong with a condition on a folded path that no such path would meet, or
// "".
func (c *Condition) wrongFold() string {
	switch folded := identity.FoldPath(c.Value); {
	case c.Name != identity.FoldedPath:
	case c.Op == Equal && c.Value != folded:
		return fmt.Sprintf("is in lower case and ends in a slash: want %.80q", folded)
	case c.Op == Prefix && c.Value != strings.ToLower(c.Value):
		return fmt.Sprintf("is in lower case: want %.80q", strings.ToLower(c.Value))
	}
	return ""
}

func validateKey(key []string) (all faults) {
	if len(key) > maxAttributes {
		return faultf("has %d attributes: want at most %d", len(key), maxAttributes)
	}
	for i, name := range key {
		if why := checkName(name); why != "" {
			all.add(path{i}, "attribute %.40q: %s", name, why)
		} else if slices.Contains(key[:i], name) {
			all.add(path{i}, "attribute %q occurs twice", name)
		}
	}
	return all
}

func (r *Rule) validateWords() faults {
	all := join(
		checkWord(r.OnMissing).in("on_missing"),
		checkWord(r.Algorithm).in("algorithm"),
		checkWord(r.Enforcement).in("enforcement"),
		checkWord(r.OnOutage).in("on_outage"),
		checkWord(r.Throttle.Kind).in("throttle"),
		checkWord(r.Count).in("count"),
	)
	if r.Status != 429 && r.Status != 503 {
		all.add(path{"status"}, "%d: want 429 or 503", r.Status)
	}
	return all
}

// validateUnlimited refuses what would limit somebody after all, or would have no effect.
func (r *Rule) validateUnlimited() (all faults) {
	if !r.Unlimited {
		return nil
	}
	for _, one := range []struct {
		field string
		given bool
	}{
		{"limit", r.Limit != window.MaxCount || r.Window != open},
		{"algorithm", r.Algorithm != SlidingWindow},
		{"enforcement", r.Enforcement != Async},
		{"throttle", r.Throttle.Kind != Hard},
		{"on_limit", r.OnLimit.Queue},
		{"overrides", r.Overrides != nil},
		{"cost", r.Cost != ""},
		{"count", r.Count != Admitted},
		{"priority", r.Priority.By != ""},
	} {
		if one.given {
			all.add(path{one.field}, "the rule is unlimited, so this has no meaning")
		}
	}
	return all
}

func (r *Rule) validateLimit() faults {
	if r.Limit < 1 || r.Limit > window.MaxCount {
		return faultf("%d: want 1 to %d hits", r.Limit, window.MaxCount).in("limit")
	}
	return validateWindow(r.Window)
}

func validateWindow(shape window.Shape) faults {
	// First the span alone, so that each fault is reported of its own field.
	if err := (window.Shape{Length: shape.Length, Buckets: 1}).Validate(); err != nil {
		return faultf("%v", err).in("limit")
	}
	if err := shape.Validate(); err != nil {
		return faultf("%v", err).in("buckets")
	}
	return nil
}

// checkName says what is wrong with the name of a rule or an attribute, or "".
func checkName(name string) string {
	switch {
	case name == "":
		return "is empty"
	case len(name) > maxName:
		return fmt.Sprintf("has %d bytes: want at most %d", len(name), maxName)
	case !utf8.ValidString(name):
		return "is not UTF-8"
	}
	for _, c := range name {
		if c == ' ' || !unicode.IsPrint(c) {
			return fmt.Sprintf("contains %q: want printable characters without spaces", c)
		}
	}
	return ""
}
