package events_test

import (
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"pgregory.net/rapid"

	"github.com/offpath-io/offpath/pkg/events"
)

func TestEpochsBelongToTheirOwner(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		credential := rapid.StringMatching(`[A-Za-z0-9_-]{1,64}`).Draw(t, "credential")
		a, b := events.NewEpoch(credential), events.NewEpoch(credential)
		if a == b || a == 0 || a>>63 != 0 {
			t.Fatalf("%x, %x", a, b)
		}
		if !events.IsEpochOf(credential, a) || events.IsEpochOf(credential, a^1<<40) || events.IsEpochOf(credential, a^1<<62) {
			t.Fatalf("%x of %s", a, credential)
		}
	})
	if events.IsEpochOf("checker-2", events.NewEpoch("checker-1")) {
		t.Error("one credential's epoch is another's")
	}
}

// What has no epoch is not peeked at as if it had one.
func TestPeekEpochOfNoHello(t *testing.T) {
	for _, none := range [][]byte{nil, {0x09}, {0x09, 1, 2}, {0xff}, []byte("no message")} {
		if got, ok := events.PeekEpoch(none); ok {
			t.Errorf("%x: %d", none, got)
		}
	}
}

func helloOf(t testing.TB, epoch uint64) []byte {
	t.Helper()
	b, err := events.Append(nil, &events.Hello{Epoch: epoch, Sent: 1})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// FuzzPeekEpoch: what is peeked at is what is decoded, however the bytes are put together.
func FuzzPeekEpoch(f *testing.F) {
	hello := helloOf(f, 7)
	f.Add(hello)
	f.Add(append(protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1), hello...)) // unknown field
	f.Add(protowire.AppendFixed64(protowire.AppendTag(hello, 1, protowire.Fixed64Type), 8))                // second epoch
	f.Add([]byte{0x09, 1, 2, 3, 4, 5, 6, 7, 8, 0x0a, 0})
	f.Fuzz(func(t *testing.T, message []byte) {
		got, ok := events.PeekEpoch(message)
		if decoded, err := events.DecodeHello(message); err == nil && (!ok || got != decoded.Epoch) {
			t.Errorf("peeked %d %v, decoded %d", got, ok, decoded.Epoch)
		}
	})
}

// The header of a request is read though its rest is damaged.
func TestPeekRequest(t *testing.T) {
	b, err := events.Append(nil, &events.Report{Epoch: 7, Shard: 3, Shards: 4, Sequence: 9})
	if err != nil {
		t.Fatal(err)
	}
	epoch, shard, sequence, ok := events.PeekRequest(append(b, 0xff))
	if epoch != 7 || shard != 3 || sequence != 9 || !ok {
		t.Errorf("%d, %d, %d, %v", epoch, shard, sequence, ok)
	}
	if _, _, _, ok := events.PeekRequest(helloOf(t, 7)); ok {
		t.Error("a hello is no request")
	}
}
