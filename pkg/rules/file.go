package rules

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v4"

	"github.com/offpath-io/offpath/pkg/rules/internal/strictyaml"
	"github.com/offpath-io/offpath/pkg/window"
)

type (
	matched = strictyaml.Mapping[string]   // conditions on attributes
	listed  = strictyaml.Mapping[[]string] // lists of attributes' values
)

// file is a set of rules as YAML has it.
type file struct {
	Rules []*fileRule `yaml:"rules"`
}

// fileRule is a rule as YAML has it. Its fields are in the order in which errors list them and
// Marshal writes them. Zero is the default, which Marshal leaves out.
type fileRule struct {
	Name        string              `yaml:"name,omitempty"`
	Match       matched             `yaml:"match,omitempty"`
	Exclude     listed              `yaml:"exclude,omitempty"`
	Exact       bool                `yaml:"exact,omitempty"`
	Ordered     bool                `yaml:"ordered,omitempty"`
	Key         *[]string           `yaml:"key,omitempty"`
	OnMissing   word[OnMissing]     `yaml:"on_missing,omitempty"`
	Limit       rate                `yaml:"limit,omitempty"`
	Buckets     whole               `yaml:"buckets,omitempty"`
	Algorithm   word[Algorithm]     `yaml:"algorithm,omitempty"`
	Burst       whole               `yaml:"burst,omitempty"`
	Unlimited   bool                `yaml:"unlimited,omitempty"`
	Enforcement word[Enforcement]   `yaml:"enforcement,omitempty"`
	OnOutage    word[OnOutage]      `yaml:"on_outage,omitempty"`
	Throttle    *word[ThrottleKind] `yaml:"throttle,omitempty"`
	Soft        *fileSoft           `yaml:"soft,omitempty"`
	Elastic     *fileElastic        `yaml:"elastic,omitempty"`
	OnLimit     word[onLimit]       `yaml:"on_limit,omitempty"`
	MaxWait     span                `yaml:"max_wait,omitempty"`
	MaxDepth    whole               `yaml:"max_depth,omitempty"`
	Status      whole               `yaml:"status,omitempty"`
	Shadow      bool                `yaml:"shadow,omitempty"`
	Overrides   []fileOverride      `yaml:"overrides,omitempty"`
	Allow       listed              `yaml:"allow,omitempty"`
	Deny        listed              `yaml:"deny,omitempty"`
	Cost        *string             `yaml:"cost,omitempty"`
	Count       word[Count]         `yaml:"count,omitempty"`
	Priority    *filePriority       `yaml:"priority,omitempty"`
	Replaces    []string            `yaml:"replaces,omitempty"`
}

type fileSoft struct {
	Exceed percent `yaml:"exceed"`
}

type fileElastic struct {
	UpTo  percent   `yaml:"up_to"`
	While fileWhile `yaml:"while"`
}

type fileWhile struct {
	Rule  string  `yaml:"rule"`
	Below percent `yaml:"below"`
}

type fileOverride struct {
	Match   matched       `yaml:"match"`
	Limit   overrideLimit `yaml:"limit"`
	Buckets whole         `yaml:"buckets,omitempty"`
	Burst   whole         `yaml:"burst,omitempty"`
	Until   moment        `yaml:"until,omitempty"`
}

type filePriority struct {
	By     string                      `yaml:"by"`
	Shares strictyaml.Mapping[percent] `yaml:"shares"`
}

// missing says which fields are missing or empty that a rule of a file cannot be without, although
// a Rule in Go can, or that have no zero value there.
func (f *fileRule) missing() (all faults) {
	if f.Key == nil && !f.Unlimited {
		all.add(path{"key"}, "is missing: write key: [user], for example, or key: [] for one counter for all")
	}
	if f.Limit == (rate{}) && !f.Unlimited {
		all.add(path{"limit"}, "is missing: write limit: 15/second, for example, or unlimited: true")
	}
	for _, list := range f.Exclude {
		if len(list.Value) == 0 {
			all.add(path{"exclude", list.Name}, "is empty: want the values that the rule does "+
				"not apply to, or no %s", list.Name)
		}
	}
	if f.Cost != nil && *f.Cost == "" {
		all.add(path{"cost"}, "is empty: want the attribute with the cost, or no cost")
	}
	if f.Priority != nil && f.Priority.By == "" {
		all.add(path{"priority", "by"}, "is missing or empty: want the attribute that says "+
			"which class")
	}
	return all
}

// rule is the rule that the file has.
func (f *fileRule) rule() Rule {
	r := Rule{
		Name: f.Name, Match: each(f.Match, conditionOf), Exact: f.Exact,
		Ordered: f.Ordered, OnMissing: f.OnMissing.Is, Limit: f.Limit.Hits,
		Window:    window.Shape{Length: f.Limit.Per, Buckets: f.Buckets.int()},
		Algorithm: f.Algorithm.Is, Burst: int64(f.Burst), Unlimited: f.Unlimited,
		Enforcement: f.Enforcement.Is, OnOutage: f.OnOutage.Is, Throttle: f.throttle(),
		OnLimit: OnLimit{f.OnLimit.Is == queue, f.MaxWait.Duration, f.MaxDepth.int()},
		Status:  f.Status.int(), Shadow: f.Shadow,
		Allow: each(f.Allow, listOf), Deny: each(f.Deny, listOf), Count: f.Count.Is,
		Replaces: f.Replaces,
	}
	for _, list := range f.Exclude {
		for _, value := range list.Value {
			one := strictyaml.Entry[string]{Name: list.Name, Value: value}
			r.Exclude = append(r.Exclude, conditionOf(one))
		}
	}
	if f.Key != nil {
		r.Key = *f.Key
	}
	if f.Cost != nil {
		r.Cost = string(*f.Cost)
	}
	for _, o := range f.Overrides {
		r.Overrides = append(r.Overrides, Override{
			Match: each(o.Match, conditionOf), Limit: o.Limit.Hits,
			Window: window.Shape{Length: o.Limit.Per, Buckets: o.Buckets.int()},
			Burst:  int64(o.Burst), Factor: o.Limit.Factor, Action: o.Limit.Action,
			Until: o.Until.Time,
		})
	}
	if f.Priority != nil {
		r.Priority = Priority{By: f.Priority.By, Shares: make(map[string]float64)}
		for _, share := range f.Priority.Shares {
			r.Priority.Shares[share.Name] = float64(share.Value)
		}
	}
	return r
}

// throttle is of the kind that has a field, if the kind is not given.
func (f *fileRule) throttle() (t Throttle) {
	if f.Soft != nil {
		t.Kind, t.Exceed = Soft, float64(f.Soft.Exceed)
	}
	if e := f.Elastic; e != nil {
		t.Kind, t.UpTo, t.Below = Elastic, float64(e.UpTo), float64(e.While.Below)
		t.While = e.While.Rule
	}
	if f.Throttle != nil {
		t.Kind = f.Throttle.Is
	}
	return t
}

// each converts each entry of a list.
func each[A, B any](list []A, of func(A) B) []B {
	made := make([]B, len(list))
	for i, one := range list {
		made[i] = of(one)
	}
	return made
}

func conditionOf(e strictyaml.Entry[string]) Condition {
	c := Condition{Name: e.Name}
	c.Op, c.Value = parsePattern(e.Value)
	return c
}

func matchedOf(c Condition) strictyaml.Entry[string] {
	return strictyaml.Entry[string]{Name: c.Name, Value: c.Pattern()}
}

func listOf(e strictyaml.Entry[[]string]) List { return List{Attribute: e.Name, Values: e.Value} }

func listedOf(l List) strictyaml.Entry[[]string] {
	prefixes := each(l.Prefixes, netip.Prefix.String)
	return strictyaml.Entry[[]string]{Name: l.Attribute, Value: slices.Concat(l.Values, prefixes)}
}

// fileOf is how a file has the rule of a set.
func fileOf(r *Rule) *fileRule {
	f := &fileRule{
		Name: r.Name, Match: each(r.Match, matchedOf), Exact: r.Exact,
		Ordered: r.Ordered, OnMissing: word[OnMissing]{r.OnMissing}, Algorithm: word[Algorithm]{r.Algorithm},
		Buckets:   unless(window.DefaultBuckets(r.Window.Kind, r.Window.Length), r.Window.Buckets),
		Unlimited: r.Unlimited, Enforcement: word[Enforcement]{r.Enforcement},
		Status: unless(429, r.Status), Shadow: r.Shadow,
		Allow: each(r.Allow, listedOf), Deny: each(r.Deny, listedOf), Count: word[Count]{r.Count},
		Replaces: r.Replaces,
	}
	for i, c := range r.Exclude {
		if i == 0 || r.Exclude[i-1].Name != c.Name {
			f.Exclude = append(f.Exclude, strictyaml.Entry[[]string]{Name: c.Name})
		}
		of := &f.Exclude[len(f.Exclude)-1]
		of.Value = append(of.Value, c.Pattern())
	}
	if !r.Unlimited {
		f.Limit = rate{r.Limit, r.Window.Length}
	}
	if !r.Unlimited || len(r.Key) > 0 {
		f.Key = new(slices.Clone(r.Key))
	}
	if r.hasBurst() {
		f.Burst = unless(r.Limit, r.Burst)
	}
	if r.Enforcement != Strict && r.OnOutage != Share { // a strict rule can only be closed
		f.OnOutage.Is = r.OnOutage
	}
	f.setThrottle(&r.Throttle)
	if r.OnLimit.Queue {
		f.OnLimit.Is, f.MaxWait.Duration = queue, r.OnLimit.MaxWait
		f.MaxDepth = unless(DefaultDepth, r.OnLimit.MaxDepth)
	}
	for i := range r.Overrides {
		f.Overrides = append(f.Overrides, overrideOf(&r.Overrides[i], r))
	}
	if r.Cost != "" {
		f.Cost = new(r.Cost)
	}
	if r.Priority.By != "" {
		f.Priority = &filePriority{By: r.Priority.By}
		for _, class := range slices.Sorted(maps.Keys(r.Priority.Shares)) {
			share := strictyaml.Entry[percent]{Name: class, Value: percent(r.Priority.Shares[class])}
			f.Priority.Shares = append(f.Priority.Shares, share)
		}
	}
	return f
}

func (f *fileRule) setThrottle(t *Throttle) {
	if t.Kind != Hard {
		f.Throttle = &word[ThrottleKind]{t.Kind}
	}
	switch t.Kind {
	case Soft:
		f.Soft = &fileSoft{percent(t.Exceed)}
	case Elastic:
		while := fileWhile{t.While, percent(t.Below)}
		f.Elastic = &fileElastic{percent(t.UpTo), while}
	}
}

func overrideOf(o *Override, r *Rule) fileOverride {
	f := fileOverride{Match: each(o.Match, matchedOf), Until: moment{o.Until}}
	f.Limit.Action, f.Limit.Factor = o.Action, o.Factor
	if o.Limit == 0 {
		return f
	}
	shape := o.Window
	if shape == (window.Shape{}) {
		shape = r.Window
	}
	f.Limit.rate = rate{o.Limit, shape.Length}
	f.Buckets = unless(r.bucketsOf(shape), shape.Buckets)
	if r.hasBurst() {
		f.Burst = unless(o.Limit, o.Burst)
	}
	return f
}

// unless is the number, or 0 for the default.
func unless[T int | int64](byDefault, n T) whole {
	if n == byDefault {
		return 0
	}
	return whole(n)
}

// Marshal writes the set as YAML, which Parse reads back to an equal set. It leaves out defaults,
// so equal sets are written the same. The error is an *Error, for a set that is longer than
// MaxSize.
func (s *Set) Marshal() ([]byte, error) {
	list := make([]*yaml.Node, len(s.rules))
	for i, r := range s.rules {
		node, err := nodeOf(r)
		if err != nil {
			return nil, &Error{Reason: err.Error()}
		}
		list[i] = node
	}
	text, err := yaml.Dump(map[string]any{"rules": list},
		yaml.WithV3Defaults(), yaml.WithIndent(2), yaml.WithLineWidth(-1))
	if err != nil {
		return nil, &Error{Reason: err.Error()}
	}
	if len(text) > MaxSize {
		reason := fmt.Sprintf("has %d bytes as YAML: want at most %d", len(text), MaxSize)
		return nil, &Error{Reason: reason}
	}
	return text, nil
}

// nodeOf writes the rule of a set: each field on a line of its own, and each override.
func nodeOf(r *Rule) (*yaml.Node, error) {
	node := &yaml.Node{}
	if err := node.Encode(fileOf(r)); err != nil {
		return nil, err
	}
	quoteUnprintable(node)
	for i := 0; i < len(node.Content); i += 2 {
		lines := node.Content[i+1 : i+2]
		if node.Content[i].Value == "overrides" {
			lines = lines[0].Content
		}
		for _, line := range lines {
			line.Style |= yaml.FlowStyle
		}
	}
	return node, nil
}

// quoteUnprintable puts strings in quotes that are not plainly printable. The library puts a string
// in quotes if it must, but not wherever a line of the text would change.
func quoteUnprintable(n *yaml.Node) {
	unprintable := func(c rune) bool { return !unicode.IsPrint(c) }
	if n.Kind == yaml.ScalarNode && strings.ContainsFunc(n.Value, unprintable) {
		n.Style = yaml.DoubleQuotedStyle
	}
	for _, part := range n.Content {
		quoteUnprintable(part)
	}
}
