package envoyrules

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/offpath-io/offpath/pkg/rules"
)

// choose walks the descriptors as envoyproxy/ratelimit documents: entry by entry, at each level the
// same value, or else the first pattern that fits, or else the key alone; a limit counts only where
// the entries end.
func choose(list []*descriptor, entries []string) *descriptor {
	key, value := entries[0], entries[1]
	var best *descriptor
	for _, fits := range []func(d *descriptor) bool{
		func(d *descriptor) bool { return d.Value != "" && d.Value == value },
		func(d *descriptor) bool {
			expression := strings.ReplaceAll(regexp.QuoteMeta(d.Value), `\*`, "(?s:.*)")
			return strings.Contains(d.Value, "*") && regexp.MustCompile("^"+expression+"$").MatchString(value)
		},
		func(d *descriptor) bool { return d.Value == "" },
	} {
		for _, d := range list {
			if best == nil && d.Key == key && fits(d) {
				best = d
			}
		}
	}
	switch {
	case best == nil:
		return nil
	case len(entries) > 2:
		return choose(best.Descriptors, entries[2:])
	}
	return best
}

func randomDescriptors(t *rapid.T, depth int) []*descriptor {
	var list []*descriptor
	seen := map[string]bool{}
	for range rapid.IntRange(0, 6).Draw(t, "descriptors") {
		d := &descriptor{
			Key:   rapid.SampledFrom([]string{"a", "b", "domain"}).Draw(t, "key"),
			Value: rapid.SampledFrom([]string{"", "", "x", "xy", "xyz", "y", "*", "x*", "xy*", "*y", "x*z", "*y*", `x\*`}).Draw(t, "value"),
		}
		if seen[d.Key+" "+d.Value] {
			continue
		}
		seen[d.Key+" "+d.Value] = true
		if rapid.Bool().Draw(t, "limited") {
			requests := count(rapid.Int64Range(0, 9).Draw(t, "requests"))
			d.RateLimit = &limit{RequestsPerUnit: &requests, Unit: unit(units["second"]),
				Unlimited: rapid.IntRange(0, 4).Draw(t, "unlimited") == 0}
			d.RateLimit.Name = rapid.SampledFrom([]string{"", "n", "m"}).Draw(t, "name")
			if d.RateLimit.Name == "m" && rapid.Bool().Draw(t, "replaces") {
				d.RateLimit.Replaces = []limits{{"n"}}
			}
		}
		d.ShareThreshold = strings.Contains(d.Value, "*") && rapid.Bool().Draw(t, "share")
		if depth > 1 && rapid.Bool().Draw(t, "nested") {
			d.Descriptors = randomDescriptors(t, depth-1)
		}
		list = append(list, d)
	}
	return list
}

// The rules limit what the descriptors limit, and by as much; and nothing else.
func TestRulesAreTheDescriptors(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		descriptors := randomDescriptors(t, 3)
		b := &build{}
		if !b.domain("d", []*document{{root: file{Descriptors: descriptors}}}) {
			t.Fatal("refused")
		}
		set, err := rules.NewSet(b.list...)
		if err != nil {
			t.Fatal(err)
		}
		for _, entries := range everyRequest() {
			want := ""
			if d := choose(descriptors, entries); d != nil && d.RateLimit != nil && !d.RateLimit.Unlimited {
				want = fmt.Sprint(*d.RateLimit.RequestsPerUnit, " per 1s")
				if *d.RateLimit.RequestsPerUnit == 0 {
					want = "blocked"
				}
			}
			got := verdict(set, request("d", entries...))
			if got != want && (want == "" || !strings.HasPrefix(got, want+" by") || strings.Contains(got, ", ")) {
				t.Fatalf("%q: got %q, want %q", entries, got, want)
			}
		}
	})
}

// everyRequest is each of one or two entries, in either order, and some of three.
func everyRequest() (list [][]string) {
	values := []string{"x", "xy", "xyz", "xz", "y", "z", "", `x\y`}
	for _, key := range []string{"a", "b", "domain"} {
		for _, value := range values {
			list = append(list, []string{key, value})
			for _, other := range []string{"a", "b", "domain"} {
				for _, second := range values {
					list = append(list, []string{key, value, other, second})
				}
			}
			if key == "a" {
				list = append(list, []string{"a", value, "b", "x", "a", "y"}, []string{"a", "xy", "a", value, "a", "x"},
					[]string{"b", value, "domain", "x", "a", value})
			}
		}
	}
	return list
}
