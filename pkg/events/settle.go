package events

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
)

// Bounds of what settles hits afterwards.
const (
	// MaxSettlements is the largest number of settlements in one report.
	MaxSettlements = 500
	// MaxCharges is the largest number of charges in one receipt.
	MaxCharges = 256
	// MaxReceipt is the longest receipt, in bytes.
	MaxReceipt = 48 << 10
	// MaxReceiptAge is when a receipt is too old to be settled: aggregators remember for a day
	// which were.
	MaxReceiptAge = 20 * time.Hour
)

// receiptVersion comes first in a receipt. A receipt that older parts could not understand gets
// another one: those of version 1 had no code, and anybody could make one.
const receiptVersion = 2

var receiptText = base64.RawURLEncoding.Strict() // each receipt has one spelling

// Bounds of keys for receipts.
const (
	// MinReceiptKey and MaxReceiptKey are the least and the most bytes of a key.
	MinReceiptKey, MaxReceiptKey = 32, 1024
	// MaxReceiptKeys is how many keys there may be at a time: a new one, and the one before it.
	MaxReceiptKeys = 2
)

// ReceiptKeys are the secrets of a fleet by which its checkers know the receipts that one of them
// has made. The first signs, and all are accepted, so that a new key can be given to one checker
// after the other.
type ReceiptKeys [][]byte

// NewReceiptKeys returns a new key, which nobody else has.
func NewReceiptKeys() ReceiptKeys {
	key := make([]byte, MinReceiptKey)
	_, _ = rand.Read(key) // never fails
	return ReceiptKeys{key}
}

// ParseReceiptKeys reads keys from a file's content, one in each line that is not empty. The errors
// do not quote it.
func ParseReceiptKeys(content []byte) (keys ReceiptKeys, err error) {
	for line := range bytes.Lines(content) {
		if key := bytes.Clone(bytes.TrimSpace(line)); len(key) > 0 {
			keys = append(keys, key)
		}
	}
	if err := keys.Check(); err != nil {
		return nil, fmt.Errorf("%w, one in each line", err)
	}
	return keys, nil
}

// Check holds keys against their bounds: with none, or one that can be guessed, anybody could make
// receipts. The errors do not quote them.
func (k ReceiptKeys) Check() error {
	for _, key := range k {
		if len(key) < MinReceiptKey || len(key) > MaxReceiptKey {
			return fmt.Errorf("a key of %d bytes: want %d to %d", len(key), MinReceiptKey, MaxReceiptKey)
		}
	}
	if len(k) == 0 || len(k) > MaxReceiptKeys {
		return fmt.Errorf("%d keys: want 1 to %d", len(k), MaxReceiptKeys)
	}
	return nil
}

// Encode returns a receipt's text, in letters, digits, - and _: by base64url, a byte for the
// version, the message, and the HMAC-SHA-256 of both by the first key.
func (k ReceiptKeys) Encode(m *Receipt) (string, error) {
	data, err := Append([]byte{receiptVersion}, m)
	if err != nil {
		return "", err
	}
	return receiptText.EncodeToString(receiptCode(data, k[0], data)), nil
}

// receiptCode appends the code of signed to dst.
func receiptCode(dst, key, signed []byte) []byte {
	mac := hmac.New(sha256.New, key)
	_, _ = mac.Write(signed) // never fails
	return mac.Sum(dst)
}

// Decode reads a receipt's text. It is malformed unless it was made with one of the keys.
func (k ReceiptKeys) Decode(text string) (*Receipt, error) {
	if len(text) > MaxReceipt {
		return nil, malformed("receipt of %d bytes", len(text))
	}
	data, err := receiptText.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("%w: receipt: %w", ErrMalformed, err)
	}
	end := len(data) - sha256.Size
	switch {
	case len(data) > 0 && data[0] != receiptVersion:
		return nil, malformed("receipt of version %d; this is for version %d", data[0], receiptVersion)
	case end < 1:
		return nil, malformed("receipt of %d characters", len(text))
	case !k.signed(data[:end], data[end:]):
		return nil, malformed("receipt: it has been changed or cut off, or made with another key")
	}
	m, err := decode(data[1:end], new(Receipt))
	if err == nil {
		err = m.check()
	}
	if err != nil {
		return nil, fmt.Errorf("receipt: %w", err)
	}
	return m, nil
}

func (k ReceiptKeys) signed(data, code []byte) bool {
	for _, key := range k {
		if hmac.Equal(code, receiptCode(nil, key, data)) {
			return true
		}
	}
	return false
}

func (m *Receipt) check() error {
	if len(m.Charges) > MaxCharges {
		return malformed("%d charges", len(m.Charges))
	}
	err := checkSingleUse(m.Epoch, m.Number)
	for _, c := range m.Charges {
		err = cmp.Or(err, c.check())
	}
	return err
}

// Check holds a settlement against its bounds. [DecodeReport] does not, so that one that makes no
// sense does not take a report's hits with it.
func (m *Settlement) Check() error {
	err := cmp.Or(checkSingleUse(m.GetEpoch(), m.GetNumber()), m.GetCharge().check())
	if err != nil {
		return fmt.Errorf("settlement: %w", err)
	}
	if m.Hits > MaxCount || m.Hits < -int64(m.Charge.Cost) {
		return malformed("settlement: %d hits for a cost of %d", m.Hits, m.Charge.Cost)
	}
	return nil
}

func checkSingleUse(epoch, number uint64) error {
	if epoch == 0 || number == 0 || number > MaxState-MaxCharges {
		return malformed("number %d of epoch %d", number, epoch)
	}
	return nil
}

func (c *Charge) check() error {
	switch {
	case c == nil:
		return malformed("no charge")
	case len(c.Key) > MaxKeyLength:
		return malformed("a key of %d bytes", len(c.Key))
	case c.Cost == 0 || c.Cost > MaxCount:
		return malformed("a cost of %d", c.Cost)
	}
	if err := c.Rule.check(); err != nil {
		return err
	}
	if c.Rule.Kind != RowKind_ADMITTED {
		return malformed("rule %q: not its admitted hits", c.Rule.GetName())
	}
	return nil
}

// Size is about how many bytes a settlement takes in a report.
func (m *Settlement) Size() int { return proto.Size(m) }
