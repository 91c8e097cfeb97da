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
				"match, and comes first: keep one of them", i+1, before+1)
		}
		if o.Until.IsZero() {
			seen[text] = i
		}
	}
	return all
}

func (o *Override) validate(r *Rule) faults {
	if len(o.Match) == 0 {
		return faultf("is missing or empty: want the attributes that say whom the override is for, such as " +
			"{tier: gold}").
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
		return faultf("is missing: the override changes nothing: write a limit such as 200/second, a factor " +
			"such as 10x, unlimited or blocked").in("limit")
	case o.Limit != 0 && o.Factor != 0:
		return faultf("want a limit or a factor, not both").in("limit")
	case o.Limit == 0 && o.Window != (window.Shape{}):
		return faultf("there is no limit that this window is for: leave it out, or write a limit such as " +
			"200/second").in("buckets")
	case o.Limit == 0 && o.Burst != 0:
		return faultf("there is no limit that this burst is for: leave it out, as a factor multiplies the " +
			"rule's, or write a limit such as 200/second").
			in("burst")
	case o.Limit != 0 && o.Window == window.Shape{}:
		return r.termsOf(o).validate(r)
	case o.Limit != 0:
		return join(r.termsOf(o).validate(r), validateWindow(o.Window))
	case o.Action == Limited && !(o.Factor >= 0.001 && o.Factor <= 1e6):
		return faultf("%gx: want 0.001x to 1000000x", o.Factor).in("limit")
	}
	return nil
}

func validateLists(lists []List) faults {
	list := make([]named, len(lists))
	var all faults
	for i, l := range lists {
		why := checkName(l.Attribute)
		if why == "" && len(l.Values) == 0 && len(l.Prefixes) == 0 {
			why = "nobody is on the list: write somebody, or leave it out"
		}
		list[i] = named{strictyaml.Key(l.Attribute), l.Attribute, why}
		all = append(all, l.validate().in(l.Attribute)...)
	}
	return append(refuseNames(list, len(list)), all...)
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
	if why := checkName(r.Cost); r.Cost != "" && why != "" {
		return faultf("attribute %.40q: %s", r.Cost, why).in("cost")
	}
	return nil
}

func (r *Rule) validatePriority() faults {
	p := &r.Priority
	switch {
	case p.By == "" && p.Shares == nil:
		return nil
	case p.By == "":
		return faultf("is missing or empty: want the attribute that says which class, such as by: class").
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
		all.add(nil, "want one of %q, for all other classes: write %[1]s: 90%%, for example", DefaultClass)
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
		return fmt.Sprintf("%s of %d leaves less than one hit: want a greater share", percent(share), r.Capacity())
	}
	return ""
}
