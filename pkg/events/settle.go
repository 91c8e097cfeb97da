package events

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"time"

	"google.golang.org/protobuf/proto"
)

// Bounds of what settles hits afterwards.
const (
	// MaxSettlements is the largest number of settlements in one report.
	MaxSettlements = 500
	// MaxCharges is the largest number of charges in one token.
	MaxCharges = 256
	// MaxToken is the longest token, in bytes.
	MaxToken = 48 << 10
	// MaxTokenAge is when a token is too old to be settled: aggregators remember for a day which were.
	MaxTokenAge = 20 * time.Hour
)

// tokenVersion comes first in a token. A token that older parts could not understand gets another one.
const tokenVersion = 1

var (
	tokenText = base64.RawURLEncoding.Strict() // each token has one spelling
	tokenSums = crc32.MakeTable(crc32.Castagnoli)
)

// EncodeToken returns a token's text, in letters, digits, - and _: by base64url, a byte for the version, the message,
// and its CRC-32C, so that a token that has been cut off or mistyped is not taken for another. The checksum is no
// signature.
func EncodeToken(m *Token) (string, error) {
	data, err := Append([]byte{tokenVersion}, m)
	if err != nil {
		return "", err
	}
	data = binary.LittleEndian.AppendUint32(data, crc32.Checksum(data, tokenSums))
	return tokenText.EncodeToString(data), nil
}

// DecodeToken reads a token's text.
func DecodeToken(text string) (*Token, error) {
	if len(text) > MaxToken {
		return nil, malformed("token of %d bytes", len(text))
	}
	data, err := tokenText.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("%w: token: %w", ErrMalformed, err)
	}
	end := len(data) - crc32.Size
	switch {
	case end < 1:
		return nil, malformed("token of %d characters", len(text))
	case crc32.Checksum(data[:end], tokenSums) != binary.LittleEndian.Uint32(data[end:]):
		return nil, malformed("token: it has been changed or cut off")
	case data[0] != tokenVersion:
		return nil, malformed("token of version %d; this is for version %d", data[0], tokenVersion)
	}
	m := new(Token)
	if err := decode(data[1:end], m); err != nil {
		return nil, fmt.Errorf("token: %w", err)
	}
	return m, m.check()
}

func (m *Token) check() error {
	if len(m.Charges) > MaxCharges {
		return malformed("token: %d charges", len(m.Charges))
	}
	if err := checkSingleUse(m.Epoch, m.Number); err != nil {
		return fmt.Errorf("token: %w", err)
	}
	for _, c := range m.Charges {
		if err := c.check(); err != nil {
			return fmt.Errorf("token: %w", err)
		}
	}
	return nil
}

// Check holds a settlement against its bounds. [DecodeReport] does not, so that one that makes no sense does not take
// a report's hits with it.
func (m *Settlement) Check() error {
	if err := checkSingleUse(m.GetEpoch(), m.GetNumber()); err != nil {
		return fmt.Errorf("settlement: %w", err)
	}
	if err := m.GetCharge().check(); err != nil {
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
	case c.Rule.GetDenied() || c.Rule.GetRefunded():
		return malformed("rule %q: not its admitted hits", c.Rule.GetName())
	}
	return c.Rule.check()
}

// Size is about how many bytes a settlement takes in a report.
func (m *Settlement) Size() int { return proto.Size(m) }
