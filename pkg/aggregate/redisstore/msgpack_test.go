package redisstore

import (
	"math"
	"testing"

	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/window"
)

func TestUnpackNumbers(t *testing.T) {
	for packed, want := range map[string]int64{
		"\x00": 0, "\x7f": 127, "\xff": -1, "\xe0": -32,
		"\xcc\xff": 255, "\xcd\xff\xff": 65535, "\xce\xff\xff\xff\xff": 1<<32 - 1,
		"\xcf\x00\x03\x8d\x7e\xa4\xc6\x80\x00": 1e15, "\xcf\xff\xff\xff\xff\xff\xff\xff\xff": math.MaxInt64,
		"\xd0\x80": -128, "\xd1\x80\x00": -32768, "\xd2\x80\x00\x00\x00": math.MinInt32,
		"\xd3\xff\xff\xff\xff\xff\xff\xff\xfe": -2,
		"\xca\x5f\x00\x00\x00":                 math.MaxInt64, "\xcb\x43\xe0\x00\x00\x00\x00\x00\x00": math.MaxInt64,
		"\xcb\x40\x45\x00\x00\x00\x00\x00\x00": 42,
		"\xc2":                                 0, "\xc0": 0, "\xa0": 0, "\xa11": 1, "\xa3-12": -12,
		"\xb39223372036854775807": math.MaxInt64, "\xb39999999999999999999": math.MaxInt64,
	} {
		u := unpacker{rest: packed}
		if got := u.count(); got != want || u.err != nil || u.rest != "" {
			t.Errorf("%q: got %d, %v", packed, got, u.err)
		}
	}
	for _, packed := range []string{"", "\xcd\x00", "\xa2x", "\xa1x", "\xc3", "\x91", "\xb412345678901234567890"} {
		u := unpacker{rest: packed}
		if u.count(); u.err == nil {
			t.Errorf("%q: no error", packed)
		}
	}
}

// FuzzReply reads arbitrary bytes as the reply to a batch: an error or a result, never a panic, and
// no more memory than the reply has.
func FuzzReply(f *testing.F) {
	now := int64(1_800_000_000_000_000_000)
	batch := &storage.Batch{
		Now:    now,
		Marks:  []storage.Mark{{Epoch: 1, Sequence: 1}},
		Ledger: make([]storage.Tally, 3),
		Rules: []storage.Rule{
			{Name: "one", Shape: window.Shape{Length: 1e9, Buckets: 1}},
			{Name: "many", Shape: window.Shape{Length: 10e9, Buckets: 10}},
			{Name: "tokens", Shape: window.Shape{Length: 10e9, Buckets: 10, Kind: window.Token}, Limit: 5, Burst: 5},
		},
		Keys: []storage.Key{
			{Text: "a", Cells: []storage.Cell{{Bucket: now / 1e9, Count: 1}, {Bucket: now/1e9 + 1, Count: 1}}},
			{Rule: 1, Text: "b"},
			{Rule: 2, Text: "c"},
		},
	}
	f.Add("\x92\x00\x00")
	f.Add("\x9e\xcf\x00\x06\x35\x27\x4c\x8e\x80\x00\x01\x00\x00\x00\x00\x02\x00\xc3\x05\xa11\x01\x01\x92\xa11\xa12")
	f.Add("\x9e\x01\x01\x00\x00\x00\x00\x02\x00\xc2\x00\x01\x01\x00\x00\x90\x98\xa2at\xa12\xa4hits\xa13\xa5parts\xa11\xa13\xa14")
	f.Add("\x9e\x01\x01\x00\x00\x00\x00\x02\x00\xc2\x00\xdd\xff\xff\xff\xff")
	f.Fuzz(func(t *testing.T, reply string) {
		c := &call{memory: newMemory(8), newKeys: new(newKeys), groups: 4, shard: newShard(), known: true}
		c.build("test", "1", batch)
		u := unpacker{rest: reply}
		h, refused := readHeader(&u)
		if u.err == nil && h.generation == 0 {
			c.readRefusal(&u, refused)
			return
		}
		if applied, complete := c.readTotals(&u, &h); complete && (len(applied.Totals) != 3 || len(applied.Levels) != 3) {
			t.Errorf("%q: %v", reply, applied)
		}
	})
}
