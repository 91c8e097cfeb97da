package events

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"
)

func someToken() *Token {
	rule := &Rule{Name: "tokens", Revision: 3, WindowMs: 60_000, Buckets: 60, Limit: 1000, Newest: 1_800_000_000}
	return &Token{Epoch: 1<<63 + 5, Number: 17, Made: 1_800_000_000_000_000_000, Charges: []*Charge{
		{Rule: rule, Key: []byte("kristie"), Cost: 400}, {Rule: rule, Key: []byte("\xff\x00"), Cost: 1, Permits: true},
	}}
}

// The text of a token that is out there must be understood tomorrow.
const goldenToken = "AQkFAAAAAAAAgBARGICA0J3pzrj9GCInChkKBnRva2VucxADGODUAyA8MOgHOICkp9oGEgdrcmlzdGllGJADIiMKGQoGdG9rZW5zEAMY4NQDIDww6Ac4gKSn2gYSAv8AGAEgAbxKAGk"

func encodeToken(t *testing.T, m *Token) string {
	t.Helper()
	text, err := EncodeToken(m)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestTokenText(t *testing.T) {
	if text := encodeToken(t, someToken()); text != goldenToken {
		t.Errorf("encoded: %s", text)
	}
	m, err := DecodeToken(goldenToken)
	if err != nil || !proto.Equal(m, someToken()) {
		t.Errorf("decoded: %v, %v", m, err)
	}
}

// Whatever is cut off, added or changed in a token is noticed.
func TestDamagedTokens(t *testing.T) {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	rapid.Check(t, func(t *rapid.T) {
		bad := []byte(goldenToken)
		at := rapid.IntRange(0, len(bad)-1).Draw(t, "at")
		switch rapid.IntRange(0, 3).Draw(t, "damage") {
		case 0:
			bad = bad[:at]
		case 1:
			bad = append(bad, letters[at%64])
		case 2:
			bad[at] = letters[rapid.IntRange(0, 63).Draw(t, "letter")]
		case 3:
			bad = append(bad[:at], bad[at+1:]...)
		}
		if m, err := DecodeToken(string(bad)); string(bad) != goldenToken && !errors.Is(err, ErrMalformed) {
			t.Fatalf("%s: %v, %v", bad, m, err)
		}
	})
}

func TestTokensThatMakeNoSense(t *testing.T) {
	for why, change := range map[string]func(*Token){
		"no epoch":          func(m *Token) { m.Epoch = 0 },
		"no number":         func(m *Token) { m.Number = 0 },
		"too large":         func(m *Token) { m.Number = MaxState - MaxCharges + 1 },
		"no rule":           func(m *Token) { m.Charges[1].Rule = nil },
		"no cost":           func(m *Token) { m.Charges[1].Cost = 0 },
		"a huge cost":       func(m *Token) { m.Charges[1].Cost = MaxCount + 1 },
		"denied hits":       func(m *Token) { m.Charges[1].Rule = &Rule{Name: "a", WindowMs: 1, Buckets: 1, Denied: true} },
		"a long key":        func(m *Token) { m.Charges[1].Key = make([]byte, MaxKeyLength+1) },
		"too many charges":  func(m *Token) { m.Charges = slices.Repeat(m.Charges[:1], MaxCharges+1) },
		"an empty charge":   func(m *Token) { m.Charges[0] = new(Charge) },
		"an unknown window": func(m *Token) { m.Charges[0].Rule.Buckets = 0 },
	} {
		m := someToken()
		change(m)
		if _, err := DecodeToken(encodeToken(t, m)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", why, err)
		}
	}
	for why, text := range map[string]string{
		"":         "0 characters",
		"AA":       "2 characters",
		"a b":      "illegal base64",
		"AQ==":     "illegal base64",
		"AgAAAAAA": "changed or cut off",
		"AsYQ0SI":  "",
		goldenToken + strings.Repeat("A", MaxToken): "bytes",
	} {
		if _, err := DecodeToken(why); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), text) {
			t.Errorf("%.20q: %v, want %q", why, err, text)
		}
	}
	m, err := DecodeToken(encodeToken(t, &Token{Epoch: 1, Number: 1}))
	if err != nil || len(m.Charges) != 0 {
		t.Errorf("a token of a hit that no rule was charged with: %v, %v", m, err)
	}
}

func FuzzDecodeToken(f *testing.F) {
	f.Add(goldenToken)
	f.Add("")
	f.Add("AQ")
	f.Fuzz(func(t *testing.T, text string) {
		m, err := DecodeToken(text)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Errorf("error: %v", err)
			}
			return
		}
		for i, c := range m.Charges {
			s := &Settlement{Epoch: m.Epoch, Number: m.Number + uint64(i), Made: m.Made, Charge: c, Hits: -int64(c.Cost)}
			if err := s.Check(); err != nil {
				t.Errorf("a token that can be read, and not settled: %v", err)
			}
		}
		if back, err := DecodeToken(encodeToken(t, m)); err != nil || !proto.Equal(m, back) {
			t.Errorf("encoded again: %v, %v", back, err)
		}
	})
}
