package envoyrules

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/offpath-io/offpath/pkg/rules/internal/strictyaml"
)

// file is a domain with its descriptors, or with some of them.
type file struct {
	Domain      string        `yaml:"domain"`
	Descriptors []*descriptor `yaml:"descriptors"`
}

// format is that of envoyproxy/ratelimit: files may have aliases, and nothing where it means
// nothing.
var format = strictyaml.Format{
	List: "descriptors",
	Nullable: []string{
		"domain", "descriptors", "key", "value", "rate_limit", "name", "metadata", "replaces",
	},
	Loose: true,
}

// descriptor is one step on the way to rate limits, and may have one itself.
type descriptor struct {
	Key            string        `yaml:"key"`
	Value          string        `yaml:"value"` // empty: any
	RateLimit      *limit        `yaml:"rate_limit"`
	Descriptors    []*descriptor `yaml:"descriptors"`
	ShadowMode     bool          `yaml:"shadow_mode"`
	ShareThreshold bool          `yaml:"share_threshold"` // values of a wildcard share one counter
	QuotaMode      bool          `yaml:"quota_mode"`
	// These have no effect here, and are warned of.
	DetailedMetric bool      `yaml:"detailed_metric"`
	ValueToMetric  bool      `yaml:"value_to_metric"`
	Metadata       *struct{} `yaml:"metadata"`

	doc  *document // that it stands in
	path []any     // there
}

// limit is a rate limit.
type limit struct {
	Unit            unit     `yaml:"unit"`
	RequestsPerUnit *count   `yaml:"requests_per_unit"`
	Unlimited       bool     `yaml:"unlimited"`
	Name            string   `yaml:"name"`
	Replaces        []limits `yaml:"replaces"`
}

// limits are the limits of one name.
type limits struct {
	Name string `yaml:"name"`
}

type count int64

func (c *count) UnmarshalYAML(n *yaml.Node) error {
	requests, err := strictyaml.Whole(n, 0, math.MaxUint32)
	*c = count(requests)
	return err
}

type unit time.Duration

const day = 24 * time.Hour

// units are as long as envoyproxy/ratelimit has them.
var units = map[string]time.Duration{
	"second": time.Second, "minute": time.Minute, "hour": time.Hour,
	"day": day, "week": 7 * day, "month": 30 * day, "year": 365 * day,
}

func (u *unit) UnmarshalText(text []byte) error {
	length, ok := units[strings.ToLower(string(text))]
	if !ok {
		return fmt.Errorf("%.40q: want second, minute, hour, day, week, month or year", text)
	}
	*u = unit(length)
	return nil
}

// check refuses what is wrong with the file beyond the form of its values, and warns of what it
// does not mean here.
func (f *file) check(doc *document) {
	if f.Domain == "" {
		doc.Refuse([]any{"domain"}, "is missing or empty")
	}
	checkDescriptors(doc, f.Descriptors, nil)
}

// checkDescriptors checks the descriptors at a path.
func checkDescriptors(doc *document, list []*descriptor, path []any) {
	entries := make(map[[2]string]int, len(list))
	for i, d := range list {
		if d == nil {
			continue // it has been refused already
		}
		// One that is an alias is read once for each place, and so never shared.
		d.doc, d.path = doc, slices.Concat(path, []any{"descriptors", i})
		d.check()
		checkDescriptors(doc, d.Descriptors, d.path)
		if first, ok := entries[[2]string{d.Key, d.Value}]; ok {
			d.refuse(fmt.Sprintf("descriptor: the same key and value as entry %d", first+1))
		}
		entries[[2]string{d.Key, d.Value}] = i
	}
}

func (d *descriptor) refuse(reason string, fields ...any) {
	d.doc.Refuse(slices.Concat(d.path, fields), reason)
}

func (d *descriptor) warn(reason string, fields ...any) {
	d.doc.Warn(slices.Concat(d.path, fields), reason)
}

// repeated is how keys end that Attribute makes.
var repeated = regexp.MustCompile(`#[0-9]+$`)

func (d *descriptor) check() {
	switch {
	case d.Key == "":
		d.refuse("is missing or empty", "key")
	case strings.Contains(d.Key, "*"):
		d.refuse(fmt.Sprintf("%.40q: wildcards are for values", d.Key), "key")
	case repeated.MatchString(d.Key):
		d.refuse(fmt.Sprintf("%.40q: a number after a # stands for a key that is repeated", d.Key),
			"key")
	}
	if d.ShareThreshold && !d.wildcard() {
		d.refuse("the value is no wildcard, so there is nothing to share", "share_threshold")
	}
	unlimited := slices.Concat(d.path, []any{"rate_limit", "unlimited"})
	if d.RateLimit != nil && !d.doc.Refused(unlimited) {
		d.RateLimit.check(d)
	}
	if d.DetailedMetric {
		d.warn("metrics have a label for the descriptor of the file here, and none for values",
			"detailed_metric")
	}
	if d.ValueToMetric {
		d.warn("metrics have a label for the descriptor of the file here, and none for values",
			"value_to_metric")
	}
	if d.Metadata != nil {
		d.warn("answers have no dynamic metadata here", "metadata")
	}
}

// wildcard reports whether the descriptor is for several values that its own one describes.
func (d *descriptor) wildcard() bool { return strings.Contains(d.Value, "*") }

// check refuses limits of which something is missing, or too much is there.
func (l *limit) check(d *descriptor) {
	switch {
	case l.Unlimited && l.Unit != 0:
		d.refuse("is for a limit, and this is unlimited", "rate_limit", "unit")
	case !l.Unlimited && l.Unit == 0:
		d.refuse("is missing", "rate_limit", "unit")
	case !l.Unlimited && l.RequestsPerUnit == nil:
		d.warn("is missing, which is 0: every request is denied", "rate_limit", "requests_per_unit")
	}
	if len(l.Replaces) > 0 && d.ShadowMode {
		d.warn("one in shadow_mode replaces only others in it here: nothing would limit the request "+
			"in their place", "rate_limit", "replaces")
	}
	for i, other := range l.Replaces {
		switch other.Name {
		case "":
			d.refuse("is missing or empty", "rate_limit", "replaces", i, "name")
		case l.Name:
			d.refuse(fmt.Sprintf("%.40q is this one itself", l.Name), "rate_limit", "replaces", i, "name")
		}
	}
}

// requests are those per unit.
func (l *limit) requests() int64 {
	if l.RequestsPerUnit == nil {
		return 0
	}
	return int64(*l.RequestsPerUnit)
}
