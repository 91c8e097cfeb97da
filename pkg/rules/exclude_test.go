package rules

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A rule applies to no request that has what it excludes, however many that are, in whatever order,
// and as it is read back.
func TestExclude(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var list, again []Rule
		for i := range rapid.IntRange(1, 6).Draw(t, "rules") {
			r := Rule{Name: fmt.Sprint("r", i), Limit: 1, Window: second}
			for range rapid.IntRange(0, 8).Draw(t, "exclude") {
				r.Exclude = append(r.Exclude, randomMatch(t)...)
			}
			list = append(list, r)
			r.Exclude = append(slices.Clone(r.Exclude), r.Exclude...)
			slices.Reverse(r.Exclude)
			again = append(again, r)
		}
		set := newSet(t, list...)
		text, err := newSet(t, again...).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		read, err := Parse(text)
		if err != nil || len(Diff(set, read)) > 0 {
			t.Fatalf("%v, %v in\n%s", err, Diff(set, read), text)
		}
		attrs := rapid.SliceOfN(rapid.Custom(randomAttribute), 0, 4).Draw(t, "attrs")
		want := ""
		for _, r := range list {
			excluded := false
			for _, c := range r.Exclude {
				excluded = excluded || c.Matches(attrs)
				if !slices.Contains(set.Attributes(), c.Name) {
					t.Fatalf("%s is not asked for", c.Name)
				}
			}
			if !excluded {
				want += " " + r.Name
			}
			if own, _ := set.Lookup(r.Name); own.Matches(attrs) == excluded || r.Matches(attrs) == excluded {
				t.Fatalf("%s matches: %t, %t", r.Name, own.Matches(attrs), r.Matches(attrs))
			}
		}
		if got := names(set.Find(nil, attrs)); got != strings.TrimSpace(want) {
			t.Fatalf("found %q, want %q", got, want)
		}
	})
}
