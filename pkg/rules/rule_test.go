package rules

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/window"
)

// A set knows its rules, which are the same as others of the same fields wherever these are, and
// does not change: it shares no memory with the rules that it was made of.
func TestASetKnowsItsRules(t *testing.T) {
	mine := []Rule{matching("a"), matching("b", "api", "x")}
	shares, values := map[string]float64{"a": 1, "default": 1}, []string{"x"}
	mine[1].Priority, mine[1].Deny = Priority{By: "class", Shares: shares}, []List{{Attribute: "user", Values: values}}
	one, two := newSet(t, mine...), newSet(t, mine[1], mine[0])
	mine[1].Match[0].Value, mine[1].Key[0], shares["a"], values[0] = "y", "v", 0.1, "y"
	one.Rules()[0] = nil
	first, second := one.Rules(), two.Rules()
	for i := range 2 {
		if first[i].Place() != i || second[i].Place() != i || !first[i].Equal(second[1-i]) || first[i].Equal(second[i]) {
			t.Errorf("rule %d is %+v at %d, and %+v at %d", i, first[i], first[i].Place(), second[i], second[i].Place())
		}
	}
	if c := *first[1]; c.Place() != -1 || new(Rule).Place() != -1 {
		t.Errorf("a copy is at %d, a rule of no set at %d", c.Place(), new(Rule).Place())
	}
	if r, ok := one.Lookup("b"); !ok || r != first[1] || r.Match[0].Value != "x" || r.Key[0] != "user" ||
		r.Priority.Shares["a"] != 1 || r.Deny[0].Values[0] != "x" {
		t.Errorf("Lookup: %+v, %v", r, ok)
	}
	if r, ok := one.Lookup("c"); ok || r != nil {
		t.Errorf("Lookup of none: %v, %v", r, ok)
	}
}

func TestKeyOfARule(t *testing.T) {
	for _, tt := range []struct {
		why       string
		onMissing OnMissing
		attrs     identity.Attributes
		want      string
		ok        bool
	}{
		{"all there", Skip, attrs("api", "c", "user", "a"), "k:a|c", true},
		{"one missing", Skip, attrs("user", "a"), "k:", false},
		{"one missing", Deny, attrs("user", "a"), "k:", false},
		{"one missing counts as empty", Empty, attrs("user", "a"), "k:a|", true},
		{"all missing count as one entity", Empty, nil, "k:|", true},
		{"an empty value is there", Skip, attrs("api", "", "user", ""), "k:|", true},
	} {
		r := Rule{Key: []string{"user", "api"}, OnMissing: tt.onMissing}
		key, ok := r.AppendKey([]byte("k:"), tt.attrs)
		if string(key) != tt.want || ok != tt.ok {
			t.Errorf("%s (%v): got %q, %v, want %q, %v", tt.why, tt.onMissing, key, ok, tt.want, tt.ok)
		}
	}
}

func TestNewSetRefusesWhatYAMLCannotSay(t *testing.T) {
	right := Rule{Name: "a", Key: []string{"u"}, Limit: 1, Window: window.Shape{Length: time.Second, Buckets: 1}}
	gold, fixed := []Condition{{Name: "tier", Value: "gold"}}, window.Shape{Length: time.Minute, Buckets: 1, Fixed: true}
	pair := func(name string) Condition { return Condition{Name: name} }
	for _, tt := range []struct {
		change func(*Rule)
		want   string // part of the reason; "" if it is right
	}{
		{func(r *Rule) {}, ""},
		{func(r *Rule) { r.Name = "\xff" }, "name: is not UTF-8"},
		{func(r *Rule) { r.Match = []Condition{pair("a"), pair("a")} }, `match: attribute "a": occurs twice`},
		{func(r *Rule) { r.OnMissing = 3 }, "on_missing: 3 is not one of"},
		{func(r *Rule) { r.OnOutage = 4 }, "on_outage: 4 is not one of"},
		{func(r *Rule) { r.Enforcement = 2 }, "enforcement: 2 is not one of"},
		{func(r *Rule) { r.Limit = -1 }, "limit: -1: want 1 to"},
		{func(r *Rule) { r.Limit = window.MaxCount + 1 }, "want 1 to 1000000000000000"},
		{func(r *Rule) { r.Window.Length = 0 }, "limit: window of 0s"},
		{func(r *Rule) { r.Window.Length = time.Millisecond + 1 }, "limit: window of 1.000001ms"},
		{func(r *Rule) { r.Match = []Condition{{Name: "a", Op: 4}} }, `match: attribute "a": 4 is not one of equal, present, prefix, glob`},
		{func(r *Rule) { r.Match = []Condition{{Name: "a", Value: "\xff"}} }, `match: attribute "a": its value is not UTF-8`},
		{func(r *Rule) { r.Match = []Condition{{Name: "a", Op: Present, Value: "x"}} }, "is to be present"},
		{func(r *Rule) { r.Match = []Condition{{Name: "a", Op: Prefix}} }, "any value begins with an empty prefix"},
		{func(r *Rule) { r.Algorithm = 5 }, "algorithm: 5 is not one of"},
		{func(r *Rule) { r.Window.Fixed = true }, ""},
		{func(r *Rule) { r.Algorithm, r.Window.Kind = TokenBucket, window.Log }, "token_bucket has no window of kind 1"},
		{func(r *Rule) { r.Algorithm, r.Window.Kind = FixedWindow, window.Log }, "a fixed window cannot be of kind 1"},
		{func(r *Rule) { r.Algorithm, r.Window.Fixed = TokenBucket, true }, "algorithm: token_bucket has no fixed window"},
		{func(r *Rule) { r.Algorithm, r.Burst = TokenBucket, -1 }, "burst: -1: want 1 to"},
		{func(r *Rule) { r.Count = 2 }, "count: 2 is not one of"},
		{func(r *Rule) { r.Throttle.Kind = 3 }, "throttle: 3 is not one of"},
		{func(r *Rule) { r.Throttle = Throttle{Kind: Soft, Exceed: math.NaN()} }, "soft: exceed: NaN: want more than 0%"},
		{func(r *Rule) { r.Throttle = Throttle{Kind: Soft, Exceed: -0.1} }, "soft: exceed: -10%: want"},
		{func(r *Rule) { r.Throttle = Throttle{Kind: Elastic, UpTo: math.NaN(), While: "s", Below: 1} }, "elastic: up_to: NaN: want"},
		{func(r *Rule) { r.Throttle.Below = 0.5 }, "elastic: throttle is hard"},
		{func(r *Rule) { r.OnLimit = OnLimit{Queue: true, MaxWait: time.Microsecond} }, "max_wait: 1µs: want whole milliseconds"},
		{func(r *Rule) { r.OnLimit = OnLimit{Queue: true, MaxWait: -time.Second} }, "max_wait: -1s"},
		{func(r *Rule) { r.OnLimit = OnLimit{Queue: true, MaxWait: time.Second, MaxDepth: -1} }, "max_depth: -1: want 1 to"},
		{func(r *Rule) { r.Overrides = []Override{{Match: gold, Action: 3}} }, "overrides: entry 1: limit: 3 is not one of"},
		{func(r *Rule) { r.Overrides = []Override{{Match: gold, Action: Blocked, Limit: 1}} }, "overrides: entry 1: limit: blocked callers have no limit"},
		{func(r *Rule) { r.Overrides = []Override{{Match: gold, Limit: 1, Factor: 1}} }, "limit: want a limit or a factor, not both"},
		{func(r *Rule) { r.Overrides = []Override{{Match: gold, Limit: -1}} }, "overrides: entry 1: limit: -1: want 1 to"},
		{func(r *Rule) { r.Overrides = []Override{{Match: gold, Factor: math.NaN()}} }, "limit: NaNx: want 0.001x"},
		{func(r *Rule) { r.Overrides = []Override{{Match: gold, Factor: 1, Window: fixed}} }, "there is no limit that this window is for"},
		{func(r *Rule) { r.Overrides = []Override{{Match: gold, Limit: 1, Window: fixed}} }, "overrides: entry 1: limit: want the rule's algorithm, sliding_window"},
		{func(r *Rule) {
			r.Overrides = []Override{{Match: gold, Limit: 1, Until: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}}
		}, "until: 10000-01-01"},
		{func(r *Rule) { r.Allow = []List{{}} }, `allow: attribute "": is empty`},
		{func(r *Rule) {
			r.Allow = []List{{Attribute: "u", Values: []string{"a"}}, {Attribute: "u", Values: []string{"b"}}}
		}, `allow: attribute "u": occurs twice`},
		{func(r *Rule) { r.Deny = []List{{Attribute: "u", Values: []string{"\xff"}}} }, `deny: u: "\xff": is not UTF-8`},
		{func(r *Rule) { r.Deny = []List{{Attribute: "u", Prefixes: make([]netip.Prefix, 1)}} }, `is no prefix`},
		{func(r *Rule) { r.Priority.Shares = map[string]float64{"default": 1} }, "priority: by: is missing"},
		{func(r *Rule) { r.Priority.By = "a b" }, `priority: by: attribute "a b"`},
		{func(r *Rule) { r.Priority = Priority{By: "a", Shares: map[string]float64{"default": math.NaN()}} }, "priority: shares: default: NaN: want more than 0%, at most 100%"},
		{func(r *Rule) { r.Priority = Priority{By: "a", Shares: map[string]float64{"default": 1, "\xff": 1}} }, `is not UTF-8`},
		{func(r *Rule) { // classes divide what there is room for at once, which may be more than the limit
			r.Algorithm, r.Burst = TokenBucket, 100
			r.Priority = Priority{By: "a", Shares: map[string]float64{"default": 0.1}}
		}, ""},
	} {
		first, r := right, right
		first.Name = "first"
		tt.change(&r)
		_, err := NewSet(first, r)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("got %v, want %q", err, tt.want)
		}
		if refusal, ok := errors.AsType[*Error](err); err != nil && (!ok || refusal.Line != 0) {
			t.Errorf("%v is a %T", err, err)
		}
	}
	if _, err := NewSet(); err == nil {
		t.Error("a set of no rules was made")
	}
}

func TestWords(t *testing.T) {
	for _, tt := range []struct{ got, want string }{
		{fmt.Sprint(Skip, Deny, Empty, OnMissing(3)), "skip deny empty invalid"},
		{fmt.Sprint(DefaultOnOutage, Share, Open, Closed, OnOutage(4)), "default share open closed invalid"},
		{fmt.Sprint(SlidingWindow, LeakyBucket, Algorithm(5)), "sliding_window leaky_bucket invalid"},
		{fmt.Sprint(Hard, Elastic, ThrottleKind(3)), "hard elastic invalid"},
		{fmt.Sprint(Limited, Blocked, Action(3)), "limited blocked invalid"},
		{fmt.Sprint(All, Count(2), Async, Strict, Enforcement(2)), "all invalid async strict invalid"},
		{fmt.Sprint(Prefix, Glob, Op(4), Changed), "prefix glob invalid changed"},
	} {
		if tt.got != tt.want {
			t.Errorf("got %s, want %s", tt.got, tt.want)
		}
	}
}
