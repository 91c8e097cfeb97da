package blocks

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// Whatever bytes a key has, an entry comes back as it was written.
func TestCodec(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := Block{
			Rule:  rapid.StringN(1, 30, MaxRule).Draw(t, "rule"),
			Key:   string(rapid.SliceOfN(rapid.Byte(), 0, MaxKey).Draw(t, "key")),
			At:    noon,
			Until: noon.Add(time.Duration(rapid.Int64Range(1, int64(MaxSpan)).Draw(t, "span"))),
			By:    rapid.StringN(0, 20, MaxBy).Draw(t, "by"),
		}
		data, err := encode(e)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := decode(data); err != nil || got != e {
			t.Fatalf("%+v became %s, and that %+v: %v", e, data, got, err)
		}
	})
}

func TestWhatIsNoEntry(t *testing.T) {
	good := Block{Rule: "r", Key: "k", At: noon, Until: noon.Add(time.Second)}
	for why, change := range map[string]func(*Block){
		"no rule":                func(e *Block) { e.Rule = "" },
		"a long rule":            func(e *Block) { e.Rule = strings.Repeat("x", MaxRule+1) },
		"a rule that is no text": func(e *Block) { e.Rule = "\xff" },
		"a long key":             func(e *Block) { e.Key = strings.Repeat("x", MaxKey+1) },
		"no time":                func(e *Block) { e.Until = e.At },
		"an end before":          func(e *Block) { e.Until = e.At.Add(-1) },
		"too long a time":        func(e *Block) { e.Until = e.At.Add(MaxSpan + 1) },
	} {
		e := good
		change(&e)
		if _, err := encode(e); !errors.Is(err, ErrBlock) {
			t.Errorf("%s: %v", why, err)
		}
	}
	if _, err := decode([]byte(`{"action":"praise","rule":"r"}`)); !errors.Is(err, errUnknown) {
		t.Errorf("an entry of the future: %v", err)
	}
}

// Rules and keys that read the same when put together are different entries.
func TestNamesDiffer(t *testing.T) {
	seen := map[string]string{}
	for _, pair := range [][2]string{{"a", "bc"}, {"ab", "c"}, {"abc", ""}, {"a", "b"}, {"1 a", "b"}, {"a", "b\x00"}, {"a b", ""}, {"a", " b"}} {
		n := name(pair[0], pair[1])
		if other, taken := seen[n]; taken {
			t.Errorf("%q is called as %s", pair, other)
		}
		seen[n] = strings.Join(pair[:], " and ")
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"action":"block","rule":"r","key":"k","until":"2026-11-20T12:00:01Z","at":"2026-11-20T12:00:00Z"}`))
	f.Add([]byte(`{"action":"block","rule":"r","key_base64":"/w==","until":"2026-11-20T12:00:01Z","at":"2026-11-20T12:00:00Z"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := decode(data)
		if err != nil {
			return
		}
		again, err := encode(e)
		if err != nil {
			t.Fatalf("%+v cannot be written: %v", e, err)
		}
		if got, err := decode(again); err != nil || got.Rule != e.Rule || got.Key != e.Key || !got.Until.Equal(e.Until) {
			t.Fatalf("%+v became %+v: %v", e, got, err)
		}
	})
}
