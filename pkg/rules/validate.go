package rules

import (
	"fmt"
	"slices"
	"unicode"
	"unicode/utf8"

	"github.com/offpath-io/offpath/pkg/window"
)

const (
	maxName       = 128 // bytes of a rule's or an attribute's name
	maxAttributes = 64  // of a match or a key; looking through them is linear
)

// fault is what is wrong with one field of a rule.
type fault struct {
	field  string // as YAML calls it
	item   int    // which entry of it, or -1 for the field as a whole
	reason string
}

func faultf(field string, item int, format string, args ...any) *fault {
	return &fault{field: field, item: item, reason: fmt.Sprintf(format, args...)}
}

// validate finds the first fault of the rule by itself, or nil.
func (r *Rule) validate() *fault {
	if why := checkName(r.Name); why != "" {
		return faultf("name", -1, "%s", why)
	}
	if f := r.validateMatch(); f != nil {
		return f
	}
	if f := r.validateKey(); f != nil {
		return f
	}
	if int(r.OnMissing) >= len(onMissingWords) {
		return faultf("on_missing", -1, "%d is not one of skip, deny, empty", r.OnMissing)
	}
	if int(r.Enforcement) >= len(enforcementWords) {
		return faultf("enforcement", -1, "%d is not one of async, strict", r.Enforcement)
	}
	if int(r.OnOutage) >= len(onOutageWords) {
		return faultf("on_outage", -1, "%d is not one of open, closed", r.OnOutage)
	}
	if r.Enforcement == Strict && r.OnOutage == Open {
		return faultf("on_outage", -1, "open lets requests pass without a permit, and under strict enforcement none may: want closed")
	}
	return r.validateLimit()
}

func (r *Rule) validateMatch() *fault {
	if len(r.Match) > maxAttributes {
		return faultf("match", -1, "has %d attributes: want at most %d", len(r.Match), maxAttributes)
	}
	for i, pair := range r.Match {
		if why := checkName(pair.Name); why != "" {
			return faultf("match", i, "attribute %.40q: %s", pair.Name, why)
		}
		for _, before := range r.Match[:i] {
			if before.Name == pair.Name {
				return faultf("match", i, "attribute %q occurs twice", pair.Name)
			}
		}
	}
	return nil
}

func (r *Rule) validateKey() *fault {
	if len(r.Key) == 0 {
		return faultf("key", -1, "is empty: want the attributes that say who is limited")
	}
	if len(r.Key) > maxAttributes {
		return faultf("key", -1, "has %d attributes: want at most %d", len(r.Key), maxAttributes)
	}
	for i, name := range r.Key {
		if why := checkName(name); why != "" {
			return faultf("key", i, "attribute %.40q: %s", name, why)
		}
		if slices.Contains(r.Key[:i], name) {
			return faultf("key", i, "attribute %q occurs twice", name)
		}
	}
	return nil
}

func (r *Rule) validateLimit() *fault {
	if r.Limit < 1 || r.Limit > window.MaxCount {
		return faultf("limit", -1, "%d: want 1 to %d hits", r.Limit, window.MaxCount)
	}
	// First the span alone, so that each fault is told of the field it is in.
	if err := (window.Shape{Length: r.Window.Length, Buckets: 1}).Validate(); err != nil {
		return faultf("limit", -1, "%v", err)
	}
	if err := r.Window.Validate(); err != nil {
		return faultf("buckets", -1, "%v", err)
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
