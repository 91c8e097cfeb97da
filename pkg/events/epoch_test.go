package events

import (
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"pgregory.net/rapid"
)

func TestEpochsBelongToTheirOwner(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		credential := rapid.StringMatching(`[A-Za-z0-9_-]{1,64}`).Draw(t, "credential")
		a, b := NewEpoch(credential), NewEpoch(credential)
		if a == b || a == 0 || a>>63 != 0 {
			t.Fatalf("%x, %x", a, b)
		}
		if !IsEpochOf(credential, a) || IsEpochOf(credential, a^1<<40) || IsEpochOf(credential, a^1<<62) {
			t.Fatalf("%x of %s", a, credential)
		}
	})
	if IsEpochOf("checker-2", NewEpoch("checker-1")) {
		t.Error("one credential's epoch is another's")
	}
}

// What has no epoch is not peeked at as if it had one.
func TestPeekEpochOfNoHello(t *testing.T) {
	for _, none := range [][]byte{nil, {0x09}, {0x09, 1, 2}, {0xff}, []byte("no message")} {
		if got, ok := PeekEpoch(none); ok {
			t.Errorf("%x: %d", none, got)
		}
	}
}

// FuzzPeekEpoch: what is peeked at is what is decoded, however the bytes are put together.
func FuzzPeekEpoch(f *testing.F) {
	hello := encode(f, &Hello{Epoch: 7, Sent: 1})
	f.Add(hello)
	f.Add(append(protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1), hello...)) // unknown field
	f.Add(protowire.AppendFixed64(protowire.AppendTag(hello, 1, protowire.Fixed64Type), 8))                // second epoch
	f.Add([]byte{0x09, 1, 2, 3, 4, 5, 6, 7, 8, 0x0a, 0})
	f.Fuzz(func(t *testing.T, message []byte) {
		got, ok := PeekEpoch(message)
		if decoded, err := DecodeHello(message); err == nil && (!ok || got != decoded.Epoch) {
			t.Errorf("peeked %d %v, decoded %d", got, ok, decoded.Epoch)
		}
	})
}

// The header of a request is read though its rest is damaged.
func TestPeekRequest(t *testing.T) {
	report := encode(t, &Report{Epoch: 7, Shard: 3, Shards: 4, Sequence: 9})
	epoch, shard, sequence, ok := PeekRequest(append(report, 0xff))
	if epoch != 7 || shard != 3 || sequence != 9 || !ok {
		t.Errorf("%d, %d, %d, %v", epoch, shard, sequence, ok)
	}
	if _, _, _, ok := PeekRequest(encode(t, &Hello{Epoch: 7, Sent: 1})); ok {
		t.Error("a hello is no request")
	}
}
