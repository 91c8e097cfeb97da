package events

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"
)

func someReceipt() *Receipt {
	rule := &Rule{Name: "tokens", Revision: 3, WindowMs: 60_000, Buckets: 60, Limit: 1000, Newest: 1_800_000_000}
	return &Receipt{Epoch: 1<<63 + 5, Number: 17, Made: 1_800_000_000_000_000_000, Charges: []*Charge{
		{Rule: rule, Key: []byte("kristie"), Cost: 400}, {Rule: rule, Key: []byte("\xff\x00"), Cost: 1, Permits: true},
	}}
}

var someKeys = ReceiptKeys{[]byte("a key that nobody else has, or so"), []byte("the key that all had until lately")}

// The text of a receipt that is out there must be understood tomorrow.
const goldenReceipt = "AgkFAAAAAAAAgBARGICA0J3pzrj9GCInChkKBnRva2VucxADGODUAyA8MOgHOICkp9oGEgdrcmlzdGllGJADIiMKGQoGdG9rZW5zEAMY4NQDIDww6Ac4gKSn2gYSAv8AGAEgASOHMtcBfVXeO9lCdxtHLkZrtfi9pZJ-RENK-OdPnzx0"

func encodeReceipt(t *testing.T, keys ReceiptKeys, m *Receipt) string {
	t.Helper()
	text, err := keys.Encode(m)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestReceiptText(t *testing.T) {
	if text := encodeReceipt(t, someKeys, someReceipt()); text != goldenReceipt {
		t.Errorf("encoded: %s", text)
	}
	m, err := someKeys.Decode(goldenReceipt)
	if err != nil || !proto.Equal(m, someReceipt()) {
		t.Errorf("decoded: %v, %v", m, err)
	}
}

// Whatever is cut off, added or changed in a receipt is noticed.
func TestDamagedReceipts(t *testing.T) {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	rapid.Check(t, func(t *rapid.T) {
		bad := []byte(goldenReceipt)
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
		if m, err := someKeys.Decode(string(bad)); string(bad) != goldenReceipt && !errors.Is(err, ErrMalformed) {
			t.Fatalf("%s: %v, %v", bad, m, err)
		}
	})
}

func TestReceiptsThatMakeNoSense(t *testing.T) {
	for why, change := range map[string]func(*Receipt){
		"no epoch":          func(m *Receipt) { m.Epoch = 0 },
		"no number":         func(m *Receipt) { m.Number = 0 },
		"too large":         func(m *Receipt) { m.Number = MaxState - MaxCharges + 1 },
		"no rule":           func(m *Receipt) { m.Charges[1].Rule = nil },
		"no cost":           func(m *Receipt) { m.Charges[1].Cost = 0 },
		"a huge cost":       func(m *Receipt) { m.Charges[1].Cost = MaxCount + 1 },
		"denied hits":       func(m *Receipt) { m.Charges[1].Rule = &Rule{Name: "a", WindowMs: 1, Buckets: 1, Denied: true} },
		"a long key":        func(m *Receipt) { m.Charges[1].Key = make([]byte, MaxKeyLength+1) },
		"too many charges":  func(m *Receipt) { m.Charges = slices.Repeat(m.Charges[:1], MaxCharges+1) },
		"an empty charge":   func(m *Receipt) { m.Charges[0] = new(Charge) },
		"an unknown window": func(m *Receipt) { m.Charges[0].Rule.Buckets = 0 },
	} {
		m := someReceipt()
		change(m)
		if _, err := someKeys.Decode(encodeReceipt(t, someKeys, m)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", why, err)
		}
	}
	for why, text := range map[string]string{
		"":     "0 characters",
		"AA":   "version 0",
		"Ag":   "2 characters",
		"a b":  "illegal base64",
		"AQ==": "illegal base64",
		"AQkFAAAAAAAAgBARGICA0J3pzrj9GCInChkKBnRva2VucxADGODUAyA8MOgHOICkp9oGEgdrcmlzdGllGJADIiMKGQoGdG9rZW5zEAMY4NQDIDww6Ac4gKSn2gYSAv8AGAEgAbxKAGk": "version 1",
		"AgAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA": "another key",
		goldenReceipt + strings.Repeat("A", MaxReceipt):   "bytes",
	} {
		if _, err := someKeys.Decode(why); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), text) {
			t.Errorf("%.20q: %v, want %q", why, err, text)
		}
	}
	m, err := someKeys.Decode(encodeReceipt(t, someKeys, &Receipt{Epoch: 1, Number: 1}))
	if err != nil || len(m.Charges) != 0 {
		t.Errorf("a receipt of a hit that no rule was charged with: %v, %v", m, err)
	}
}

func FuzzDecodeReceipt(f *testing.F) {
	f.Add(encode(f, someReceipt()))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) { // with the right code, or else nothing is read
		data = append([]byte{receiptVersion}, data...)
		text := receiptText.EncodeToString(receiptCode(data, someKeys[0], data))
		m, err := someKeys.Decode(text)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Errorf("error: %v", err)
			}
			return
		}
		for i, c := range m.Charges {
			s := &Settlement{Epoch: m.Epoch, Number: m.Number + uint64(i), Made: m.Made, Charge: c, Hits: -int64(c.Cost)}
			if err := s.Check(); err != nil {
				t.Errorf("a receipt that can be read, and not settled: %v", err)
			}
		}
		if back, err := someKeys.Decode(encodeReceipt(t, someKeys, m)); err != nil || !proto.Equal(m, back) {
			t.Errorf("encoded again: %v, %v", back, err)
		}
	})
}

// TestReceiptKeys: a receipt of the key before is good as long as that is there; of no other key
// any is.
func TestReceiptKeys(t *testing.T) {
	before, after := ReceiptKeys{someKeys[1]}, ReceiptKeys{someKeys[0]}
	for _, row := range []struct {
		why          string
		signs, reads ReceiptKeys
		ok           bool
	}{
		{"its own", before, before, true},
		{"one before the change", before, someKeys, true},
		{"one after the change", someKeys, after, true},
		{"one that has not changed yet", someKeys, before, false},
		{"one that is done with it", before, after, false},
		{"a client's", NewReceiptKeys(), someKeys, false},
		{"none at all", someKeys, nil, false},
	} {
		if m, err := row.reads.Decode(encodeReceipt(t, row.signs, someReceipt())); row.ok != proto.Equal(m, someReceipt()) || !row.ok && !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v, %v", row.why, m, err)
		}
	}
	long := strings.Repeat("k", MinReceiptKey)
	for content, want := range map[string]int{
		long: 1, long + "\r\n\n" + long + "2\n": 2, "": 0, "\n": 0, long[1:]: 0, long + "\n" + long + "\n" + long: 0,
		strings.Repeat("k", MaxReceiptKey+1): 0,
	} {
		keys, err := ParseReceiptKeys([]byte(content))
		if len(keys) != want || (err == nil) != (want > 0) || err != nil && strings.Contains(err.Error(), "kk") {
			t.Errorf("%q: %d keys, %v", content, len(keys), err)
		}
	}
}
