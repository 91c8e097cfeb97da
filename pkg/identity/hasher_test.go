package identity

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func hasher(t interface {
	Helper()
	Fatal(...any)
}, secret string) *Hasher {
	t.Helper()
	h, err := NewHasher([]byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// The hashes are another program's, which gives 5493e99933b0a8117e08ec0f97cfc3d9 for one vector of
// SipHash's reference: key 00 … 0f, text 00 … 0e. If they change, all counts start clean, and a
// fleet must not have checkers of both kinds.
func TestHashes(t *testing.T) {
	for _, tt := range []struct{ secret, key, want string }{
		{"0123456789abcdef", "", "gmq69g6aCvbP2y6HphzNbA"},
		{"0123456789abcdef", "kristie", "NS5kLvqPWr4FK2cRx_8acw"},
		{"0123456789abcdef", "kristie|createURL", "FfAUPGImRIkAi5nRmfBsIw"},
		{"0123456789abcdef", strings.Repeat("x", MaxKey), "OPf_42Xz17eotsphVnr6-A"},
		{"0123456789abcdeg", "kristie", "Dep_DtgSU3ShkSHraqAGEQ"}, // the secret's last byte counts
	} {
		h := hasher(t, tt.secret)
		if got := h.Hash(tt.key); got != tt.want || len(got) != HashedLen {
			t.Errorf("%.20q under %s: %q, want %q", tt.key, tt.secret, got, tt.want)
		}
		if got := string(h.Append([]byte("before "), tt.key)); got != "before "+tt.want {
			t.Errorf("appended: %q", got)
		}
	}
}

func TestSecretsAreGivenOrReadFromAFile(t *testing.T) {
	dir, long := t.TempDir(), strings.Repeat("s", MaxSecret)
	file := filepath.Join(dir, "secret")
	read := func(text string) (*Hasher, error) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return ReadHasher(file)
	}
	for _, tt := range []struct{ why, secret, refused string }{
		{"as short as may be", "0123456789abcdef", ""},
		{"as long as may be", long, ""},
		{"too short", "0123456789abcde", "15 bytes: want at least 16"},
		{"none", "", "0 bytes: want at least 16"},
		{"too long", long + "s", "more than 4096 bytes"},
	} {
		given, err := NewHasher([]byte(tt.secret))
		read, readErr := read("\n" + tt.secret + " \r\n")
		if tt.refused == "" {
			if err != nil || readErr != nil || *given != *read {
				t.Errorf("%s: %v; from a file: %v", tt.why, err, readErr)
			}
			continue
		}
		for _, err := range []error{err, readErr} {
			if err == nil || !strings.Contains(err.Error(), tt.refused) {
				t.Errorf("%s: %v, want …%s", tt.why, err, tt.refused)
			}
		}
		if !strings.Contains(readErr.Error(), file) {
			t.Errorf("%s: %v does not name the file", tt.why, readErr)
		}
	}
	// Whatever lies beyond what is read must not be dropped in silence.
	spaces := strings.Repeat("s", 20) + strings.Repeat(" ", 2*MaxSecret)
	for _, text := range []string{spaces + "more", long + strings.Repeat("\n", 65)} {
		if _, err := read(text); err == nil || !strings.Contains(err.Error(), "another file?") {
			t.Errorf("a file of which the end is not read: %v", err)
		}
	}
	if _, err := read(long + strings.Repeat("\n", 64)); err != nil { // white space that an editor may leave
		t.Error(err)
	}
	for _, bad := range []string{dir, filepath.Join(dir, "none")} {
		if _, err := ReadHasher(bad); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestFingerprint(t *testing.T) {
	a, same, b := hasher(t, "0123456789abcdef"), hasher(t, "0123456789abcdef"), hasher(t, "0123456789abcdeg")
	if got := a.Fingerprint(); got != "8beb3d4a" || got != same.Fingerprint() || got == b.Fingerprint() {
		t.Errorf("fingerprints %s, %s and %s", got, same.Fingerprint(), b.Fingerprint())
	}
	for _, text := range []string{fmt.Sprint(a), fmt.Sprintf("%v %s", a, a)} {
		if strings.Contains(text, "0123") || strings.Contains(text, fmt.Sprint(a.k0)) {
			t.Errorf("printed: %s", text)
		}
	}
}

func TestHashingDoesNotAllocate(t *testing.T) {
	h, dst := hasher(t, "0123456789abcdef"), make([]byte, 0, HashedLen)
	for _, key := range []string{"", "kristie|createURL", strings.Repeat("x", MaxKey)} {
		if n := testing.AllocsPerRun(100, func() { h.Append(dst, key) }); n != 0 {
			t.Errorf("%.20q: %v allocations", key, n)
		}
	}
}

// hmac is what was not taken, for comparison: this much before its base64.
func BenchmarkHasher(b *testing.B) {
	h, mac := hasher(b, "0123456789abcdef"), hmac.New(sha256.New, []byte("0123456789abcdef"))
	for _, key := range []string{"kristie", "kristie|createURL", strings.Repeat("x", 64), strings.Repeat("x", MaxKey)} {
		b.Run(fmt.Sprintf("bytes=%d", len(key)), func(b *testing.B) {
			dst := make([]byte, 0, HashedLen)
			b.ReportAllocs()
			for b.Loop() {
				dst = h.Append(dst[:0], key)
			}
		})
		b.Run(fmt.Sprintf("hmac/bytes=%d", len(key)), func(b *testing.B) {
			text, dst := []byte(key), make([]byte, 0, sha256.Size)
			b.ReportAllocs()
			for b.Loop() {
				mac.Reset()
				mac.Write(text)
				dst = mac.Sum(dst[:0])
			}
		})
	}
}
