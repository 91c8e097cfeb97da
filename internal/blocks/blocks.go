// Package blocks keeps the blocks of single keys in a NATS JetStream key-value bucket, and watches
// them there. A block keeps a key out until it ends, whatever the rules say.
//
// The bucket is called NAMESPACE-entries, and is the truth: a checker that starts learns of all
// blocks, and a change reaches every checker within milliseconds. Each block is an entry of its
// own, under a hash of its rule and key. Entries of blocks that have ended stay until a
// [Bucket.Sweep]; they change nothing.
//
// Entries can be signed (package signature). A reader with public keys takes signed ones only, and
// keeps each until it ends or a signed entry of a higher version takes its place: so a block is
// lifted by an entry that says so, and not by a deletion.
package blocks

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

	"github.com/offpath-io/offpath/pkg/signature"
)

// Bounds of blocks.
const (
	// MaxRule and MaxKey are the most bytes of a rule's name and of a key.
	MaxRule, MaxKey = 128, 512
	// MaxBy is the most bytes of Block.By; the rest is cut off.
	MaxBy = 128
	// MaxSpan is how long a block may last.
	MaxSpan = 366 * 24 * time.Hour
	// Most is how many blocks a bucket takes.
	Most = 10_000
)

// ErrBlock is wrapped by the errors of invalid blocks.
var ErrBlock = errors.New("not a block")

// Block keeps one key of one rule out until it ends.
type Block struct {
	// Rule is the name of the rule. Key is the key's text, or its hash where the fleet hashes keys;
	// it may be any bytes.
	Rule, Key string
	// Until is when the block ends.
	Until time.Time
	// By names the operator, and At is when the block was made.
	By string
	At time.Time
}

// Check returns an error that wraps ErrBlock if the block is invalid.
func (e Block) Check() error {
	switch {
	case e.Rule == "" || len(e.Rule) > MaxRule || !utf8.ValidString(e.Rule):
		return fmt.Errorf("%w: a rule's name of %d bytes: want 1 to %d of UTF-8",
			ErrBlock, len(e.Rule), MaxRule)
	case len(e.Key) > MaxKey:
		return fmt.Errorf("%w: a key of %d bytes: want at most %d", ErrBlock, len(e.Key), MaxKey)
	case e.Until.Sub(e.At) <= 0:
		return fmt.Errorf("%w: it ends before it begins", ErrBlock)
	case e.Until.Sub(e.At) > MaxSpan:
		return fmt.Errorf("%w: it would hold for %v: want at most %v",
			ErrBlock, e.Until.Sub(e.At), MaxSpan)
	}
	return nil
}

// Ended reports whether the block is over.
func (e Block) Ended(now time.Time) bool { return !now.Before(e.Until) }

// Actions of entries. A version that does not know an action skips the entry: so to versions from
// before signatures, too, a lifted block is no block.
const (
	block   = "block"
	unblock = "unblock"
)

// wire is an entry in the bucket. A key that is not UTF-8 is in base64.
type wire struct {
	Action string    `json:"action"`
	Rule   string    `json:"rule"`
	Key    string    `json:"key,omitempty"`
	Key64  []byte    `json:"key_base64,omitempty"`
	Until  time.Time `json:"until"`
	By     string    `json:"by,omitempty"`
	At     time.Time `json:"at"`
}

// encode makes the value of a block.
func encode(e Block) ([]byte, error) {
	if err := e.Check(); err != nil {
		return nil, err
	}
	w := wireOf(block, e.Rule, e.Key)
	w.Until, w.By, w.At = e.Until.UTC(), strings.ToValidUTF8(cut(e.By, MaxBy), "?"), e.At.UTC()
	return json.Marshal(w)
}

// encodeLift makes the value of an entry that lifts a block.
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

// errUnknown says that an entry is not a block: it lifts one, or its action is unknown.
var errUnknown = errors.New("an entry of another kind")

// decode reads the value of a block.
func decode(data []byte) (Block, error) {
	var w wire
	if err := json.Unmarshal(data, &w); err != nil {
		return Block{}, fmt.Errorf("%w: %w", ErrBlock, err)
	}
	if w.Action != block {
		return Block{}, fmt.Errorf("%w: %.20q", errUnknown, w.Action)
	}
	e := Block{Rule: w.Rule, Key: w.Key, Until: w.Until, By: cut(w.By, MaxBy), At: w.At}
	if w.Key64 != nil {
		e.Key = string(w.Key64)
	}
	return e, e.Check()
}

// mark separates an entry's JSON, without its last brace, from its signature.
const mark = `,"signature":"`

// join adds the signature to an entry's JSON, as its last field.
func join(data []byte, signed string) []byte {
	return slices.Concat(bytes.TrimSuffix(data, []byte("}")), []byte(mark+signed+`"}`))
}

// split is the opposite of join; the signature is "" if there is none.
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

// found is what a verifier needs of a value.
func found(bucket, name string, raw []byte, written time.Time) signature.Found {
	data, signed := split(raw)
	return signature.Found{
		Bucket: bucket, Key: name, Value: data, Text: signed, Raw: raw, Written: written,
	}
}

func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "")
}

// name is the bucket's key for the entry of a rule and a key. It is a hash, since the bucket does
// not take all texts.
func name(rule, key string) string {
	sum := sha256.Sum256([]byte(fmt.Sprintf("%d %s%s", len(rule), rule, key)))
	return base64.RawURLEncoding.EncodeToString(sum[:18])
}

// sorted returns the blocks that have not ended, by their ends, then by rule and key.
func sorted(all map[string]Block, now time.Time) []Block {
	list := make([]Block, 0, len(all))
	for _, e := range all {
		if !e.Ended(now) {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(a, b Block) int {
		return cmp.Or(a.Until.Compare(b.Until), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Key, b.Key))
	})
	return list
}
