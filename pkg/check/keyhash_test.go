package check

import (
	"strings"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/identity"
)

const keySecret = "a secret of enough bytes"

func hasher(t testing.TB, secret string) *identity.Hasher {
	t.Helper()
	h, err := identity.NewHasher([]byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestKeysAreHashed: with a secret no message holds a key, in whichever way it was checked, and yet it is
// one key.
func TestKeysAreHashed(t *testing.T) {
	h := hasher(t, keySecret)
	all := rule("all", 1000, time.Minute, 1)
	all.Key = nil
	f, l := fleetAndLimiter(t, Options{KeyHash: h}, rule("r", 10, time.Minute, 1), all, strictRule("strict", 1000, time.Minute, 1))
	for _, key := range []string{"kristie", strings.Repeat("kristie", 100)} {
		text := string(identity.AppendKey(nil, []string{"user"}, user(key)))
		l.CheckAt(noon, text, 1)
		l.CheckAt(noon, text, 2)
		f.CheckAt(noon, user(key), 1) // denied by the strict one, and asked for
		if d := l.CheckAt(noon, text, 8); d.Allowed || d.Remaining != 7 {
			t.Errorf("%+v, want 7 left of 10", d)
		}
	}
	limiter(t, f.Checker, "all").CheckAt(noon, "", 1)
	f.Step(noon + 60*ms)
	asked, _ := f.asked()
	for _, text := range []string{string(asked.Keys.KeyText), string(f.last().Hits.KeyText)} {
		if strings.Contains(text, "kris") || !strings.Contains(text, h.Hash("kristie")) {
			t.Errorf("a message holds %q", text)
		}
	}
	if got := hits(f.last()); got[h.Hash("kristie")] != 3 || got[""] != 1 {
		t.Errorf("reported %v", got)
	}
}

// TestLongKeysAreOne: a key beyond the bound is the same by rule and key as by attributes, hashed or not.
func TestLongKeysAreOne(t *testing.T) {
	for _, h := range []*identity.Hasher{nil, hasher(t, keySecret)} {
		c, l := checkerAndLimiter(t, Options{KeyHash: h}, rule("r", 10, time.Minute, 1))
		long := strings.Repeat("x", identity.MaxKey+1)
		c.CheckAt(noon, user(long), 3)
		if d := l.CheckAt(noon, long, 1); d.Remaining != 6 {
			t.Errorf("%v: %+v, want 6 left of 10", h, d)
		}
	}
}

// TestHashingAllocatesNothing, neither by rule and key nor by attributes.
func TestHashingAllocatesNothing(t *testing.T) {
	c, l := checkerAndLimiter(t, Options{KeyHash: hasher(t, keySecret)}, rule("r", 1e9, time.Hour, 1))
	attrs := user("kristie")
	n := testing.AllocsPerRun(100, func() {
		l.CheckAt(noon, "kristie", 1)
		c.CheckAt(noon, attrs, 1)
	})
	if n != 0 && !raceDetector { // which allocates
		t.Errorf("%v allocations", n)
	}
}
