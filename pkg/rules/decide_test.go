package rules

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/window"
)

// the is the rule of a file of one.
func the(t *testing.T, fields ...string) *Rule {
	t.Helper()
	return parse(t, one(fields...)).Rules()[0]
}

type tester interface { // also rapid's
	Helper()
	Fatal(...any)
}

func must(t tester, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func parse(t testing.TB, text string) *Set {
	t.Helper()
	set, err := Parse([]byte(text))
	must(t, err)
	return set
}

func attrs(pairs ...string) identity.Attributes {
	var a identity.Attributes
	for i := 0; i < len(pairs); i += 2 {
		a = append(a, identity.Attribute{Name: pairs[i], Value: pairs[i+1]})
	}
	return a
}

func TestPatterns(t *testing.T) {
	for _, tt := range []struct {
		text string
		want Condition
	}{
		{"createURL", Condition{Op: Equal, Value: "createURL"}},
		{"", Condition{Op: Equal}},
		{"/v1/*", Condition{Op: Prefix, Value: "/v1/"}},
		{"*", Condition{Op: Present}},
		{`\*`, Condition{Op: Equal, Value: "*"}},
		{`a\*`, Condition{Op: Equal, Value: "a*"}},
		{`\\*`, Condition{Op: Prefix, Value: `\`}},
		{`a\\\*`, Condition{Op: Equal, Value: `a\*`}},
		{`\**`, Condition{Op: Prefix, Value: "*"}},
		{"**", Condition{Op: Glob, Value: "**"}},
		{"a*b", Condition{Op: Glob, Value: "a*b"}},
		{"*b", Condition{Op: Glob, Value: "*b"}},
		{`a\*b`, Condition{Op: Equal, Value: "a*b"}},
		{`a\\\*b\*c\`, Condition{Op: Equal, Value: `a\*b*c\`}},
		{`a\*b*c\\*`, Condition{Op: Glob, Value: `a\*b*c\\*`}},
		{`a\*b\\\*\\*`, Condition{Op: Prefix, Value: `a*b\*\`}},
		{`a\b`, Condition{Op: Equal, Value: `a\b`}},
		{`a\\`, Condition{Op: Equal, Value: `a\\`}},
	} {
		var got Condition
		got.Op, got.Value = parsePattern(tt.text)
		if got != tt.want || got.Pattern() != tt.text {
			t.Errorf("%s: got %v %q, written %s; want %v %q", tt.text, got.Op, got.Value, got.Pattern(), tt.want.Op, tt.want.Value)
		}
	}
}

// Any text stands for a wildcard, and the texts between wildcards stand in their order, apart.
func TestWildcards(t *testing.T) {
	for _, tt := range []struct {
		pattern    string
		fits, does []string // which do, and which do not
	}{
		{"/api/*/action", []string{"/api/7/action", "/api//action", "/api/a/b/action"}, []string{"/api/action", "/api/7/action/", "/api/7/other", ""}},
		{"/a/*/b/*/c", []string{"/a/1/b/2/c", "/a/b/b/b/c"}, []string{"/a/1/b/c", "/a/1/c"}},
		{"*.png", []string{".png", "a.png"}, []string{"png", "a.png?x"}},
		{"ab*ba", []string{"abba", "ab-ba"}, []string{"aba", "ab"}},
		{"a*b*", []string{"ab", "a1b2"}, []string{"a", "b"}},
		{"**", []string{"", "a"}, nil},
		{`a*\**b`, []string{"a*b", "a1*2b"}, []string{"ab", "a12b"}},
		{`a\\*b`, []string{`a\b`, `a\1b`}, []string{"ab", `a*b`}},
	} {
		set := newSet(t, matching("a", "path", tt.pattern))
		for i, value := range append(tt.fits, tt.does...) {
			if got := len(set.Find(nil, attrs("path", value))) == 1; got != (i < len(tt.fits)) {
				t.Errorf("%s matches %q: %t", tt.pattern, value, got)
			}
		}
		if set.Find(nil, nil) != nil {
			t.Errorf("%s matches what is not there", tt.pattern)
		}
	}
}

// An ordered rule is for requests with the attributes of its match, in their order.
func TestOrdered(t *testing.T) {
	r := matching("a", "domain", "d", "b", "*", "a", "x")
	r.Key, r.Exact, r.Ordered = []string{"b"}, true, true
	set := newSet(t, r)
	for _, tt := range []struct {
		why   string
		attrs identity.Attributes
		want  bool
	}{
		{"in order", attrs("domain", "d", "b", "1", "a", "x"), true},
		{"in another order", attrs("domain", "d", "a", "x", "b", "1"), false},
		{"domain last", attrs("b", "1", "a", "x", "domain", "d"), false},
		{"one more", attrs("domain", "d", "b", "1", "a", "x", "c", "1"), false},
		{"one of them twice", attrs("domain", "d", "b", "1", "a", "x", "a", "x"), false},
		{"one less", attrs("domain", "d", "b", "1"), false},
	} {
		if got := len(set.Find(nil, tt.attrs)) == 1; got != tt.want {
			t.Errorf("%s: %t", tt.why, got)
		}
	}
}

func TestMatches(t *testing.T) {
	for _, tt := range []struct {
		why, match string
		attrs      identity.Attributes
		want       bool
	}{
		{"equal", "match: {a: x}", attrs("a", "x"), true},
		{"not equal", "match: {a: x}", attrs("a", "xx"), false},
		{"a prefix", "match: {a: x*}", attrs("a", "xx"), true},
		{"just the prefix", "match: {a: x*}", attrs("a", "x"), true},
		{"no prefix", "match: {a: x*}", attrs("a", "ax"), false},
		{"a prefix of nothing", "match: {a: x*}", attrs("b", "x"), false},
		{"present", "match: {a: '*'}", attrs("a", "y"), true},
		{"present and empty", "match: {a: '*'}", attrs("a", ""), true},
		{"not present", "match: {a: '*'}", attrs("b", "y"), false},
		{"all of them", "match: {a: x, b: y*}", attrs("b", "yy", "a", "x"), true},
		{"the first of two counts", "match: {a: x}", attrs("a", "y", "a", "x"), false},
		{"one address of a group", "match: {ip: '2001:db8:1:2::5'}", attrs("ip", "2001:db8:1:2::5"), true},
		{"another one of it", "match: {ip: '2001:db8:1:2::5'}", attrs("ip", "2001:db8:1:2::6"), false},
		{"what is no address", "match: {ip: 'a:b'}", attrs("ip", "a:b"), true},
		{"an attribute of another name", "match: {address: 203.0.113.7}", attrs("address", "203.0.113.7:4711"), false},
		{"excluded", "exclude: {a: [y, x*]}", attrs("a", "xx"), false},
		{"not excluded", "exclude: {a: [y, x*]}", attrs("a", "yx", "b", "y"), true},
		{"exact, with its key", "{match: {a: x}, exact: true}", attrs("a", "x", "u", "me"), true},
		{"exact, without its key", "{match: {a: x}, exact: true}", attrs("a", "x"), true},
		{"exact, and something else", "{match: {a: x}, exact: true}", attrs("a", "x", "u", "me", "b", ""), false},
		{"exact, and nothing", "exact: true", nil, true},
	} {
		fields := strings.Split(strings.Trim(tt.match, "{"), ", exact")
		if len(fields) == 2 {
			fields[1] = "exact: true"
		}
		r := the(t, fields...)
		if got := r.Matches(tt.attrs); got != tt.want {
			t.Errorf("%s: %v", tt.why, got)
		}
	}
}

func TestDenyWinsOverAllow(t *testing.T) {
	r := the(t, `allow: {ip: [10.0.0.0/8, 10.1.0.0/16, 203.0.113.9, "2001:db8::/32", 0.0.0.0/32], user: [admin, root], net: [192.168.0.0/16]}`,
		`deny: {user: [mallory, root], ip: [10.9.0.0/16, "2001:db8:bad::/48"]}`)
	for _, tt := range []struct {
		why             string
		attrs           identity.Attributes
		allowed, denied bool
	}{
		{"nothing", nil, false, false},
		{"a value", attrs("user", "admin"), true, false},
		{"denied", attrs("user", "mallory"), false, true},
		{"on both", attrs("user", "root"), false, true},
		{"allowed by one, denied by another", attrs("user", "admin", "ip", "10.9.1.1"), false, true},
		{"in a prefix", attrs("ip", "10.255.255.255"), true, false},
		{"behind it", attrs("ip", "11.0.0.0"), false, false},
		{"before all", attrs("ip", "0.0.0.0"), true, false},
		{"IPv4 within IPv6", attrs("ip", "::ffff:203.0.113.9"), true, false},
		{"a prefix of IPv4 within IPv6", attrs("ip", "::ffff:10.1.0.0/112"), true, false},
		{"IPv6", attrs("ip", "2001:db8:1::1"), true, false},
		{"IPv6, denied", attrs("ip", "2001:DB8:BAD:1::1"), false, true},
		{"a whole prefix", attrs("ip", "2001:db8:1:2::/64"), true, false},
		{"a prefix that begins within, and is too wide", attrs("ip", "2001:db8::/31"), false, false},
		{"a zone is no matter", attrs("ip", "2001:db8::1%eth0"), true, false},
		{"with its port, as servers tell who is at the other end", attrs("ip", "10.9.1.1:4711"), false, true},
		{"IPv6 with its port", attrs("ip", "[2001:db8:bad::1]:4711"), false, true},
		{"IPv4 within IPv6, with its port", attrs("ip", "[::ffff:10.9.1.1]:80"), false, true},
		{"no port", attrs("ip", "10.9.1.1:http"), false, false},
		{"no address", attrs("ip", "unknown"), false, false},
		{"empty", attrs("ip", "", "user", ""), false, false},
		{"a prefix under another name", attrs("net", "192.168.7.7"), true, false},
	} {
		if allowed, denied := r.Listed(tt.attrs); allowed != tt.allowed || denied != tt.denied {
			t.Errorf("%s: allowed %v, denied %v", tt.why, allowed, denied)
		}
	}
}

// A list of prefixes holds an address if one of them does.
func TestListsOfPrefixes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		prefixes := rapid.SliceOfN(anyPrefix, 1, 8).Draw(t, "prefixes")
		addr := rapid.Custom(func(t *rapid.T) netip.Addr {
			if rapid.Bool().Draw(t, "near") {
				return rapid.SampledFrom(prefixes).Draw(t, "of").Addr()
			}
			return netip.AddrFrom4([4]byte{rapid.SampledFrom([]byte{0, 10, 203}).Draw(t, "a"), rapid.Byte().Draw(t, "b"), 0, 1})
		}).Draw(t, "address")
		l := List{Attribute: "ip", Prefixes: slices.Clone(prefixes)}
		l.sort()
		want := slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
		if l.has(addr.String()) != want {
			t.Fatalf("%v in %v, as %v: want %v", addr, prefixes, l.Prefixes, want)
		}
	})
}

func TestOverridesAndTerms(t *testing.T) {
	r := the(t, "algorithm: token_bucket", "burst: 7", `overrides:
    - {match: {user: bob}, limit: blocked, until: 2026-12-01T01:00:00+01:00}
    - {match: {user: kristie}, limit: unlimited}
    - {match: {tier: gold}, limit: 10x}
    - {match: {tier: "s*", user: "*"}, limit: 200/minute}
    - {match: {tier: bronze}, limit: 3/second, burst: 9}
    - {match: {tier: half}, limit: 1.5x, until: 2020-01-01T00:00:00Z}`)
	second := window.Shape{Length: time.Second, Buckets: 50, Kind: window.Token}
	minute := window.Shape{Length: time.Minute, Buckets: 60, Kind: window.Token}
	now := time.Date(2026, 11, 30, 23, 59, 59, 0, time.UTC)
	for _, tt := range []struct {
		why   string
		attrs identity.Attributes
		now   time.Time
		place int
		terms Terms
		wire  string
	}{
		{"nobody's", attrs("user", "x"), now, -1, Terms{1, second, 7}, "a"},
		{"blocked", attrs("user", "bob"), now, 0, Terms{1, second, 7}, "a"},
		{"until it is over", attrs("user", "bob"), now.Add(time.Second), -1, Terms{1, second, 7}, "a"},
		{"the first one counts", attrs("tier", "gold", "user", "kristie"), now, 1, Terms{1, second, 7}, "a"},
		{"then the next one", attrs("tier", "gold", "user", "bob"), now.Add(time.Hour), 2, Terms{10, second, 70}, "a/tier=gold"},
		{"times", attrs("tier", "gold"), now, 2, Terms{10, second, 70}, "a/tier=gold"},
		{"its own", attrs("tier", "silver", "user", "x"), now, 3, Terms{200, minute, 200}, "a/sha256:"},
		{"only a part", attrs("tier", "silver"), now, -1, Terms{1, second, 7}, "a"},
		{"its own burst", attrs("tier", "bronze"), now, 4, Terms{3, second, 9}, "a/tier=bronze"},
		{"one of the past", attrs("tier", "half"), now, -1, Terms{1, second, 7}, "a"},
	} {
		place := r.Override(tt.attrs, tt.now)
		if place != tt.place || r.Terms(place) != tt.terms || !strings.HasPrefix(r.WireName(place), tt.wire) {
			t.Errorf("%s: override %d, %+v, %s", tt.why, place, r.Terms(place), r.WireName(place))
		}
	}
	if got := r.Terms(5); got != (Terms{2, second, 11}) { // 1.5 and 10.5, rounded
		t.Errorf("1.5x: %+v", got)
	}
}

// The name of an override's counter depends on whom it is for, and on nothing else.
func TestWireNames(t *testing.T) {
	r := Rule{Name: "a", Overrides: []Override{
		{Match: []Condition{{Name: "x", Value: "1"}, {Name: "y", Value: "2"}}, Limit: 1},
		{Match: []Condition{{Name: "y", Value: "2"}, {Name: "x", Value: "1"}}, Factor: 2},
		{Match: []Condition{{Name: "x", Value: "1,y=2"}}, Limit: 1},
		{Match: []Condition{{Name: "x=1", Value: "2"}}, Limit: 1},
		{Match: []Condition{{Name: "x", Value: "1=2"}}, Limit: 1},
		{Match: []Condition{{Name: "x", Value: "a b"}}, Limit: 1},
		{Match: []Condition{{Name: "x", Value: strings.Repeat("v", 1000)}}, Limit: 1},
		{Match: []Condition{{Name: "x", Op: Prefix, Value: "v"}}, Limit: 1},
		{Match: []Condition{{Name: "x", Value: "v*"}}, Limit: 1},
		{Match: []Condition{{Name: "x", Op: Present}}, Limit: 1},
		{Match: []Condition{{Name: "x", Value: ""}}, Limit: 1},
	}}
	if r.WireName(0) != r.WireName(1) {
		t.Errorf("another order: %s and %s", r.WireName(0), r.WireName(1))
	}
	seen := map[string]int{}
	for i := range r.Overrides[1:] {
		name := r.WireName(i + 1)
		if before, ok := seen[name]; ok || len(name) > len(r.Name)+1+maxWireText || checkName(name) != "" {
			t.Errorf("%q of %d, as of %d", name, i+1, before)
		}
		seen[name] = i + 1
	}
	// Told to no one but the store, and so to be kept for good.
	for i, want := range map[int]string{0: "a/sha256:cddc81c1897da380cdb37b44", 7: "a/x=v*", 8: `a/x=v\*`, 9: "a/x=*", 10: "a/x="} {
		if got := r.WireName(i); got != want {
			t.Errorf("%d: %s, want %s", i, got, want)
		}
	}
}

func TestShare(t *testing.T) {
	r := parse(t, "rules: [{name: a, key: [], limit: 100/s, priority: {by: class, shares: {critical: 100%, default: 90%}}}]").Rules()[0]
	for _, tt := range []struct {
		attrs identity.Attributes
		want  float64
	}{
		{attrs("class", "critical"), 1}, {attrs("class", "analytics"), 0.9}, {attrs("class", ""), 0.9}, {nil, 0.9}, {attrs("class", "default"), 0.9},
	} {
		if got := r.Share(tt.attrs); got != tt.want {
			t.Errorf("%v: %v", tt.attrs, got)
		}
	}
	if got := the(t).Share(attrs("class", "critical")); got != 1 {
		t.Errorf("without priority: %v", got)
	}
}

func TestCostOf(t *testing.T) {
	r := the(t, "cost: tokens")
	for _, tt := range []struct {
		text string
		want int64
	}{
		{"1", 1}, {"250", 250}, {"007", 7}, {"1000000000000000", 1e15},
		{"", 0}, {"0", 0}, {"-1", 0}, {"+1", 0}, {"1.5", 0}, {"1e3", 0}, {" 1", 0}, {"1000000000000001", 0}, {"99999999999999999999", 0}, {"٣", 0}, {"x", 0},
	} {
		got, err := r.CostOf(attrs("tokens", tt.text), 3)
		if got != tt.want || (tt.want == 0) != errors.Is(err, errCost) {
			t.Errorf("%q: %d, %v", tt.text, got, err)
		}
	}
	if got, err := r.CostOf(nil, 3); got != 3 || err != nil {
		t.Errorf("without the attribute: %d, %v", got, err)
	}
	if got, err := the(t).CostOf(attrs("tokens", "5"), 3); got != 3 || err != nil {
		t.Errorf("of a rule without cost: %d, %v", got, err)
	}
}

func TestReplaces(t *testing.T) {
	set := parse(t, `rules:
- {name: read, match: {class: read}, key: [user], limit: 5/s}
- {name: special, match: {api: search}, key: [user], limit: 50/s, replaces: [read, all]}
- {name: all, key: [], limit: 100/s}
- {name: beta, match: {beta: "*"}, key: [api], limit: 1/s, replaces: [special]}
- {name: tried, match: {class: read, try: "*"}, key: [user], limit: 90/s, replaces: [read, all], shadow: true}
`)
	for _, tt := range []struct {
		why   string
		attrs identity.Attributes
		want  string
	}{
		{"nothing to replace it", attrs("class", "read", "user", "a"), "read all"},
		{"replaced", attrs("class", "read", "user", "a", "api", "search"), "special"},
		{"not by a rule that is tried out, whose limit does not hold", attrs("class", "read", "user", "a", "try", ""), "read all tried"},
		{"not by a rule that skips the request", attrs("class", "read", "api", "search"), "read special all"},
		{"what is replaced still replaces", attrs("class", "read", "user", "a", "api", "search", "beta", ""), "beta"},
	} {
		if got := names(set.Find(nil, tt.attrs)); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.why, got, tt.want)
		}
	}
}

func TestAttributesOfASet(t *testing.T) {
	set := parse(t, allFields)
	want := []string{"12", "api", "class", "glob", "ip", "path", "plan", "tier", "tokens", "user"}
	if got := set.Attributes(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestDecidingDoesNotAllocate(t *testing.T) {
	var overrides []string
	for i := range 100 {
		overrides = append(overrides, fmt.Sprintf("{match: {user: u%d, tier: '*'}, limit: 10x}", i))
	}
	r := the(t, "allow: {ip: [10.0.0.0/8], user: [admin]}", "deny: {ip: ['2001:db8::/32']}", "cost: tokens",
		"overrides: ["+strings.Join(overrides, ",")+"]")
	shares := the(t, "priority: {by: class, shares: {default: 100%}}")
	now := time.Now()
	for _, request := range []identity.Attributes{
		attrs("user", "u77", "ip", "203.0.113.9", "tier", "gold", "tokens", "250", "class", "critical"),
		attrs("user", "x", "ip", "2001:db8:1:2::/64", "tier", "gold", "tokens", "many"),
	} {
		if n := testing.AllocsPerRun(100, func() {
			r.Listed(request)
			r.Terms(r.Override(request, now))
			_, _ = r.CostOf(request, 1)
			shares.Share(request)
		}); n != 0 {
			t.Errorf("%v: %v allocations", request, n)
		}
	}
}
