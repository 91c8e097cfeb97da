package envoyrules

import (
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/offpath-io/offpath/pkg/rules/internal/node"
)

// file is a domain with its descriptors.
type file struct {
	domain      string
	descriptors []*descriptor
}

// descriptor is one step on the way to rate limits, and maybe has one itself.
type descriptor struct {
	at       *yaml.Node
	key      string
	value    string // empty: any
	limit    *limit // or nil
	shadow   bool
	share    bool // all values that match a wildcard share one counter
	children []*descriptor
}

// limit is a rate limit.
type limit struct {
	requests  int64
	unit      time.Duration
	unlimited bool
	name      string
	replaces  []string
}

const day = 24 * time.Hour

// units are as long as envoyproxy/ratelimit has them.
var units = map[string]time.Duration{
	"second": time.Second, "minute": time.Minute, "hour": time.Hour, "day": day, "week": 7 * day, "month": 30 * day, "year": 365 * day,
}

func readFile(root *yaml.Node) (*file, error) {
	root, err := expand(root)
	if err != nil {
		return nil, err
	}
	fields, err := node.Fields(root, "file", []string{"domain", "descriptors"}, "domain")
	if err != nil {
		return nil, err
	}
	domain := node.ValueOf(fields, "domain")
	f := &file{}
	if f.domain, err = readScalar(domain, "domain"); err != nil {
		return nil, err
	}
	if f.domain == "" {
		return nil, node.Errorf(domain, "domain: is empty")
	}
	f.descriptors, err = readDescriptors(node.ValueOf(fields, "descriptors"), []string{Domain})
	return f, err
}

// readDescriptors reads a list of descriptors under those whose keys are given. There may be none.
func readDescriptors(at *yaml.Node, keys []string) ([]*descriptor, error) {
	if at == nil || at.Tag == "!!null" {
		return nil, nil
	}
	if err := node.Kind(at, "descriptors", yaml.SequenceNode); err != nil {
		return nil, err
	}
	list := make([]*descriptor, len(at.Content))
	lines := make(map[[2]string]int, len(list))
	for i, one := range at.Content {
		d, err := readDescriptor(one, keys)
		if err != nil {
			return nil, err
		}
		if line, ok := lines[[2]string{d.key, d.value}]; ok {
			return nil, node.Errorf(one, "descriptor: the same key and value as on line %d", line)
		}
		lines[[2]string{d.key, d.value}] = one.Line
		list[i] = d
	}
	return list, nil
}

// descriptorFields are what a descriptor may have. Those about metrics alone, and metadata, have no effect here.
var descriptorFields = []string{"key", "value", "rate_limit", "descriptors", "shadow_mode", "share_threshold",
	"quota_mode", "detailed_metric", "value_to_metric", "metadata"}

func readDescriptor(at *yaml.Node, keys []string) (*descriptor, error) {
	fields, err := node.Fields(at, "descriptor", descriptorFields, "key")
	if err != nil {
		return nil, err
	}
	d := &descriptor{at: at}
	if d.key, err = readKey(node.ValueOf(fields, "key"), keys); err != nil {
		return nil, err
	}
	for _, f := range fields {
		switch f.Name {
		case "value":
			d.value, err = readValue(f.Value)
		case "rate_limit":
			d.limit, err = readLimit(f.Value)
		case "shadow_mode":
			d.shadow, err = readTruth(f.Value, f.Name)
		case "share_threshold":
			d.share, err = readTruth(f.Value, f.Name)
		case "quota_mode":
			err = readQuota(f.Value)
		case "descriptors":
			d.children, err = readDescriptors(f.Value, append(keys[:len(keys):len(keys)], d.key))
		}
		if err != nil {
			return nil, err
		}
	}
	if d.share && !strings.HasSuffix(d.value, "*") {
		return nil, node.Errorf(node.ValueOf(fields, "share_threshold"), "share_threshold: the value is no wildcard, so there is nothing to share")
	}
	return d, nil
}

func readKey(at *yaml.Node, keys []string) (string, error) {
	key, err := readScalar(at, "key")
	if err != nil {
		return "", err
	}
	switch {
	case key == "":
		return "", node.Errorf(at, "key: is empty")
	case strings.Contains(key, "*"):
		return "", node.Errorf(at, "key: %.40q: wildcards are for values", key)
	case key == Domain:
		return "", node.Errorf(at, "key: %q is the attribute that tells files apart here", key)
	}
	for _, before := range keys {
		if before == key {
			return "", node.Errorf(at, "key: %.40q occurs twice on the way here; here a request has each attribute once", key)
		}
	}
	return key, nil
}

func readValue(at *yaml.Node) (string, error) {
	value, err := readScalar(at, "value")
	if err != nil {
		return "", err
	}
	if star := strings.IndexByte(value, '*'); star >= 0 && star < len(value)-1 {
		return "", node.Errorf(at, "value: %.40q: a wildcard is supported at the end alone", value)
	}
	return value, nil
}

func readQuota(at *yaml.Node) error {
	quota, err := readTruth(at, "quota_mode")
	if err == nil && quota {
		return node.Errorf(at, "quota_mode: is not supported")
	}
	return err
}

func readLimit(at *yaml.Node) (*limit, error) {
	if at.Tag == "!!null" {
		return nil, nil
	}
	fields, err := node.Fields(at, "rate_limit", []string{"unit", "requests_per_unit", "unlimited", "name", "replaces"})
	if err != nil {
		return nil, err
	}
	l := &limit{}
	for _, f := range fields {
		switch f.Name {
		case "unit":
			l.unit, err = readUnit(f.Value)
		case "requests_per_unit":
			l.requests, err = readRequests(f.Value)
		case "unlimited":
			l.unlimited, err = readTruth(f.Value, f.Name)
		case "name":
			l.name, err = readScalar(f.Value, f.Name)
		case "replaces":
			l.replaces, err = readReplaces(f.Value)
		}
		if err != nil {
			return nil, err
		}
	}
	return l, l.check(at, fields)
}

// check refuses limits of which something is missing, or too much is there.
func (l *limit) check(at *yaml.Node, fields []node.Field) error {
	unit, requests := node.ValueOf(fields, "unit"), node.ValueOf(fields, "requests_per_unit")
	switch {
	case l.unlimited && unit != nil:
		return node.Errorf(unit, "rate_limit: unit: is for a limit, and this is unlimited")
	case !l.unlimited && unit == nil:
		return node.Errorf(at, "rate_limit: unit: is missing")
	case !l.unlimited && requests == nil:
		return node.Errorf(at, "rate_limit: requests_per_unit: is missing")
	}
	for _, name := range l.replaces {
		if name == l.name {
			return node.Errorf(node.ValueOf(fields, "replaces"), "rate_limit: replaces: %.40q is this one itself", name)
		}
	}
	return nil
}

func readUnit(at *yaml.Node) (time.Duration, error) {
	text, err := readScalar(at, "rate_limit: unit")
	if err != nil {
		return 0, err
	}
	unit, ok := units[strings.ToLower(text)]
	if !ok {
		return 0, node.Errorf(at, "rate_limit: unit: %.40q: want second, minute, hour, day, week, month or year", text)
	}
	return unit, nil
}

func readRequests(at *yaml.Node) (int64, error) {
	if err := node.Kind(at, "rate_limit: requests_per_unit", yaml.ScalarNode); err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(at.Value, 10, 32)
	if at.Tag != "!!int" || err != nil || strconv.FormatUint(n, 10) != at.Value {
		return 0, node.Errorf(at, "rate_limit: requests_per_unit: %.40q: want a whole number from 0 to 4294967295", at.Value)
	}
	return int64(n), nil
}

func readReplaces(at *yaml.Node) ([]string, error) {
	const what = "rate_limit: replaces"
	if err := node.Kind(at, what, yaml.SequenceNode); err != nil {
		return nil, err
	}
	var names []string
	for _, one := range at.Content {
		fields, err := node.Fields(one, what, []string{"name"}, "name")
		if err != nil {
			return nil, err
		}
		name, err := readScalar(fields[0].Value, what+": name")
		if err != nil {
			return nil, err
		}
		if name == "" {
			return nil, node.Errorf(fields[0].Value, "%s: name: is empty", what)
		}
		names = append(names, name)
	}
	return names, nil
}

// readScalar reads any single value as it is written, as envoyproxy/ratelimit does: value: 404 is "404". Nothing is empty.
func readScalar(at *yaml.Node, what string) (string, error) {
	if err := node.Kind(at, what, yaml.ScalarNode); err != nil {
		return "", err
	}
	if at.Tag == "!!null" {
		return "", nil
	}
	return at.Value, nil
}

// readTruth reads a truth value, in the words of YAML 1.1, which envoyproxy/ratelimit reads.
func readTruth(at *yaml.Node, what string) (bool, error) {
	if err := node.Kind(at, what, yaml.ScalarNode); err != nil {
		return false, err
	}
	switch strings.ToLower(at.Value) {
	case "true", "yes", "on":
		return true, nil
	case "false", "no", "off":
		return false, nil
	}
	return false, node.Errorf(at, "%s: %.40q: want true or false", what, at.Value)
}
