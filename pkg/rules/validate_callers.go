package rules

import (
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/offpath-io/offpath/pkg/rules/internal/strictyaml"
	"github.com/offpath-io/offpath/pkg/window"
)

func (r *Rule) validateOverrides() (all faults) {
	seen := make(map[string]int, len(r.Overrides))
	for i := range r.Overrides {
		o := &r.Overrides[i]
		if wrong := o.validate(r); wrong != nil {
			all = append(all, wrong.in("overrides", i)...)
			continue
		}
		text := o.text()
		if before, ok := seen[text]; ok {
			all.add(path{"overrides", i}, "entry %d: never has an effect: entry %d has the same "+
				"match, "+
				"and comes first", i+1, before+1)
		}
		if o.Until.IsZero() {
			seen[text] = i
		}
	}
	return all
}

func (o *Override) validate(r *Rule) faults {
	if len(o.Match) == 0 {
		return faultf("is missing or empty: want the attributes that say whom the override is for").
			in("match")
	}
	wrong := join(validateMatch(o.Match).in("match"), checkWord(o.Action).in("limit"))
	if wrong != nil {
		return wrong
	}
	switch {
	case o.Until.Year() < 1 || o.Until.Year() > 9999:
		return faultf("%v: want a year up to 9999", o.Until).in("until")
	case o.Action != Limited && (o.Limit != 0 || o.Factor != 0):
		return faultf("%v callers have no limit of their own", o.Action).in("limit")
	case o.Action == Limited && o.Limit == 0 && o.Factor == 0:
		return faultf("is missing: the override changes nothing").in("limit")
	case o.Limit != 0 && o.Factor != 0:
		return faultf("want a limit or a factor, not both").in("limit")
	case o.Limit == 0 && o.Window != (window.Shape{}):
		return faultf("there is no limit that this window is for").in("buckets")
	case o.Limit == 0 && o.Burst != 0:
		return faultf("there is no limit that this burst is for: a factor multiplies the rule's").
			in("burst")
	case o.Factor != 0:
		return validateFactor(o.Factor)
	case o.Limit != 0:
		return o.validateLimit(r)
	}
	return nil
}

const minFactor, maxFactor = 0.001, 1e6

func validateFactor(factor float64) faults {
	if !(factor >= minFactor && factor <= maxFactor) {
		return faultf("%gx: want 0.001x to 1000000x", factor).in("limit")
	}
	return nil
}

func (o *Override) validateLimit(r *Rule) faults {
	if o.Limit < 1 || o.Limit > window.MaxCount {
		return faultf("%d: want 1 to %d hits", o.Limit, window.MaxCount).in("limit")
	}
	switch {
	case !r.hasBurst() && o.Burst != 0:
		return faultf("%v has none: want token_bucket or leaky_bucket", r.Algorithm).in("burst")
	case r.hasBurst() && (o.Burst < 1 || o.Burst > window.MaxCount):
		return faultf("%d: want 1 to %d", o.Burst, window.MaxCount).in("burst")
	case o.Window == (window.Shape{}):
		return nil
	case o.Window.Fixed != r.Window.Fixed || o.Window.Kind != r.Window.Kind:
		return faultf("want the rule's algorithm, %v", r.Algorithm).in("limit")
	case o.Window.Buckets != 1 && r.Algorithm == FixedWindow:
		return faultf("%d buckets: %v is not cut into buckets", o.Window.Buckets, r.Algorithm).
			in("buckets")
	}
	return validateWindow(o.Window)
}

func validateLists(lists []List) (all faults) {
	seen := make(map[string]bool, len(lists))
	for _, list := range lists {
		why := checkName(list.Attribute)
		switch {
		case why != "":
		case seen[list.Attribute]:
			why = "occurs twice"
		case len(list.Values) == 0 && len(list.Prefixes) == 0:
			why = "nobody is on the list"
		}
		if why != "" {
			all.add(path{strictyaml.Key(list.Attribute)}, "attribute %.40q: %s", list.Attribute,
				why)
			continue
		}
		seen[list.Attribute] = true
		all = append(all, list.validate().in(list.Attribute)...)
	}
	return all
}

// validate looks at what is on the list.
func (l *List) validate() (all faults) {
	for i, value := range l.Values {
		entry := Condition{Name: l.Attribute, Value: value}
		why := entry.wrongFold()
		if !utf8.ValidString(value) {
			why = "is not UTF-8"
		} else if why == "" {
			_, _, why = readPrefix(l.Attribute, value)
		}
		if why != "" {
			all.add(path{i}, "%.60q: %s", value, why)
		}
	}
	for _, prefix := range l.Prefixes {
		if why := wrongPrefix(prefix); why != "" {
			all.add(nil, "%v: %s", prefix, why)
		}
	}
	return all
}

func (r *Rule) validateCost() faults {
	if r.Cost == "" {
		return nil
	}
	if why := checkName(r.Cost); why != "" {
		return faultf("attribute %.40q: %s", r.Cost, why)
	}
	return nil
}

func (r *Rule) validatePriority() faults {
	p := &r.Priority
	switch {
	case p.By == "" && p.Shares == nil:
		return nil
	case p.By == "":
		return faultf("is missing or empty: want the attribute that says which class").
			in("priority", "by")
	case checkName(p.By) != "":
		return faultf("attribute %.40q: %s", p.By, checkName(p.By)).in("priority", "by")
	case len(p.Shares) > maxAttributes:
		return faultf("has %d classes: want at most %d", len(p.Shares), maxAttributes).
			in("priority", "shares")
	}
	var all faults
	for _, class := range slices.Sorted(maps.Keys(p.Shares)) {
		if why := r.wrongShare(class, p.Shares[class]); why != "" {
			all.add(path{class}, "%s", why)
		}
	}
	if _, ok := p.Shares[DefaultClass]; !ok {
		all.add(nil, "want one of %q, for all other classes", DefaultClass)
	}
	return all.in("priority", "shares")
}

func (r *Rule) wrongShare(class string, share float64) string {
	switch {
	case !utf8.ValidString(class):
		return "is not UTF-8"
	case !(share > 0 && share <= 1):
		return percent(share).String() + ": want more than 0%, at most 100%"
	case share*float64(r.Capacity()) < 1:
		return fmt.Sprintf("%s of %d leaves less than one hit", percent(share), r.Capacity())
	}
	return ""
}
