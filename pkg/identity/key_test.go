package identity

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// hashed is the key of 513 times x, by another program: printf 'x%.0s' $(seq 513) | sha256sum
const hashed = "sha256:35ade0090e64e74d6ad04204009c23a4e34b82bdf0f4f317fbcc5f26f9b10241"

func TestKeys(t *testing.T) {
	long := strings.Repeat("x", MaxKey)
	for _, tt := range []struct {
		why    string
		values []string
		want   string
	}{
		{"one value as it is", []string{"kristie"}, "kristie"},
		{"one value is not escaped", []string{`a|b\c`}, `a|b\c`},
		{"one empty value", []string{""}, ""},
		{"no values", nil, ""},
		{"two", []string{"kristie", "createURL"}, "kristie|createURL"},
		{"where others join with _", []string{"a_b", "c"}, "a_b|c"},
		{"the separator in a value", []string{"a|b", "c"}, `a\|b|c`},
		{"the escape in a value", []string{`a\`, "b"}, `a\\|b`},
		{"nothing but specials", []string{`||`, `\\`}, `\|\||\\\\`},
		{"empty values keep their place", []string{"", "a"}, "|a"},
		{"NUL and invalid UTF-8 are bytes like others", []string{"a\x00", "\xff"}, "a\x00|\xff"},
		{"as long as may be", []string{long}, long},
		{"one byte more", []string{long + "x"}, hashed},
		{"escapes and separators count", []string{long[:MaxKey-2], "|"}, "sha256:54fa606c77c8923e68a2bbe70e640af85cff53a86b411ec4cf85d1c5a1624b81"},
		{"looks hashed: hashed again", []string{hashed}, "sha256:ce20d526556dbec8638eea2d66a1758ebc92c0b9e9dce86961d095ae1949f13d"},
		{"upper case is not how we write it", []string{strings.ToUpper(hashed)}, strings.ToUpper(hashed)},
		{"too short for a hash", []string{"sha256:0123"}, "sha256:0123"},
		{"not hexadecimal", []string{hashed[:70] + "g"}, hashed[:70] + "g"},
	} {
		names, attrs := named(tt.values)
		if got := string(AppendKey(nil, names, attrs)); got != tt.want {
			t.Errorf("%s: AppendKey(%.80q) = %q, want %q", tt.why, tt.values, got, tt.want)
		}
		if got := string(AppendKey([]byte("before "), names, attrs)); got != "before "+tt.want {
			t.Errorf("%s: appended: %q", tt.why, got)
		}
		if got := JoinKey(tt.values...); got != tt.want {
			t.Errorf("%s: JoinKey = %q, want %q", tt.why, got, tt.want)
		}
		if got := Bound(tt.want); got != tt.want {
			t.Errorf("%s: Bound changes what AppendKey made to %q", tt.why, got)
		}
	}
	if got := Bound(long + "x"); got != hashed {
		t.Errorf("Bound of a long key = %q, want %q", got, hashed)
	}
}

// Who can send from every address of a /64 is one caller, wherever the address comes from.
func TestAddressesStandForTheirGroups(t *testing.T) {
	for value, want := range map[string]string{
		"2001:db8:1:2::1":       "2001:db8:1:2::/64",
		"[2001:db8:1:2:9::]:80": "2001:db8:1:2::/64",
		"fe80::1%eth0":          "fe80::/64",
		"::ffff:192.0.2.1":      "192.0.2.1",
		"192.0.2.1:8080":        "192.0.2.1",
		"192.0.2.1":             "192.0.2.1",
		"2001:db8::/48":         "2001:db8::/48",
		"2001:db8::1/128":       "2001:db8::1/128",
		"no: address":           "no: address",
		"":                      "",
	} {
		attrs := Attributes{{Name: "user", Value: "a"}, {Name: "ip", Value: value}, {Name: "address", Value: value}}
		if got := string(AppendKey(nil, []string{"ip"}, attrs)); got != want {
			t.Errorf("ip %q: key %q, want %q", value, got, want)
		}
		if got := string(AppendKey(nil, []string{"user", "ip"}, attrs)); got != "a|"+want {
			t.Errorf("user and ip %q: key %q, want %q", value, got, "a|"+want)
		}
		if got := string(AppendKey(nil, []string{"address"}, attrs)); got != value {
			t.Errorf("address %q: key %q", value, got)
		}
	}
}

// named gives the values names, in reverse order so that the order of names decides.
func named(values []string) (names []string, attrs Attributes) {
	for i, value := range values {
		names = append(names, fmt.Sprint("n", i))
		attrs = append(attrs, Attribute{Name: names[i], Value: value})
	}
	slices.Reverse(attrs)
	return names, attrs
}

func TestAttributes(t *testing.T) {
	attrs := Attributes{{"user", "a"}, {"ip", ""}, {"user", "b"}}
	for _, tt := range []struct {
		why, name, want string
		found           bool
	}{
		{"the first of two counts", "user", "a", true},
		{"an empty value is there", "ip", "", true},
		{"a missing one is not", "api", "", false},
		{"names are exact", "User", "", false},
	} {
		if got, found := attrs.Get(tt.name); got != tt.want || found != tt.found {
			t.Errorf("%s: %q, %v", tt.why, got, found)
		}
	}
	if got := string(AppendKey(nil, []string{"api", "user"}, attrs)); got != "|a" {
		t.Errorf("a missing attribute counts as empty: got %q", got)
	}
	got := FromMap(map[string]string{"user": "a", "api": "c", "ip": "b"})
	if want := (Attributes{{"api", "c"}, {"ip", "b"}, {"user", "a"}}); !slices.Equal(got, want) {
		t.Errorf("FromMap = %v, want %v", got, want)
	}
	if got := FromMap(nil); len(got) != 0 {
		t.Errorf("FromMap(nil) = %v", got)
	}
}

// Two lists of values with as many entries give the same key only if they are the
// same. The alphabet is small so that near misses are frequent.
func TestKeysAreUnambiguous(t *testing.T) {
	value := rapid.OneOf(
		rapid.StringOfN(rapid.RuneFrom([]rune(`ab|\`)), 0, 6, -1),
		rapid.SampledFrom([]string{hashed, "sha256:", strings.Repeat("x", MaxKey), strings.Repeat("x", MaxKey+1), strings.Repeat("|", MaxKey/2)}),
	)
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(t, "n")
		values := rapid.SliceOfN(value, n, n)
		a, b := values.Draw(t, "a"), values.Draw(t, "b")
		if rapid.Bool().Draw(t, "resplit") { // the same text, cut elsewhere
			whole := strings.Join(a, rapid.SampledFrom([]string{"", "|", `\`, `\|`}).Draw(t, "glue"))
			b = slices.Repeat([]string{""}, n)
			for i := range n - 1 {
				cut := rapid.IntRange(0, min(len(whole), 20)).Draw(t, "cut")
				b[i], whole = whole[:cut], whole[cut:]
			}
			b[n-1] = whole
		}
		keyA, keyB := JoinKey(a...), JoinKey(b...)
		if same := slices.Equal(a, b); same != (keyA == keyB) {
			t.Fatalf("%q and %q give %q and %q", a, b, keyA, keyB)
		}
		if len(keyA) > MaxKey || Bound(keyA) != keyA {
			t.Fatalf("key of %d bytes: %q", len(keyA), keyA)
		}
		names, attrs := named(a)
		if got := string(AppendKey(nil, names, attrs)); got != keyA {
			t.Fatalf("AppendKey gives %q, JoinKey %q", got, keyA)
		}
	})
}

func TestAppendKeyDoesNotAllocate(t *testing.T) {
	dst := make([]byte, 0, 2*MaxKey)
	for why, values := range map[string][]string{
		"one":     {"kristie"},
		"two":     {"kristie", "createURL"},
		"escapes": {`a|\`, "b"},
		"hashed":  {strings.Repeat("x", MaxKey), "y"},
	} {
		names, attrs := named(values)
		if n := testing.AllocsPerRun(100, func() { AppendKey(dst, names, attrs) }); n != 0 {
			t.Errorf("%s: %v allocations", why, n)
		}
	}
	for _, value := range []string{"2001:db8:1:2::1", "2001:db8:1:2::/64", "[::ffff:192.0.2.1]:80", "192.0.2.1"} {
		attrs := Attributes{{Name: "ip", Value: value}}
		if n := testing.AllocsPerRun(100, func() { AppendKey(dst, []string{"ip"}, attrs) }); n != 0 {
			t.Errorf("%s: %v allocations", value, n)
		}
	}
	key := JoinKey("kristie", "createURL")
	if n := testing.AllocsPerRun(100, func() { Bound(key) }); n != 0 {
		t.Errorf("Bound of a short key: %v allocations", n)
	}
}
