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
		r.validateCost(),
	)
	if unread || all != nil {
		return all
	}
	all = join(
		r.validateOrdered(),
		r.validateUnlimited(),
		Terms{r.Limit, r.Window, r.Burst}.validate(r),
		validateWindow(r.Window),
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
		return faultf("is missing or empty: write name: per-user, for example")
	}
	if why := checkName(name); why != "" {
		return faultf("%s", why)
	}
	return nil
}

// named is a part of a rule with the name of an attribute.
type named struct {
	step      any // of the path to it
	name, why string
}

// refuseNames refuses parts that have something wrong, or the name of an earlier one.
func refuseNames(list []named, most int) (all faults) {
	if len(list) > most {
		return faultf("has %d attributes: want at most %d", len(list), most)
	}
	seen := make(map[string]bool, len(list))
	for _, one := range list {
		if one.why == "" && seen[one.name] {
			one.why = "occurs twice: keep one of them"
		}
		if seen[one.name] = true; one.why != "" {
			all.add(path{one.step}, "attribute %.40q: %s", one.name, one.why)
		}
	}
	return all
}

func validateMatch(match []Condition) faults {
	list := make([]named, len(match))
	for i, c := range match {
		list[i] = named{strictyaml.Key(c.Name), c.Name, c.wrong()}
	}
	return refuseNames(list, maxAttributes)
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
	case c.Op.String() == invalid:
		return fmt.Sprintf("%d is not one of equal, present, prefix, glob", c.Op)
	case !utf8.ValidString(c.Value):
		return "its value is not UTF-8"
	case c.Op == Present && c.Value != "":
		return "is to be present, so there is no value to compare"
	case c.Op == Prefix && c.Value == "":
		return "any value begins with an empty prefix: want present"
	case c.Op == Glob:
		if op, _ := parsePattern(c.Value); op != Glob {
			return fmt.Sprintf("%.80q is a pattern with a wildcard at its end alone, or none: "+
				"want %v", c.Value, op)
		}
	}
	return c.wrongFold()
}

// wrongFold says why no folded path would meet a condition on one, or "".
func (c *Condition) wrongFold() string {
	switch folded := identity.FoldPath(c.Value); {
	case c.Name != identity.FoldedPath:
	case c.Op == Equal && c.Value != folded:
		return fmt.Sprintf("is in lower case and ends in a slash: want %.80q", folded)
	case c.Op != Equal && c.Value != strings.ToLower(c.Value):
		return fmt.Sprintf("is in lower case: want %.80q", strings.ToLower(c.Value))
	}
	return ""
}

func validateKey(key []string) faults {
	list := make([]named, len(key))
	for i, name := range key {
		list[i] = named{i, name, checkName(name)}
	}
	return refuseNames(list, maxAttributes)
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

func (r *Rule) validateOrdered() faults {
	if !r.Ordered {
		return nil
	}
	if !r.Exact {
		return faultf("is for a rule with exact: true").in("ordered")
	}
	for i, name := range r.Key {
		if !slices.ContainsFunc(r.Match, func(c Condition) bool { return c.Name == name }) {
			return faultf("attribute %.40q: match says the order, and does not have it", name).
				in("key", i)
		}
	}
	return nil
}

// validateUnlimited refuses fields that would limit some caller, or would have no effect.
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
			all.add(path{one.field}, "the rule is unlimited, so this has no meaning: leave out this or unlimited")
		}
	}
	return all
}

// validate checks the limit of a rule, or of one of its overrides.
func (t Terms) validate(r *Rule) faults {
	var all faults
	if t.Limit < 1 || t.Limit > window.MaxCount {
		all.add(path{"limit"}, "%d: want 1 to %d hits", t.Limit, window.MaxCount)
	}
	switch {
	case !r.hasBurst() && t.Burst != 0:
		all.add(path{"burst"}, "%v has none: leave it out, or write algorithm: token_bucket or leaky_bucket", r.Algorithm)
	case r.hasBurst() && (t.Burst < 1 || t.Burst > window.MaxCount):
		all.add(path{"burst"}, "%d: want 1 to %d", t.Burst, window.MaxCount)
	}
	if t.Window.Fixed != r.Window.Fixed || t.Window.Kind != r.Window.Kind {
		all.add(path{"limit"}, "want the rule's algorithm, %v", r.Algorithm)
	}
	return all
}

func validateWindow(shape window.Shape) faults {
	// First the span alone, so that each fault is reported of its own field.
	if err := (window.Shape{Length: shape.Length, Buckets: 1}).Validate(); err != nil {
		return faultf("%v", err).in("limit")
	}
	if err := shape.Validate(); err != nil {
		if shape.Fixed {
			return faultf("%v: leave it out", err).in("buckets")
		}
		return faultf("%v%s", err, bucketsRemedy(shape)).in("buckets")
	}
	return nil
}

// checkName says what is wrong with the name of a rule or an attribute, or "".
func checkName(name string) string {
	switch {
	case name == "":
		return "is empty: want a name"
	case len(name) > maxName:
		return fmt.Sprintf("has %d bytes: want at most %d", len(name), maxName)
	case !utf8.ValidString(name):
		return "is not UTF-8: write it in UTF-8"
	}
	for _, c := range name {
		if !isNameRune(c) {
			return fmt.Sprintf("contains %q: want printable characters without spaces%s", c, nameRemedy(name))
		}
	}
	return ""
}

func isNameRune(c rune) bool { return c != ' ' && unicode.IsPrint(c) }

// fault is something wrong with a rule, and the path to it: names of fields, places in lists
// from 0, and strictyaml.Keys, which are in the reason.
type fault struct {
	path   path
	reason string
}

// String is the fields on the path, and the reason.
func (f fault) String() string { return strictyaml.PathText(f.path, "") + f.reason }

// faults are the mistakes of a rule; nil if it has none.
type faults []fault

func faultf(format string, args ...any) faults {
	return faults{{reason: fmt.Sprintf(format, args...)}}
}

// path are the steps to a fault.
type path = []any

// add adds a fault at the path.
func (f *faults) add(at path, format string, args ...any) {
	*f = append(*f, fault{at, fmt.Sprintf(format, args...)})
}

// in puts steps before the paths.
func (f faults) in(steps ...any) faults {
	for i := range f {
		f[i].path = slices.Concat(steps, f[i].path)
	}
	return f
}

// join leaves out all faults with the same path but the first.
func join(all ...faults) (joined faults) {
	for _, f := range slices.Concat(all...) {
		same := func(other fault) bool { return slices.Equal(f.path, other.path) }
		if len(joined) < strictyaml.MaxMistakes && !slices.ContainsFunc(joined, same) {
			joined = append(joined, f)
		}
	}
	return joined
}
