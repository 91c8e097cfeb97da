package envoyrules

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/offpath-io/offpath/pkg/rules"
)

// choose walks the descriptors as envoyproxy/ratelimit documents: entry by entry, at each level the same value, or else the
// first wildcard that fits, or else the key alone; a limit counts only where the entries end.
func choose(list []*descriptor, entries []string) *descriptor {
	key, value := entries[0], entries[1]
	var best *descriptor
	for _, fits := range []func(d *descriptor) bool{
		func(d *descriptor) bool { return d.Value != "" && d.Value == value },
		func(d *descriptor) bool {
			prefix, wildcard := strings.CutSuffix(d.Value, "*")
			return wildcard && strings.HasPrefix(value, prefix)
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

func randomDescriptors(t *rapid.T, keys []string) []*descriptor {
	var list []*descriptor
	seen := map[string]bool{}
	for range rapid.IntRange(0, 6).Draw(t, "descriptors") {
		d := &descriptor{
			Key:   rapid.SampledFrom(keys).Draw(t, "key"),
			Value: rapid.SampledFrom([]string{"", "", "x", "xy", "xyz", "y", "*", "x*", "xy*"}).Draw(t, "value"),
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
		d.ShareThreshold = strings.HasSuffix(d.Value, "*") && rapid.Bool().Draw(t, "share")
		if len(keys) > 1 && rapid.Bool().Draw(t, "nested") {
			var others []string
			for _, key := range keys {
				if key != d.Key {
					others = append(others, key)
				}
			}
			d.Descriptors = randomDescriptors(t, others)
		}
		list = append(list, d)
	}
	return list
}

// The rules limit what the descriptors limit, and by as much.
func TestRulesAreTheDescriptors(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := &file{Domain: "d", Descriptors: randomDescriptors(t, []string{"a", "b", "c"})}
		list, _, err := f.rules()
		if err != nil {
			t.Fatal(err)
		}
		if len(list) == 0 {
			return
		}
		set, err := rules.NewSet(list...)
		if err != nil {
			t.Fatal(err)
		}
		for _, entries := range everyRequest() {
			want := ""
			if d := choose(f.Descriptors, entries); d != nil && d.RateLimit != nil && !d.RateLimit.Unlimited {
				want = fmt.Sprint(*d.RateLimit.RequestsPerUnit, " per 1s")
				if *d.RateLimit.RequestsPerUnit == 0 {
					want = "blocked"
				}
			}
			// Rules know no order of entries, so those of descriptors in another order match too.
			got := verdict(set, request("d", entries...))
			if got != want && !strings.HasPrefix(got, want+" by") && !reordered(f.Descriptors, entries) {
				t.Fatalf("%q: got %q, want %q", entries, got, want)
			}
			if strings.Contains(got, ",") && !reordered(f.Descriptors, entries) {
				t.Fatalf("%q: %q", entries, got)
			}
		}
	})
}

// everyRequest is each of one or two entries, and some of three.
func everyRequest() (list [][]string) {
	values := []string{"x", "xy", "xyz", "xz", "y", "z"}
	for _, key := range []string{"a", "b", "c"} {
		for _, value := range values {
			list = append(list, []string{key, value})
			for _, other := range []string{"a", "b", "c"} {
				for _, second := range values {
					if other != key {
						list = append(list, []string{key, value, other, second})
					}
				}
			}
			if key == "a" {
				list = append(list, []string{"a", value, "b", "x", "c", "y"}, []string{"a", "xy", "c", value, "b", "x"})
			}
		}
	}
	return list
}

// reordered reports whether another order of the entries is on the way to a limit, too.
func reordered(list []*descriptor, entries []string) bool {
	found := 0
	var permute func(done, rest []string)
	permute = func(done, rest []string) {
		if len(rest) == 0 {
			if d := choose(list, done); d != nil && d.RateLimit != nil {
				found++
			}
			return
		}
		for i := 0; i < len(rest); i += 2 {
			var others []string
			others = append(append(others, rest[:i]...), rest[i+2:]...)
			permute(append(done[:len(done):len(done)], rest[i], rest[i+1]), others)
		}
	}
	permute(nil, entries)
	d := choose(list, entries)
	inOrder := 0
	if d != nil && d.RateLimit != nil {
		inOrder = 1
	}
	return found > inOrder
}
