// Package status is what the parts of a fleet say of themselves, for people who look: each tells it every second or so, over core NATS, to
// whoever listens. Nothing depends on it: one that is lost is followed by the next.
//
// Subjects, below a namespace:
//
//	<ns>.status.v1.checker.<name>
//	<ns>.status.v1.aggregator.<name>
//
// A status is JSON. Fields are only added, unknown ones are ignored.
package status

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Bounds of a status.
const (
	// MaxSize is the most bytes of one.
	MaxSize = 512 << 10
	// MaxRules and MaxKeys are the most rules, and keys in a list.
	MaxRules, MaxKeys = 1000, 100

	// MaxText is the most bytes of a name or a key; what else is text is cut off there.
	MaxText = 1024

	maxName, maxRule = 160, 256
	// maxEvery is more than any fleet needs (Interval), in milliseconds: who were never silent would never be forgotten.
	maxEvery = 3_600_000
)

// Part is what all parts say.
type Part struct {
	// Name tells parts of one kind apart: a checker's name on NATS, which has its epoch in hex; anything that an aggregator has drawn.
	// It may have a dot in it.
	Name string `json:"name"`
	// Host, Version and Started say which process it is.
	Host    string    `json:"host"`
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	// Every is in how many milliseconds the next status can be expected.
	Every int64 `json:"every_ms"`
	// Leaving says that the part stops; there will be no other.
	Leaving bool `json:"leaving,omitempty"`
	// Problem is what is wrong with it, "" if nothing is.
	Problem string `json:"problem,omitempty"`
}

// Checker is what a checker says.
type Checker struct {
	Part
	// Freshness of what it knows of the fleet, and how many milliseconds ago it last heard of an aggregator; -1 for never.
	Freshness string `json:"freshness"`
	HeardAgo  int64  `json:"heard_ago_ms"`
	// RulesRevision and RulesDigest say which rules are in force.
	RulesRevision uint64 `json:"rules_revision"`
	RulesDigest   string `json:"rules_digest,omitempty"`
	// Unreported hits have been admitted, and no aggregator has answered for them yet.
	Unreported int64 `json:"unreported"`
	LiveKeys   int   `json:"live_keys"`
	// Blocks is how many keys are blocked at it.
	Blocks int `json:"blocks"`
	// WantsLog says that it writes its denials to the fleet's stream, which it may not create: an aggregator does.
	WantsLog bool `json:"wants_log,omitempty"`
	// Set are the rules in force, and those of overrides with a limit of their own; it is told now and then, and absent in between.
	Set []Rule `json:"set,omitempty"`
	// Rules are the counters that its /metrics has, by the same labels.
	Rules []Decisions `json:"rules"`
	// Denied are the keys that it has denied most in about the last minute.
	Denied Keys `json:"denied_keys"`
}

// Decisions are a rule's counters at a checker since it started.
type Decisions struct {
	Rule    string `json:"rule"`
	Allowed int64  `json:"allowed"`
	Denied  int64  `json:"denied"`
	Charged int64  `json:"charged"`
}

// Aggregator is what an aggregator says.
type Aggregator struct {
	Part
	Ready bool `json:"ready"`
	// Behind is how old in milliseconds the newest hits were, when the store had them, of the reports of the last time; -1 if there
	// were none.
	Behind int64 `json:"behind_ms"`
	// Waiting reports are not applied yet.
	Waiting int64 `json:"waiting"`
	// Reports received, folds applied, and calls of the store that failed, since it started.
	Reports int64 `json:"reports"`
	Folds   int64 `json:"folds"`
	Errors  int64 `json:"errors"`
	// Checkers is how many it hears, and Shards how many the fleet has.
	Checkers int `json:"checkers"`
	Shards   int `json:"shards"`
	// Loss is the last loss of data by the store that it has found out; absent if there was none.
	Loss *Loss `json:"loss,omitempty"`
	// Rules are those of which it has lately had reports.
	Rules []Rule `json:"rules"`
	// Used are the keys of which it has applied most hits in about the last minute.
	Used Keys `json:"used_keys"`
}

// Loss is a loss of a shard's data by the store.
type Loss struct {
	At    time.Time `json:"at"`
	Shard uint32    `json:"shard"`
	// Size says how much is lost, as far as it is known.
	Size string `json:"size"`
}

// Rule is a rule as reports describe it.
type Rule struct {
	Name string `json:"name"`
	// Of is the rule whose override this one is a counter of, absent if it is a rule itself; only checkers know.
	Of        string `json:"of,omitempty"`
	WindowMS  int64  `json:"window_ms"`
	Buckets   int    `json:"buckets"`
	Algorithm string `json:"algorithm"`
	Limit     int64  `json:"limit"`
	Burst     int64  `json:"burst,omitempty"`
	Revision  uint64 `json:"revision"`
	// Counted are the hits that this aggregator has applied since it started; absent where a checker tells of a rule.
	Counted int64 `json:"counted,omitempty"`
}

// Keys are the keys that came most.
type Keys struct {
	// Span is over how many milliseconds they were counted.
	Span int64 `json:"span_ms"`
	List []Key `json:"list"`
}

// Key is a key, and how often it came.
type Key struct {
	Rule  string `json:"rule"`
	Key   Text   `json:"key"`
	Count int64  `json:"count"`
}

// Text is any bytes. In JSON it is a string if it is UTF-8, and {"base64": "…"} if it is not.
type Text string

// MarshalJSON never fails.
func (t Text) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(t)) {
		return json.Marshal(string(t))
	}
	return json.Marshal(struct {
		Base64 []byte `json:"base64"`
	}{[]byte(t)})
}

// UnmarshalJSON reads both.
func (t *Text) UnmarshalJSON(data []byte) error {
	var text string
	err := json.Unmarshal(data, &text)
	if err == nil {
		*t = Text(text)
		return nil
	}
	var other struct {
		Base64 []byte `json:"base64"`
	}
	if json.Unmarshal(data, &other) != nil || other.Base64 == nil {
		return fmt.Errorf("want a string, or an object with base64: %w", err)
	}
	*t = Text(other.Base64)
	return nil
}

// ErrStatus is what the errors of what is no status are.
var ErrStatus = errors.New("not a status")

// DecodeChecker reads a checker's status.
func DecodeChecker(data []byte) (c Checker, err error) {
	if err = decode(data, &c); err == nil {
		cut(&c.Host, &c.Version, &c.Problem, &c.Freshness, &c.RulesDigest)
		names := func(yield func(string) bool) {
			for i := range c.Rules {
				if !yield(c.Rules[i].Rule) {
					return
				}
			}
			namesOf(c.Set)(yield)
		}
		err = check(c.Part, max(len(c.Rules), len(c.Set)), names, c.Denied)
	}
	return c, err
}

// DecodeAggregator reads an aggregator's status.
func DecodeAggregator(data []byte) (a Aggregator, err error) {
	if err = decode(data, &a); err == nil {
		cut(&a.Host, &a.Version, &a.Problem)
		if a.Loss != nil {
			cut(&a.Loss.Size)
		}
		err = check(a.Part, len(a.Rules), namesOf(a.Rules), a.Used)
	}
	return a, err
}

func decode(data []byte, to any) error {
	if len(data) > MaxSize {
		return fmt.Errorf("%w: %d bytes", ErrStatus, len(data))
	}
	if err := json.Unmarshal(data, to); err != nil {
		return fmt.Errorf("%w: %w", ErrStatus, err)
	}
	return nil
}

func namesOf(rules []Rule) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range rules {
			if !yield(rules[i].Name) || !yield(rules[i].Of) || !yield(rules[i].Algorithm) {
				return
			}
		}
	}
}

// check refuses what no part says. Whoever has the password of one checker can say anything in its name, which everybody keeps, and
// consoles and terminals show.
func check(p Part, rules int, names iter.Seq[string], keys Keys) error {
	switch {
	case p.Name == "" || len(p.Name) > maxName || !printable(p.Name):
		return fmt.Errorf("%w: a name of %d bytes", ErrStatus, len(p.Name))
	case rules > MaxRules || len(keys.List) > MaxKeys || keys.Span < 0 || p.Every < 0 || p.Every > maxEvery:
		return fmt.Errorf("%w: %d rules, %d keys in %d ms, every %d ms", ErrStatus, rules, len(keys.List), keys.Span, p.Every)
	}
	for name := range names {
		if len(name) > maxRule || !printable(name) {
			return fmt.Errorf("%w: a rule's name or algorithm of %d bytes", ErrStatus, len(name))
		}
	}
	for _, k := range keys.List {
		if len(k.Rule) > maxRule || !printable(k.Rule) || len(k.Key) > MaxText {
			return fmt.Errorf("%w: a key of %d bytes of a rule of %d", ErrStatus, len(k.Key), len(k.Rule))
		}
	}
	return nil
}

func printable(text string) bool {
	return !strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) })
}

// cut cuts texts that are too long. What is left is a copy, or it would keep the whole status in memory.
func cut(texts ...*string) {
	for _, t := range texts {
		if len(*t) > MaxText {
			*t = strings.Clone(strings.ToValidUTF8((*t)[:MaxText], ""))
		}
	}
}
