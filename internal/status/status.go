// Package status carries the statuses of a fleet's checkers and aggregators to its consoles: each
// part publishes its status about every second, over core NATS. No decision depends on a status;
// one that is lost is replaced by the next.
//
// Subjects, below a namespace:
//
//	<ns>.status.v1.checker.<name>
//	<ns>.status.v1.aggregator.<name>
//
// A status is JSON. Fields are only added, unknown ones are ignored.
package status

import (
	"cmp"
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

	// MaxText is the most bytes of a name or a key; other texts are cut off there.
	MaxText = 1024

	// MaxCount bounds counts: a million a second for 30 years. It keeps the sums of all counts of a
	// status within an int64. Greater ones are cut off there: hits may cost as much each.
	MaxCount = 1e15

	maxName, maxRule = 160, 256
	// maxEvery is more than any fleet needs (Interval), in milliseconds. A part with an unbounded
	// interval would never count as silent, and would never be forgotten.
	maxEvery = 3_600_000
)

// Part is what the statuses of checkers and aggregators have in common.
type Part struct {
	// Name is unique among parts of one kind: a checker's name on NATS, which ends with its epoch
	// in hex, or a name that an aggregator has drawn. It may contain a dot.
	Name string `json:"name"`
	// Host, Version and Started identify the process.
	Host    string    `json:"host"`
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	// Every is the time until the next status, in milliseconds.
	Every int64 `json:"every_ms"`
	// Leaving says that the part stops: this is its last status.
	Leaving bool `json:"leaving,omitempty"`
	// Problem says what is wrong, "" if nothing is.
	Problem string `json:"problem,omitempty"`
}

// Checker is the status of a checker.
type Checker struct {
	Part
	// Freshness is its degradation level, that of its worst shard. HeardAgo is the time since it
	// last received a message from an aggregator, in milliseconds; -1 for never.
	Freshness string `json:"freshness"`
	HeardAgo  int64  `json:"heard_ago_ms"`
	// RulesRevision and RulesDigest identify the rules in force.
	RulesRevision uint64 `json:"rules_revision"`
	RulesDigest   string `json:"rules_digest,omitempty"`
	// Unreported is the number of admitted hits that no aggregator has answered for yet.
	Unreported int64 `json:"unreported"`
	LiveKeys   int   `json:"live_keys"`
	// Blocks is the number of blocked keys.
	Blocks int `json:"blocks"`
	// WantsLog asks an aggregator to create the stream of the decision log, which this checker
	// writes to and may not create.
	WantsLog bool `json:"wants_log,omitempty"`
	// Set describes the rules in force, and the overrides with a limit of their own. Most statuses
	// leave it out.
	Set []Rule `json:"set,omitempty"`
	// Rules are the counters of /metrics, by the same labels.
	Rules []Decisions `json:"rules"`
	// Denied are the keys that were denied most in about the last minute.
	Denied Keys `json:"denied_keys"`
}

// Decisions are the counters of a rule at one checker since it started.
type Decisions struct {
	Rule    string `json:"rule"`
	Allowed int64  `json:"allowed"`
	Denied  int64  `json:"denied"`
	Charged int64  `json:"charged"`
	// False is the estimated number of false denials, Lost that of hits that passed and that no
	// aggregator will count.
	False int64 `json:"falsely_denied,omitempty"`
	Lost  int64 `json:"lost,omitempty"`
}

// Aggregator is the status of an aggregator.
type Aggregator struct {
	Part
	Ready bool `json:"ready"`
	// Behind is the age of the newest hits of the latest reports when the store had applied them,
	// in milliseconds; -1 if there were no reports since the last status.
	Behind int64 `json:"behind_ms"`
	// Waiting is the number of reports that are not applied yet.
	Waiting int64 `json:"waiting"`
	// Reports received, batches applied, and failed calls of the store, since it started.
	Reports int64 `json:"reports"`
	Folds   int64 `json:"folds"`
	Errors  int64 `json:"errors"`
	// Checkers is the number of checkers it hears, Shards the number of shards of the fleet.
	Checkers int `json:"checkers"`
	Shards   int `json:"shards"`
	// Loss is the last loss of data by the store that it has detected; absent if there was none.
	Loss *Loss `json:"loss,omitempty"`
	// Rules are the rules of recent reports.
	Rules []Rule `json:"rules"`
	// Used are the keys with the most applied hits in about the last minute.
	Used Keys `json:"used_keys"`
	// Near are the keys that were near their limit, or beyond it, in about the last minute.
	Near []Near `json:"near_keys,omitempty"`
	// Uncounted is how often a new key was not counted for want of room, since it started.
	Uncounted int64 `json:"uncounted_keys,omitempty"`
}

// Near is a key near its limit, and its count as of its last report.
type Near struct {
	Rule  string  `json:"rule"`
	Key   Text    `json:"key"`
	Count float64 `json:"count"`
	Limit int64   `json:"limit"`
}

// Loss is a loss of a shard's data by the store.
type Loss struct {
	At    time.Time `json:"at"`
	Shard uint32    `json:"shard"`
	// Size says how much is lost, as far as is known.
	Size string `json:"size"`
}

// Rule is a rule as reports describe it.
type Rule struct {
	Name string `json:"name"`
	// Of is the rule whose override this is; absent for a rule itself. Only checkers set it.
	Of        string `json:"of,omitempty"`
	WindowMS  int64  `json:"window_ms"`
	Buckets   int    `json:"buckets"`
	Algorithm string `json:"algorithm"`
	Limit     int64  `json:"limit"`
	Burst     int64  `json:"burst,omitempty"`
	Revision  uint64 `json:"revision"`
	// Counted is the number of hits that this aggregator has applied since it started. Checkers
	// leave it out.
	Counted int64 `json:"counted,omitempty"`
	// Over is the estimated number of hits beyond the limit that it has applied since it started.
	Over float64 `json:"over_admitted,omitempty"`
}

// Keys are the most frequent keys.
type Keys struct {
	// Span is the time over which they were counted, in milliseconds.
	Span int64 `json:"span_ms"`
	List []Key `json:"list"`
}

// Key is a key and its frequency.
type Key struct {
	Rule  string `json:"rule"`
	Key   Text   `json:"key"`
	Count int64  `json:"count"`
}

// Text may be any bytes. In JSON it is a string if it is UTF-8, and {"base64": "…"} if it is not.
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

// ErrStatus is wrapped by the errors of DecodeChecker and DecodeAggregator.
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
		for i := range c.Rules {
			r := &c.Rules[i]
			err = cmp.Or(err, cutCounts(&r.Allowed, &r.Denied, &r.False, &r.Lost))
		}
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
		near := Keys{}
		for _, k := range a.Near {
			near.List = append(near.List, Key{Rule: k.Rule, Key: k.Key})
		}
		err = cmp.Or(err, check(a.Part, 0, namesOf(nil), near))
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

// check refuses statuses that no part sends, and cuts off the keys' counts.
// With the password of one checker, anybody can send
// statuses in its name, which consoles keep and show, and terminals print.
func check(p Part, rules int, names iter.Seq[string], keys Keys) error {
	switch {
	case p.Name == "" || len(p.Name) > maxName || !printable(p.Name):
		return fmt.Errorf("%w: a name of %d bytes", ErrStatus, len(p.Name))
	case rules > MaxRules || len(keys.List) > MaxKeys || keys.Span < 0,
		p.Every < 0, p.Every > maxEvery:
		return fmt.Errorf("%w: %d rules, %d keys in %d ms, every %d ms",
			ErrStatus, rules, len(keys.List), keys.Span, p.Every)
	}
	for name := range names {
		if len(name) > maxRule || !printable(name) {
			return fmt.Errorf("%w: a rule's name or algorithm of %d bytes", ErrStatus, len(name))
		}
	}
	for i := range keys.List {
		k := &keys.List[i]
		if len(k.Rule) > maxRule || !printable(k.Rule) || len(k.Key) > MaxText {
			return fmt.Errorf("%w: a key of %d bytes of a rule of %d",
				ErrStatus, len(k.Key), len(k.Rule))
		}
		if err := cutCounts(&k.Count); err != nil {
			return err
		}
	}
	return nil
}

// cutCounts cuts off counts, and refuses those that nobody counts.
func cutCounts(counts ...*int64) error {
	for _, n := range counts {
		if *n < 0 {
			return fmt.Errorf("%w: a count of %d", ErrStatus, *n)
		}
		*n = min(*n, MaxCount)
	}
	return nil
}

func printable(text string) bool {
	return !strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) })
}

// cut truncates texts that are too long. It copies what remains: a substring would keep the whole
// status in memory.
func cut(texts ...*string) {
	for _, t := range texts {
		if len(*t) > MaxText {
			*t = strings.Clone(strings.ToValidUTF8((*t)[:MaxText], ""))
		}
	}
}
