// Package entries keeps what operators decide about single keys, for a time, in a NATS JetStream
// key-value bucket, and watches it there: at present blocks, which keep a key out until they end.
//
// The bucket is called NAMESPACE-entries, and is the truth: a checker that starts learns of all
// blocks, and a change reaches every checker within milliseconds. Each entry is a value of its own,
// under a hash of its rule and key. Entries that have ended stay until a [Bucket.Sweep]; nobody
// minds them.
//
// Entries can be signed (package signature). A reader with public keys takes what is signed, and
// keeps it until it ends or a signed entry of a higher version takes its place: so a block is
// lifted by an entry that says so, and not by a deletion.
package entries

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Bounds of entries.
const (
	// MaxRule and MaxKey are the most bytes of a rule's name and of a key.
	MaxRule, MaxKey = 128, 512
	// MaxBy is the most bytes of the name of who has made an entry; the rest is cut off.
	MaxBy = 128
	// MaxSpan is how long an entry may hold.
	MaxSpan = 366 * 24 * time.Hour
	// Most is how many entries a bucket takes.
	Most = 10_000
)

// ErrEntry is what the errors of entries that cannot be are.
var ErrEntry = errors.New("not an entry")

// Entry blocks a key.
type Entry struct {
	// Rule and Key are whom the entry is about: the rule's name, and the key's text as the rule makes it or, where a fleet hashes its
	// keys, its hash. Key may be any bytes.
	Rule, Key string
	// Until is when it ends.
	Until time.Time
	// By is who has made it, and At when.
	By string
	At time.Time
}

// Check returns an error that is ErrEntry unless the entry can be.
func (e Entry) Check() error {
	switch {
	case e.Rule == "" || len(e.Rule) > MaxRule || !utf8.ValidString(e.Rule):
		return fmt.Errorf("%w: a rule's name of %d bytes: want 1 to %d of UTF-8", ErrEntry, len(e.Rule), MaxRule)
	case len(e.Key) > MaxKey:
		return fmt.Errorf("%w: a key of %d bytes: want at most %d", ErrEntry, len(e.Key), MaxKey)
	case e.Until.Sub(e.At) <= 0:
		return fmt.Errorf("%w: it ends before it begins", ErrEntry)
	case e.Until.Sub(e.At) > MaxSpan:
		return fmt.Errorf("%w: it would hold for %v: want at most %v", ErrEntry, e.Until.Sub(e.At), MaxSpan)
	}
	return nil
}

// Ended says whether the entry holds no longer.
func (e Entry) Ended(now time.Time) bool { return !now.Before(e.Until) }

// Actions of entries. Who does not know one passes over the entry, so that to a version from before
// there were signatures, too, a key is not blocked whose block has been lifted.
const (
	block   = "block"
	unblock = "unblock"
)

// wire is an entry as the bucket has it. A key that is not UTF-8 is in base64.
type wire struct {
	Action string    `json:"action"`
	Rule   string    `json:"rule"`
	Key    string    `json:"key,omitempty"`
	Key64  []byte    `json:"key_base64,omitempty"`
	Until  time.Time `json:"until"`
	By     string    `json:"by,omitempty"`
	At     time.Time `json:"at"`
}

// encode makes the value of an entry.
func encode(e Entry) ([]byte, error) {
	if err := e.Check(); err != nil {
		return nil, err
	}
	w := wireOf(block, e.Rule, e.Key)
	w.Until, w.By, w.At = e.Until.UTC(), strings.ToValidUTF8(cut(e.By, MaxBy), "?"), e.At.UTC()
	return json.Marshal(w)
}

// encodeLift makes the value of an entry that lifts the block of a key.
func encodeLift(rule, key string, now time.Time) ([]byte, error) {
	w := wireOf(unblock, rule, key)
	w.At = now.UTC()
	return json.Marshal(w)
}

func wireOf(action, rule, key string) wire {
	w := wire{Action: action, Rule: rule}
	if utf8.ValidString(key) {
		w.Key = key
	} else {
		w.Key64 = []byte(key)
	}
	return w
}

// errUnknown is an entry of a kind that this version does not know.
var errUnknown = errors.New("an entry of another kind")

// decode reads the value of an entry.
func decode(data []byte) (Entry, error) {
	var w wire
	if err := json.Unmarshal(data, &w); err != nil {
		return Entry{}, fmt.Errorf("%w: %w", ErrEntry, err)
	}
	if w.Action != block {
		return Entry{}, fmt.Errorf("%w: %.20q", errUnknown, w.Action)
	}
	e := Entry{Rule: w.Rule, Key: w.Key, Until: w.Until, By: cut(w.By, MaxBy), At: w.At}
	if w.Key64 != nil {
		e.Key = string(w.Key64)
	}
	return e, e.Check()
}

// mark is what comes between an entry's value without its last brace and its signature.
const mark = `,"signature":"`

// join makes the bucket's value of an entry's and its signature's, as a field of it.
func join(data []byte, signed string) []byte {
	return slices.Concat(bytes.TrimSuffix(data, []byte("}")), []byte(mark+signed+`"}`))
}

// split takes a bucket's value apart; the signature is "" if there is none.
func split(value []byte) (data []byte, signed string) {
	i := bytes.LastIndex(value, []byte(mark))
	if i < 0 {
		return value, ""
	}
	signed, found := strings.CutSuffix(string(value[i+len(mark):]), `"}`)
	if !found {
		return value, ""
	}
	return append(value[:i:i], '}'), signed
}

func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "")
}

// name is under which the bucket has the entry of a rule and a key: names may not be any text.
func name(rule, key string) string {
	sum := sha256.Sum256([]byte(fmt.Sprintf("%d %s%s", len(rule), rule, key)))
	return base64.RawURLEncoding.EncodeToString(sum[:18])
}

// sorted returns those entries that hold, in the order of their ends; of equal ones in that of rule and key.
func sorted(all map[string]Entry, now time.Time) []Entry {
	list := make([]Entry, 0, len(all))
	for _, e := range all {
		if !e.Ended(now) {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(a, b Entry) int {
		return cmp.Or(a.Until.Compare(b.Until), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Key, b.Key))
	})
	return list
}
