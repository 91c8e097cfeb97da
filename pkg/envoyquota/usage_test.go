package envoyquota

import (
	"fmt"
	"testing"
)

// The domain comes first, and entries in the order of their names, since rules may be ordered. A
// bucket's own entry is the domain, if it has one.
func TestAttributesOfABucket(t *testing.T) {
	for _, test := range []struct {
		bucket map[string]string
		want   string
	}{
		{map[string]string{"user": "ann", "api": "x", "tokens": "5"}, "[{domain shop} {api x} {user ann}]"},
		{map[string]string{"domain": "own", "api": "x"}, "[{domain own} {api x}]"},
		{nil, "[{domain shop}]"},
	} {
		if got := fmt.Sprint(attributes("shop", test.bucket, map[string]bool{"tokens": true})); got != test.want {
			t.Errorf("%v: got %s, want %s", test.bucket, got, test.want)
		}
	}
}
