package events

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"unicode"
)

// AddKey appends a key with no cells yet; rule is its index in t.Rules.
func (t *Table) AddKey(rule uint32, key string) {
	t.KeyText = append(t.KeyText, key...)
	t.KeyLength = append(t.KeyLength, uint32(len(key)))
	t.KeyRule = append(t.KeyRule, rule)
	t.KeyCells = append(t.KeyCells, 0)
	if len(t.Level) > 0 {
		t.LevelAge, t.Level = append(t.LevelAge, 0), append(t.Level, 0)
	}
}

// SetLevel gives the key added last a settled level, as of the end of the bucket that is age
// buckets older than the newest of the key's rule.
func (t *Table) SetLevel(age int64, parts uint64) {
	for len(t.Level) < t.Keys() { // those before it have none
		t.LevelAge, t.Level = append(t.LevelAge, 0), append(t.Level, 0)
	}
	t.LevelAge[t.Keys()-1], t.Level[t.Keys()-1] = age, parts
}

// AddCell appends a cell to the key added last: value for the bucket that is age buckets older than
// the newest of the key's rule.
func (t *Table) AddCell(age int64, value uint64) {
	t.KeyCells[len(t.KeyCells)-1]++
	t.Age = append(t.Age, age)
	t.Value = append(t.Value, value)
}

// Clear empties the table and keeps its memory, so that one table serves report after report.
func (t *Table) Clear() {
	clear(t.Rules)
	t.Rules = t.Rules[:0]
	t.KeyText = t.KeyText[:0]
	t.KeyLength = t.KeyLength[:0]
	t.KeyRule = t.KeyRule[:0]
	t.KeyCells = t.KeyCells[:0]
	t.Age = t.Age[:0]
	t.Value = t.Value[:0]
	t.LevelAge, t.Level = t.LevelAge[:0], t.Level[:0]
}

// Keys returns the number of keys.
func (t *Table) Keys() int { return len(t.KeyLength) }

// check holds the columns against each other and every value against its bounds.
func (t *Table) check() error {
	if len(t.Rules) > MaxRules {
		return fmt.Errorf("%w: %d", ErrRules, len(t.Rules))
	}
	if t.Keys() > MaxKeys {
		return malformed("%d keys", t.Keys())
	}
	if len(t.KeyRule) != t.Keys() || len(t.KeyCells) != t.Keys() {
		return malformed("%d keys, %d rule indices, %d cell counts", t.Keys(), len(t.KeyRule), len(t.KeyCells))
	}
	for _, r := range t.Rules {
		if err := r.check(); err != nil {
			return err
		}
	}
	text := uint64(0)
	for i, n := range t.KeyLength {
		if n > MaxKeyLength {
			return malformed("key %d has %d bytes", i, n)
		}
		if int64(t.KeyRule[i]) >= int64(len(t.Rules)) {
			return malformed("key %d is of rule %d of %d", i, t.KeyRule[i], len(t.Rules))
		}
		text += uint64(n)
	}
	if text != uint64(len(t.KeyText)) {
		return malformed("keys have %d bytes, their lengths say %d", len(t.KeyText), text)
	}
	return cmp.Or(checkLevels(t.LevelAge, t.Level, t.Keys()), checkCells(t.KeyCells, t.Age, t.Value))
}

func (r *Rule) check() error {
	switch {
	case r == nil || r.Name == "" || len(r.Name) > MaxRuleName:
		return malformed("rule without a name, or one of more than %d bytes", MaxRuleName)
	case strings.ContainsFunc(r.Name, unicode.IsControl):
		return malformed("rule %q: a control character in its name", r.Name)
	case r.WindowMs == 0 || r.WindowMs > uint64(MaxWindow.Milliseconds()):
		return malformed("rule %q: window of %d ms", r.Name, r.WindowMs)
	case r.Buckets == 0 || r.Buckets > MaxBuckets || r.WindowMs%uint64(r.Buckets) != 0:
		return malformed("rule %q: %d ms in %d buckets", r.Name, r.WindowMs, r.Buckets)
	case r.Algorithm < Algorithm_SLIDING_WINDOW || r.Algorithm > Algorithm_LEAKY_BUCKET:
		return fmt.Errorf("%w: rule %q: %d", ErrAlgorithm, r.Name, r.Algorithm)
	case r.Algorithm == Algorithm_FIXED_WINDOW && r.Buckets != 1:
		return malformed("rule %q: a fixed window of %d buckets", r.Name, r.Buckets)
	case r.Limit > MaxCount:
		return malformed("rule %q: limit %d", r.Name, r.Limit)
	case !r.settleKind():
		return malformed("rule %q: both denied and refunded hits", r.Name)
	case r.drains() && (r.Limit == 0 || r.Burst == 0 || r.Burst > MaxCount):
		return malformed("rule %q: limit %d, burst %d", r.Name, r.Limit, r.Burst)
	case r.Newest > maxBucketNumber || r.Newest < -maxBucketNumber:
		return malformed("rule %q: bucket %d", r.Name, r.Newest)
	}
	return nil
}

// settleKind makes the kind what parts of before there were kinds say it is, and returns false if
// that contradicts itself.
func (r *Rule) settleKind() bool {
	switch {
	case r.Denied && (r.Refunded || r.Kind == RowKind_REFUNDED) || r.Refunded && r.Kind == RowKind_DENIED:
		return false
	case r.Denied:
		r.Kind = RowKind_DENIED
	case r.Refunded:
		r.Kind = RowKind_REFUNDED
	}
	return true
}

func (r *Rule) drains() bool {
	return r.Algorithm == Algorithm_TOKEN_BUCKET || r.Algorithm == Algorithm_LEAKY_BUCKET
}

// checkLevels checks columns of settled levels: none, or one for each key.
func checkLevels(age []int64, level []uint64, keys int) error {
	if len(age) != len(level) || len(level) != 0 && len(level) != keys {
		return malformed("%d levels, %d ages of levels for %d keys", len(level), len(age), keys)
	}
	for _, parts := range level {
		if parts > MaxLevel {
			return malformed("level of %d parts", parts)
		}
	}
	return checkAges(age)
}

func checkCells(perKey []uint32, age []int64, value []uint64) error {
	cells := uint64(0)
	for _, n := range perKey {
		cells += uint64(n)
	}
	if cells > MaxCells || cells != uint64(len(age)) || len(age) != len(value) {
		return malformed("%d cells, %d ages, %d values", cells, len(age), len(value))
	}
	return cmp.Or(checkAges(age), checkCounts("cell", value))
}

func checkAges(age []int64) error {
	for _, a := range age {
		if a > maxBucketNumber || a < -maxBucketNumber {
			return malformed("a bucket %d older than the newest", a)
		}
	}
	return nil
}

func checkCounts(what string, counts []uint64) error {
	for _, n := range counts {
		if n > MaxCount {
			return malformed("%s of %d", what, n)
		}
	}
	return nil
}

// Count converts a count to the wire's type; a negative one, which only a bug could make, is 0.
func Count(n int64) uint64 {
	if n < 0 {
		return 0
	}
	return uint64(min(n, math.MaxInt64))
}

// KeyHash returns the hash that decides to which shard a rule's key belongs, on every checker and
// in every version: 64-bit FNV-1a over the rule's name, a zero byte and the key, then the finaliser
// of SplitMix64, because FNV alone leaves the upper bits of short keys alike.
func KeyHash(rule, key string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(rule) {
		h = (h ^ uint64(rule[i])) * 1099511628211
	}
	h *= 1099511628211 // the zero byte
	for i := range len(key) {
		h = (h ^ uint64(key[i])) * 1099511628211
	}
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// Shard returns the shard, of as many, that a rule's key belongs to.
func Shard(rule, key string, shards uint32) uint32 {
	return uint32(KeyHash(rule, key) % uint64(shards))
}
