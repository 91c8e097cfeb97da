package rules

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/window"
)

const (
	maxName       = 128 // bytes of a rule's or an attribute's name
	maxAttributes = 64  // of a match or a key; looking through them is linear
)

// validate finds the first fault of the rule by itself, or nil. Its defaults are filled in.
func (r *Rule) validate() *fault {
	if why := checkName(r.Name); why != "" {
		return faultf("%s", why).in("name")
	}
	return first(
		validateMatch(r.Match).in("match"),
		validateExclude(r.Exclude).in("exclude"),
		r.validateKey().in("key"),
		r.validateWords(),
		r.validateUnlimited(),
		r.validateLimit(),
		r.validateAlgorithm(),
		r.validateStrict(),
		r.Throttle.validate(),
		r.OnLimit.validate(r.Algorithm),
		r.validateOverrides(),
		validateLists(r.Allow).in("allow"),
		validateLists(r.Deny).in("deny"),
		r.validateCost().in("cost"),
		r.validatePriority(),
		r.validateMost(),
	)
}

func validateMatch(match []Condition) *fault {
	if len(match) > maxAttributes {
		return faultf("has %d attributes: want at most %d", len(match), maxAttributes)
	}
	for i, c := range match {
		if why := c.wrong(); why != "" {
			return faultf("attribute %.40q: %s", c.Name, why).in(i)
		}
		for _, before := range match[:i] {
			if before.Name == c.Name {
				return faultf("attribute %q occurs twice", c.Name).in(i)
			}
		}
	}
	return nil
}

func validateExclude(conditions []Condition) *fault {
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

// wrongFold says what is wrong with a condition on a folded path that no such path would meet, or "".
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

func (r *Rule) validateKey() *fault {
	if len(r.Key) > maxAttributes {
		return faultf("has %d attributes: want at most %d", len(r.Key), maxAttributes)
	}
	for i, name := range r.Key {
		if why := checkName(name); why != "" {
			return faultf("attribute %.40q: %s", name, why).in(i)
		}
		if slices.Contains(r.Key[:i], name) {
			return faultf("attribute %q occurs twice", name).in(i)
		}
	}
	return nil
}

func (r *Rule) validateWords() *fault {
	if int(r.OnMissing) >= len(onMissingWords) {
		return faultf("%d is not one of skip, deny, empty", r.OnMissing).in("on_missing")
	}
	if int(r.Algorithm) >= len(algorithmWords) {
		return faultf("%d is not one of the algorithms", r.Algorithm).in("algorithm")
	}
	if int(r.Enforcement) >= len(enforcementWords) {
		return faultf("%d is not one of async, strict", r.Enforcement).in("enforcement")
	}
	if int(r.OnOutage) >= len(onOutageWords) {
		return faultf("%d is not one of share, open, closed", r.OnOutage).in("on_outage")
	}
	if int(r.Count) >= len(countWords) {
		return faultf("%d is not one of admitted, all", r.Count).in("count")
	}
	if r.Status != 429 && r.Status != 503 {
		return faultf("%d: want 429 or 503", r.Status).in("status")
	}
	return nil
}

// validateUnlimited refuses what would limit somebody after all, or would have no effect.
func (r *Rule) validateUnlimited() *fault {
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
			return faultf("the rule is unlimited, so this has no meaning").in(one.field)
		}
	}
	return nil
}

func (r *Rule) validateLimit() *fault {
	if r.Limit < 1 || r.Limit > window.MaxCount {
		return faultf("%d: want 1 to %d hits", r.Limit, window.MaxCount).in("limit")
	}
	return validateWindow(r.Window)
}

func validateWindow(shape window.Shape) *fault {
	// First the span alone, so that each fault is told of the field it is in.
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
