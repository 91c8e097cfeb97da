// Package signaturetest makes keys and readers of signed values, for tests.
package signaturetest

import (
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/signature"
)

// NewKey makes a key up.
func NewKey(t testing.TB) *signature.Key {
	t.Helper()
	key, err := signature.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// Verifier returns a reader that trusts these keys.
func Verifier(t testing.TB, keys ...*signature.Key) *signature.Verifier {
	t.Helper()
	var public []string
	for _, k := range keys {
		public = append(public, k.Public())
	}
	v, err := signature.NewVerifier(nil, public...)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// Sign returns the text of a key's signature of a value.
func Sign(t testing.TB, key *signature.Key, c signature.Claims, value string) string {
	t.Helper()
	text, err := key.Sign(c, []byte(value))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Newer is a version that no value has had yet that was signed in this test.
func Newer() uint64 { return signature.NextVersion(0, time.Now().Add(time.Hour)) }

// AwaitRefusals waits until a reader has refused so many values.
func AwaitRefusals(t testing.TB, v *signature.Verifier, n int64) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); v.Refusals() < n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d refusals, want %d", v.Refusals(), n)
		}
	}
}
