package rules

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/offpath-io/offpath/pkg/window"
)

// randomRule is a rule that a set takes, with all fields in all their forms. Of the earlier rules
// it may name some.
func randomRule(t *rapid.T, name string, earlier []string) Rule {
	r := Rule{
		Name:      name,
		Match:     anyMatch(t, 0),
		Exclude:   append(anyMatch(t, 0), anyMatch(t, 0)...),
		Exact:     chance(t, "exact"),
		Key:       rapid.SliceOfNDistinct(anyName, 0, 3, rapid.ID).Draw(t, "key"),
		OnMissing: rapid.SampledFrom([]OnMissing{Skip, Deny, Empty}).Draw(t, "on_missing"),
		OnOutage:  rapid.SampledFrom([]OnOutage{DefaultOnOutage, Share, Open, Closed}).Draw(t, "on_outage"),
		Status:    rapid.SampledFrom([]int{0, 429, 503}).Draw(t, "status"),
		Shadow:    chance(t, "shadow"),
		Allow:     anyLists(t), Deny: anyLists(t),
	}
	if chance(t, "replaces") && len(earlier) > 0 {
		r.Replaces = rapid.SliceOfNDistinct(rapid.SampledFrom(earlier), 1, len(earlier), rapid.ID).Draw(t, "replaces")
	}
	if r.Unlimited = chance(t, "unlimited"); r.Unlimited {
		return r
	}
	r.Algorithm = rapid.SampledFrom([]Algorithm{SlidingWindow, FixedWindow, SlidingLog, TokenBucket, LeakyBucket}).Draw(t, "algorithm")
	most := int64(1e9)
	if r.Algorithm == SlidingLog {
		most = 100
	}
	r.Limit = rapid.Int64Range(10, most).Draw(t, "limit")
	r.Window = anyWindow(t, r.Algorithm)
	if r.hasBurst() {
		r.Burst = rapid.Int64Range(0, 1e6).Draw(t, "burst")
	}
	if chance(t, "cost") {
		r.Cost = anyName.Draw(t, "cost")
	}
	if r.Algorithm != LeakyBucket && chance(t, "count") {
		r.Count = All
	}
	if r.Window.Buckets > 0 && r.Count == Admitted && (r.Algorithm == SlidingWindow || r.Algorithm == FixedWindow) && chance(t, "strict") {
		r.Enforcement, r.OnOutage = Strict, Closed
	}
	r.Throttle = anyThrottle(t, earlier)
	r.OnLimit = anyOnLimit(t, r.Algorithm)
	r.Overrides = anyOverrides(t, &r)
	if chance(t, "priority") {
		r.Priority = Priority{By: anyName.Draw(t, "by"), Shares: rapid.MapOfN(anyText, anyPart(0.1, 1), 0, 3).Draw(t, "shares")}
		r.Priority.Shares[DefaultClass] = anyPart(0.1, 1).Draw(t, "default")
		if r.hasBurst() {
			r.Burst = max(r.Burst, 10) // the least share of it is a hit
		}
	}
	return r
}

func chance(t *rapid.T, what string) bool { return rapid.IntRange(0, 2).Draw(t, what) == 0 }

var (
	// anyName is the name of an attribute: as YAML would take it for something else, too.
	anyName = rapid.OneOf(
		rapid.SampledFrom([]string{"user", "ip", "path", "header:X-Key", "true", "12", "null", "~", "<<", "=", "-", "2026-03-05", "1e3", "0x1", "*", "&a", "!b", "{", "[a]", "#", "a:", "'", `"`, "ä", "路", "on", "0o7"}),
		rapid.StringMatching(`[!-~]{1,20}`),
		rapid.Just(strings.Repeat("n", maxName)),
	)
	// anyText is a value: any UTF-8, and what is special here or in YAML.
	anyText = rapid.OneOf(
		rapid.SampledFrom([]string{"", "*", `\`, `\*`, `\\*`, "a*", `a\*`, " a ", "a: b", "a #b", "- a", "\n", "a\nb", "\r\n", "\t", "\x00", "\u0085", "\u2028", "\ufeff", "\u00a0", "true", "1", "~", "%", "\U0001f600"}),
		rapid.String(),
		rapid.StringMatching(`[a*\\]{0,6}`),
	)
)

func anyPart(from, to float64) *rapid.Generator[float64] {
	return rapid.OneOf(rapid.Float64Range(from, to), rapid.Custom(func(t *rapid.T) float64 {
		return float64(rapid.IntRange(int(from*100), int(to*100)).Draw(t, "percent")) / 100
	}))
}

func anyMatch(t *rapid.T, least int) []Condition {
	var match []Condition
	for _, name := range rapid.SliceOfNDistinct(anyName, least, 3, rapid.ID).Draw(t, "match") {
		c := Condition{Name: name, Op: rapid.SampledFrom([]Op{Equal, Present, Prefix, Glob}).Draw(t, "op")}
		switch c.Op {
		case Glob:
			c.Value = anyText.Draw(t, "value") + "*x*x" + anyText.Draw(t, "last")
		case Equal:
			c.Value = anyText.Draw(t, "value")
		case Prefix:
			c.Value = anyText.Draw(t, "value") + rapid.SampledFrom([]string{"a", "*", `\`}).Draw(t, "last")
		}
		match = append(match, c)
	}
	return match
}

func anyWindow(t *rapid.T, algorithm Algorithm) window.Shape {
	shape := window.Shape{Length: rapid.OneOf(
		rapid.SampledFrom([]time.Duration{time.Second, time.Minute, time.Hour, day, 7 * day, 366 * day, time.Millisecond, 90 * time.Minute}),
		rapid.Map(rapid.Int64Range(1, 1e9), func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }),
	).Draw(t, "length")}
	if algorithm == SlidingWindow {
		shape.Buckets = rapid.SampledFrom([]int{0, 1, 2, 10}).Draw(t, "buckets")
		shape.Length *= time.Duration(max(shape.Buckets, 1))
		if shape.Length > window.MaxLength {
			shape.Length = time.Hour
		}
	}
	return shape
}

func anyThrottle(t *rapid.T, earlier []string) Throttle {
	switch kind := rapid.SampledFrom([]ThrottleKind{Hard, Soft, Elastic}).Draw(t, "throttle"); {
	case kind == Soft:
		return Throttle{Kind: Soft, Exceed: anyPart(0.01, 5).Draw(t, "exceed")}
	case kind == Elastic && len(earlier) > 0:
		return Throttle{
			Kind: Elastic, UpTo: anyPart(1.01, 6).Draw(t, "up_to"),
			While: rapid.SampledFrom(earlier).Draw(t, "rule"), Below: anyPart(0.01, 1).Draw(t, "below"),
		}
	}
	return Throttle{}
}

func anyOnLimit(t *rapid.T, algorithm Algorithm) OnLimit {
	if !chance(t, "queue") {
		return OnLimit{}
	}
	o := OnLimit{Queue: true, MaxWait: time.Duration(rapid.Int64Range(1, 3_600_000).Draw(t, "max_wait")) * time.Millisecond}
	if algorithm != LeakyBucket {
		o.MaxDepth = rapid.SampledFrom([]int{0, 1, 100, 1_000_000}).Draw(t, "max_depth")
	}
	return o
}

func anyOverrides(t *rapid.T, r *Rule) []Override {
	var overrides []Override
	seen := map[string]bool{}
	for range rapid.IntRange(0, 3).Draw(t, "overrides") {
		o := Override{Match: anyMatch(t, 1)}
		switch rapid.SampledFrom([]string{"limit", "window", "factor", "action"}).Draw(t, "override") {
		case "limit":
			o.Limit = rapid.Int64Range(1, 100).Draw(t, "limit")
		case "window":
			o.Limit, o.Window = rapid.Int64Range(1, 100).Draw(t, "limit"), anyWindow(t, r.Algorithm)
			if r.Window.Buckets > 1 {
				o.Window.Buckets = max(o.Window.Buckets, 1)
			}
		case "factor":
			o.Factor = anyPart(0.1, 1.5).Draw(t, "factor")
		case "action":
			o.Action = rapid.SampledFrom([]Action{Unlimited, Blocked}).Draw(t, "action")
		}
		if o.Limit > 0 && r.hasBurst() {
			o.Burst = rapid.Int64Range(0, 100).Draw(t, "burst")
		}
		if o.Factor > 0 && r.hasBurst() {
			r.Burst = max(r.Burst, 10)
		}
		if chance(t, "until") {
			o.Until = time.Unix(rapid.Int64Range(-1e9, 1e11).Draw(t, "until"), rapid.Int64Range(0, 999_999_999).Draw(t, "nanoseconds")).In(time.FixedZone("", 3600))
		}
		if !seen[o.text()] {
			overrides = append(overrides, o)
		}
		seen[o.text()] = true
	}
	return overrides
}

func anyLists(t *rapid.T) []List {
	var lists []List
	for _, name := range rapid.SliceOfNDistinct(anyName, 0, 2, rapid.ID).Draw(t, "list") {
		l := List{Attribute: name}
		if name != "ip" {
			l.Values = rapid.SliceOfN(anyText, 0, 3).Draw(t, "values")
		}
		if len(l.Values) == 0 || chance(t, "prefixes") {
			l.Prefixes = rapid.SliceOfN(anyPrefix, 1, 5).Draw(t, "prefixes")
		}
		lists = append(lists, l)
	}
	return lists
}

var anyPrefix = rapid.Custom(func(t *rapid.T) netip.Prefix {
	text := rapid.SampledFrom([]string{"10.0.0.0", "10.1.0.0", "203.0.113.9", "2001:db8::", "2001:db8::1", "::", "0.0.0.0"}).Draw(t, "address")
	addr := netip.MustParseAddr(text)
	return netip.PrefixFrom(addr, rapid.IntRange(0, addr.BitLen()).Draw(t, "bits")).Masked()
})

func randomSet(t *rapid.T) *Set {
	var list []Rule
	var names []string
	for i := range rapid.IntRange(1, 4).Draw(t, "rules") {
		name := fmt.Sprint("r", i)
		list, names = append(list, randomRule(t, name, names)), append(names, name)
		if list[i].Unlimited {
			names = names[:len(names)-1] // nobody can wait for room in it
		}
	}
	set, err := NewSet(list...)
	if err != nil {
		t.Fatalf("%+v: %v", list, err)
	}
	return set
}
