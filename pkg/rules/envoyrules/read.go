package envoyrules

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/offpath-io/offpath/pkg/rules/internal/strictyaml"
)

// file is a domain with its descriptors.
type file struct {
	Domain      string        `yaml:"domain"`
	Descriptors []*descriptor `yaml:"descriptors"`
}

// format is that of envoyproxy/ratelimit: files may have aliases, and nothing where it means
// nothing.
var format = strictyaml.Format{
	List:     "descriptors",
	Nullable: []string{"domain", "descriptors", "key", "value", "rate_limit", "name"},
	Loose:    true,
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
	// These are about metrics alone, or have no effect here.
	DetailedMetric struct{} `yaml:"detailed_metric"`
	ValueToMetric  struct{} `yaml:"value_to_metric"`
	Metadata       struct{} `yaml:"metadata"`

	path []any // in the document
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

// mistake is something wrong with a file, and the path to it.
type mistake struct {
	path   []any
	reason string
}

// Error is the reason.
func (m *mistake) Error() string { return m.reason }

// check refuses what is wrong with the file beyond the form of its values.
func (f *file) check(doc *strictyaml.Document) {
	if f.Domain == "" {
		doc.Refuse([]any{"domain"}, "is missing or empty")
	}
	checkDescriptors(doc, f.Descriptors, nil, []string{Domain})
}

// checkDescriptors checks the descriptors at a path, beneath those with the given keys.
func checkDescriptors(doc *strictyaml.Document, list []*descriptor, path []any, keys []string) {
	entries := make(map[[2]string]int, len(list))
	for i, d := range list {
		if d == nil {
			continue // it has been refused already
		}
		d.path = slices.Concat(path, []any{"descriptors", i})
		refuse := func(reason string, fields ...any) {
			doc.Refuse(slices.Concat(d.path, fields), reason)
		}
		if why := wrongKey(d.Key, keys); why != "" {
			refuse(why, "key")
		}
		if star := strings.IndexByte(d.Value, '*'); star >= 0 && star < len(d.Value)-1 {
			refuse(fmt.Sprintf("%.40q: a wildcard is supported at the end alone", d.Value), "value")
		}
		if d.QuotaMode {
			refuse("is not supported", "quota_mode")
		}
		if d.ShareThreshold && !strings.HasSuffix(d.Value, "*") {
			refuse("the value is no wildcard, so there is nothing to share", "share_threshold")
		}
		unlimited := slices.Concat(d.path, []any{"rate_limit", "unlimited"})
		if d.RateLimit != nil && !doc.Refused(unlimited) {
			d.RateLimit.check(func(reason string, fields ...any) {
				refuse(reason, slices.Concat([]any{"rate_limit"}, fields)...)
			})
		}
		checkDescriptors(doc, d.Descriptors, d.path, append(slices.Clone(keys), d.Key))
		if first, ok := entries[[2]string{d.Key, d.Value}]; ok {
			refuse(fmt.Sprintf("descriptor: the same key and value as entry %d", first+1))
		}
		entries[[2]string{d.Key, d.Value}] = i
	}
}

// wrongKey says what is wrong with the key of a descriptor beneath others, or "".
func wrongKey(key string, keys []string) string {
	switch {
	case key == "":
		return "is missing or empty"
	case strings.Contains(key, "*"):
		return fmt.Sprintf("%.40q: wildcards are for values", key)
	case key == Domain:
		return fmt.Sprintf("%q is the attribute that tells files apart here", key)
	case slices.Contains(keys, key):
		return fmt.Sprintf("%.40q occurs twice on the way here; here a request has each "+
			"attribute once", key)
	}
	return ""
}

// check refuses limits of which something is missing, or too much is there.
func (l *limit) check(refuse func(reason string, fields ...any)) {
	switch {
	case l.Unlimited && l.Unit != 0:
		refuse("is for a limit, and this is unlimited", "unit")
	case !l.Unlimited && l.Unit == 0:
		refuse("is missing", "unit")
	}
	if !l.Unlimited && l.RequestsPerUnit == nil {
		refuse("is missing", "requests_per_unit")
	}
	for i, other := range l.Replaces {
		switch other.Name {
		case "":
			refuse("is missing or empty", "replaces", i, "name")
		case l.Name:
			refuse(fmt.Sprintf("%.40q is this one itself", l.Name), "replaces", i, "name")
		}
	}
}
