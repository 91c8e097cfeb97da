package rules

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/window"
)

var second = window.Shape{Length: time.Second, Buckets: 1}

// family is a way in which rules come to be many: the names and patterns of what the rule at n
// matches.
type family struct {
	name  string
	pairs func(n int) []string
}

var families = []family{
	{"a value each", func(n int) []string { return []string{"api", fmt.Sprint("call-", n)} }},
	{"a common value and one each", func(n int) []string {
		return []string{"domain", "edge", "api", fmt.Sprint("call-", n)}
	}},
	{"a prefix each", func(n int) []string {
		return []string{"domain", "edge", "path", fmt.Sprintf("/v%d/*", n)}
	}},
	{"a pair each, of few values", func(n int) []string {
		return []string{"tenant", fmt.Sprint(n % 100), "api", fmt.Sprint(n / 100)}
	}},
	{"an attribute each", func(n int) []string { return []string{fmt.Sprint("a", n), "*"} }},
}

func (f family) rule(n int) Rule { return matching(fmt.Sprint("r", n), f.pairs(n)...) }

// attrs are those of a request that the rule at n applies to.
func (f family) attrs(n int) identity.Attributes {
	pairs := f.pairs(n)
	for i := range pairs {
		pairs[i] = strings.Replace(pairs[i], "*", "x", 1)
	}
	return request(pairs...)
}

// matching is a rule for requests by names and patterns of attributes.
func matching(name string, pairs ...string) Rule {
	r := Rule{Name: name, Key: []string{"user"}, Limit: 1, Window: second}
	for i := 0; i < len(pairs); i += 2 {
		c := Condition{Name: pairs[i]}
		c.Op, c.Value = parsePattern(pairs[i+1])
		r.Match = append(r.Match, c)
	}
	return r
}

// request has a few attributes beside those that are asked for.
func request(pairs ...string) identity.Attributes {
	return append(attrs("user", "kristie", "ip", "203.0.113.9", "method", "GET"), attrs(pairs...)...)
}

func manyRules(tb testing.TB, n int, of family) *Set {
	list := []Rule{matching("all"), matching("post", "method", "POST")}
	for i := range n - len(list) {
		list = append(list, of.rule(i))
	}
	return newSet(tb, list...)
}

func newSet(t tester, list ...Rule) *Set {
	t.Helper()
	set, err := NewSet(list...)
	must(t, err)
	return set
}

// thousands is how many rules there are where there are many.
func thousands() int {
	if testing.Short() {
		return 1000
	}
	return 10_000
}

// How many rules are looked at does not grow with how many there are, and nothing is allocated.
func TestFindLooksAtFewRules(t *testing.T) {
	for _, family := range families {
		few, many := manyRules(t, 10, family), manyRules(t, thousands(), family)
		most := 0
		for n := range 8 {
			most = max(most, lookedAt(few, family.attrs(n)))
		}
		for n := range thousands() - 2 {
			attrs := family.attrs(n)
			if looked := lookedAt(many, attrs); looked > max(most, fewest) {
				t.Fatalf("%s: of many rules %d are looked at, of 10 at most %d", family.name, looked, most)
			}
			if got, want := names(many.Find(nil, attrs)), fmt.Sprint("all r", n); got != want {
				t.Fatalf("%s: for %d found %s", family.name, n, got)
			}
		}
		for _, set := range []*Set{few, many} {
			attrs, found := family.attrs(3), make([]*Rule, 0, 8)
			if allocs := testing.AllocsPerRun(100, func() { set.Find(found, attrs) }); allocs != 0 {
				t.Errorf("%s, %d rules: %v allocations", family.name, len(set.Rules()), allocs)
			}
		}
	}
}

func names(list []*Rule) string {
	var all []string
	for _, r := range list {
		all = append(all, r.Name)
	}
	return strings.Join(all, " ")
}

func lookedAt(s *Set, attrs identity.Attributes) int {
	find := search{attrs: attrs}
	find.through(s.index)
	find.withoutReplaced(find.found)
	return find.looked
}

// Nor does it with how many rules one of them replaces: what is for nobody but the own network,
// say, may replace all others.
func TestOneRuleReplacesThousands(t *testing.T) {
	of := func(n int) *Set {
		internal := Rule{Name: "internal", Match: []Condition{{Name: "network", Value: "own"}}, Unlimited: true}
		list := []Rule{internal}
		for i := range n {
			list = append(list, families[0].rule(i))
			list[0].Replaces = append(list[0].Replaces, fmt.Sprint("r", n-1-i))
		}
		return newSet(t, list...)
	}
	few, many := of(10), of(thousands())
	for n := range thousands() {
		attrs := append(families[0].attrs(n), identity.Attribute{Name: "network", Value: "own"})
		if found := names(many.Find(nil, attrs)); found != "internal" {
			t.Fatalf("for %d found %s", n, found)
		}
		if most, looked := lookedAt(few, append(families[0].attrs(n%10), attrs[4])), lookedAt(many, attrs); looked > most {
			t.Fatalf("for %d: %d are looked at, of 10 rules %d", n, looked, most)
		}
	}
}

// The index finds what looking at every rule would, in the order of the set.
func TestFindIsLookingAtEveryRule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(rapid.Custom(randomMatch), 1, 40).Draw(t, "matches")
		var rules []Rule
		for i, match := range list {
			r := Rule{Name: fmt.Sprint("r", i), Match: match, Limit: 1, Window: second}
			r.Exact = rapid.IntRange(0, 3).Draw(t, "exact") == 0
			for range rapid.SampledFrom([]int{0, 0, 1, 8}).Draw(t, "exclude") {
				r.Exclude = append(r.Exclude, randomMatch(t)...)
			}
			if i > 0 && rapid.IntRange(0, 3).Draw(t, "replaces") == 0 {
				r.Replaces = []string{fmt.Sprint("r", rapid.IntRange(0, i-1).Draw(t, "which"))}
				r.Shadow = rapid.IntRange(0, 3).Draw(t, "shadow") == 0
			}
			rules = append(rules, r)
		}
		set := newSet(t, rules...)
		attrs := rapid.SliceOfN(rapid.Custom(randomAttribute), 0, 6).Draw(t, "attrs")
		var want []*Rule
		for i, r := range rules { // not of a set, so without an index
			replaced := slices.ContainsFunc(rules, func(other Rule) bool {
				return other.Matches(attrs) && (!other.Shadow || r.Shadow) && slices.Contains(other.Replaces, r.Name)
			})
			own := set.Rules()[i]
			if own.Matches(attrs) != r.Matches(attrs) {
				t.Fatalf("%s of the set matches: %t", r.Name, own.Matches(attrs))
			}
			if r.Matches(attrs) && !replaced {
				want = append(want, own)
			}
		}
		before := &Rule{}
		found := set.Find([]*Rule{before}, attrs)
		if found[0] != before {
			t.Fatal("what was in dst is gone")
		}
		if got := found[1:]; !slices.Equal(got, want) {
			t.Fatalf("found %s, want %s", names(got), names(want))
		}
	})
}

// randomMatch has names and values that meet often, and prefixes within prefixes.
func randomMatch(t *rapid.T) []Condition {
	var match []Condition
	for _, name := range []string{"a", "b", "ip"} {
		switch op := rapid.SampledFrom([]string{"", "", "=", "*", "^", "**"}).Draw(t, name); op {
		case "=":
			match = append(match, Condition{Name: name, Value: randomValue(t, name, 0)})
		case "*":
			match = append(match, Condition{Name: name, Op: Present})
		case "^":
			match = append(match, Condition{Name: name, Op: Prefix, Value: randomValue(t, name, 1)})
		case "**":
			match = append(match, Condition{Name: name, Op: Glob, Value: randomValue(t, name, 0) + "*" + randomValue(t, name, 1)})
		}
	}
	return match
}

func randomAttribute(t *rapid.T) identity.Attribute {
	name := rapid.SampledFrom([]string{"a", "b", "ip", "d"}).Draw(t, "name")
	return identity.Attribute{Name: name, Value: randomValue(t, name, 0)}
}

// randomValue is, of an address, several ways to write one, which keys have as the same, and
// beginnings of these.
func randomValue(t *rapid.T, name string, shortest int) string {
	if name != "ip" {
		return randomText(t, shortest)
	}
	text := rapid.SampledFrom([]string{"192.0.2.1", "192.0.2.1:80", "::ffff:192.0.2.1", "[::ffff:192.0.2.1]:80", "2001:db8:1:2::/64",
		"2001:db8:1:2::1", "2001:db8:1:2::2", "[2001:db8:1:2::1]:80", "2001:db8:1:3::1"}).Draw(t, "address")
	if rapid.Bool().Draw(t, "whole") {
		return text
	}
	return text[:rapid.IntRange(shortest, len(text)).Draw(t, "length")]
}

func randomText(t *rapid.T, shortest int) string {
	return rapid.StringOfN(rapid.RuneFrom([]rune("xy")), shortest, 5, -1).Draw(t, "text")
}

// The same for overrides, of which the first counts.
func TestOverrideIsTheFirstOne(t *testing.T) {
	now := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	rapid.Check(t, func(t *rapid.T) {
		r := Rule{Name: "r", Limit: 10, Window: second}
		for _, match := range rapid.SliceOfN(rapid.Custom(randomMatch), 0, 30).Draw(t, "matches") {
			if len(match) == 0 {
				continue
			}
			o := Override{Match: match, Limit: 1}
			if days := rapid.IntRange(-2, 2).Draw(t, "until"); days != 0 {
				o.Until = now.AddDate(0, 0, days)
			}
			same := func(other Override) bool { return other.text() == o.text() && other.Until.IsZero() }
			if !slices.ContainsFunc(r.Overrides, same) {
				r.Overrides = append(r.Overrides, o)
			}
		}
		set := newSet(t, r)
		attrs := rapid.SliceOfN(rapid.Custom(randomAttribute), 0, 6).Draw(t, "attrs")
		want := slices.IndexFunc(r.Overrides, func(o Override) bool {
			return match(o.Match, attrs) && (o.Until.IsZero() || o.Until.After(now))
		})
		if got := set.Rules()[0].Override(attrs, now); got != want {
			t.Fatalf("got %d, want %d", got, want)
		}
		if got := r.Override(attrs, now); got != want {
			t.Fatalf("not of a set: got %d, want %d", got, want)
		}
	})
}

// However an address is written, rules and overrides are for the caller that keys say it is: with
// few of them and with many.
func TestAddressesAreCallersToRulesToo(t *testing.T) {
	for _, others := range []int{0, 100} {
		list := []Rule{matching("bob", "ip", "203.0.113.7"), matching("office", "ip", "2001:db8:1:2::/64"),
			matching("net", "ip", "203.0.*")}
		for i := range others {
			list = append(list, matching(fmt.Sprint("r", i), "ip", fmt.Sprint("10.0.0.", i)))
		}
		callers := matching("callers")
		for _, r := range list {
			callers.Overrides = append(callers.Overrides, Override{Match: r.Match, Action: Blocked})
		}
		set := newSet(t, append(list, callers)...)
		for value, want := range map[string]string{
			"203.0.113.7": "bob net", "203.0.113.7:4711": "bob net", "::ffff:203.0.113.7": "bob net", "[::ffff:203.0.113.7]:4711": "bob net",
			"203.0.113.8": "net", "::ffff:cb00:7108": "net", "2001:db8:1:2::/64": "office", "2001:db8:1:2::5": "office",
			"[2001:db8:1:2:ffff::]:4711": "office", "2001:db8:1:3::5": "", "": "", "unknown": "", "203.0.113.7:http": "net", "203.0.": "net",
		} {
			attrs, found := request("ip", value)[3:], make([]*Rule, 0, 8)
			all := set.Find(found, attrs)
			last := len(all) - 1
			if got := names(all[:last]); got != want {
				t.Errorf("%q among %d: got %q, want %q", value, others, got, want)
			}
			if blocked := all[last].Override(attrs, time.Now()) >= 0; blocked != (want != "") {
				t.Errorf("%q among %d: blocked %v", value, others, blocked)
			}
			if n := testing.AllocsPerRun(100, func() { set.Find(found, attrs) }); n != 0 && want != "" && value != "203.0.113.7:http" {
				t.Errorf("%q among %d: %v allocations", value, others, n)
			}
		}
	}
}

func BenchmarkFind(b *testing.B) {
	for _, family := range families {
		for _, n := range []int{10, 100, 10_000} {
			b.Run(fmt.Sprintf("%s/rules=%d", strings.ReplaceAll(family.name, " ", "-"), n), func(b *testing.B) {
				set, found := manyRules(b, n, family), make([]*Rule, 0, 8)
				// As many requests whatever the rules, and for rules far apart, so that memory is
				// as far for all.
				requests := make([]identity.Attributes, 1000)
				for i := range requests {
					requests[i] = family.attrs(i * (n - 2) / len(requests))
				}
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					set.Find(found, requests[i%len(requests)])
				}
			})
		}
	}
}

// With rules on many attributes the request's are looked up, of which the first of a name counts,
// and finds once.
func TestFindTakesTheFirstOfTwo(t *testing.T) {
	set := manyRules(t, 100, families[4])
	for _, tt := range []struct{ first, second, want string }{{"a7", "a7", "r7"}, {"a7", "a8", "r7 r8"}} {
		request := attrs("user", "x", tt.first, "1", tt.second, "2", tt.first, "3")
		if got := names(set.Find(nil, request)[1:]); got != tt.want {
			t.Errorf("%s and %s: got %q", tt.first, tt.second, got)
		}
	}
	set = manyRules(t, 100, family{"few attributes", func(n int) []string {
		return []string{fmt.Sprint("a", n%20), fmt.Sprint(n)}
	}})
	if found := set.Find(nil, attrs("a5", "5", "a5", "25")); len(found) != 2 || found[1].Name != "r5" {
		t.Errorf("found %d", len(found))
	}
}

// A host is found however it is written, in the request and in the rule: by conditions, overrides
// and lists.
func TestHostsInAnyForm(t *testing.T) {
	text := "rules:\n"
	for i, host := range []string{"A.Example:80", "b.example.", "c.example", "d.example", "e.example", "Api.*"} { // enough for an index
		text += fmt.Sprintf("- {name: rule%d, match: {'header:host': '%s'}, key: [], limit: 1/day, ", i, host) +
			fmt.Sprintf("overrides: [{match: {'header:HOST': '%s'}, limit: 2/day}], allow: {'header:Host': ['%s']}}\n", host, host)
	}
	set := parse(t, text)
	for host, want := range map[string]string{
		"a.EXAMPLE": "rule0", "a.example.:443": "rule0", "B.example": "rule1", "API.x:1": "rule5", "apis.example": "", "a.example.com": "",
	} {
		attrs := attrs("header:host", host, "header:Host", host, "header:HOST", host)
		got := ""
		for _, r := range set.Find(nil, attrs) {
			got += r.Name
			if allowed, _ := r.Listed(attrs); r.Override(attrs, time.Time{}) != 0 || allowed != (want != "rule5") { // lists have no stars
				t.Errorf("%s: override %d, allowed %v", host, r.Override(attrs, time.Time{}), allowed)
			}
		}
		if got != want {
			t.Errorf("%s: %q, want %q", host, got, want)
		}
	}
	set = parse(t, one("exclude: {'header:host': [A.Example:80]}"))
	if got := names(set.Find(nil, attrs("header:host", "a.EXAMPLE"))); got != "" {
		t.Errorf("excluded: %q", got)
	}
}

// Prefixes are found the same way by their lengths and by their order, and these are the longest.
func TestLongestPrefix(t *testing.T) {
	text := rapid.StringOfN(rapid.RuneFrom([]rune("ab")), 1, 12, -1)
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.SliceOfNDistinct(text, rapid.SampledFrom([]int{1, 30}).Draw(t, "least"), 40, rapid.ID).Draw(t, "prefixes")
		var p prefixes
		for _, one := range texts {
			p.add(one, nil)
		}
		p.nest()
		value := text.Draw(t, "value")
		var want []string
		for _, one := range texts {
			if strings.HasPrefix(value, one) {
				want = append(want, one)
			}
		}
		slices.SortFunc(want, func(a, b string) int { return len(b) - len(a) })
		if p.longest(value) != p.search(value) {
			t.Fatalf("by length %d, by order %d", p.longest(value), p.search(value))
		}
		var got []string
		for at := p.longest(value); at >= 0; at = p.list[at].in {
			got = append(got, p.list[at].text)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("got %q, want %q", got, want)
		}
	})
}
