package check

import (
	"strings"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/identity"
)

func hasher(t testing.TB, secret string) *identity.Hasher {
	t.Helper()
	h, err := identity.NewHasher([]byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestKeysAreHashed: with a secret no message holds a key, whichever way it was asked about, and yet it is one key.
func TestKeysAreHashed(t *testing.T) {
	h := hasher(t, "a secret of enough bytes")
	all := rule("all", 1000, time.Minute, 1)
	all.Key = nil
	strict := strictRule("strict", 1000, time.Minute, 1)
	f := newFleet(t, Options{KeyHash: h}, rule("r", 10, time.Minute, 1), all, strict)
	l := limiter(t, f.Checker, "r")
	for _, key := range []string{"kristie", strings.Repeat("kristie", 100)} {
		attrs := identity.Attributes{{Name: "user", Value: key}}
		text := string(identity.AppendKey(nil, []string{"user"}, attrs))
		l.CheckAt(noon, text, 1)
		l.CheckAt(noon, text, 2)
		f.CheckAt(noon, attrs, 1) // denied by the strict one, and asked for
		if d := l.CheckAt(noon, text, 8); d.Allowed || d.Remaining != 7 {
			t.Errorf("%+v, want 7 left of 10", d)
		}
	}
	limiter(t, f.Checker, "all").CheckAt(noon, "", 1)
	f.Step(noon + 60*ms)
	if len(f.tape.leases) == 0 || len(f.tape.reports) == 0 {
		t.Fatal("nothing was sent")
	}
	for _, r := range f.tape.reports {
		if text := string(r.Hits.KeyText); strings.Contains(text, "kris") || !strings.Contains(text, h.Hash("kristie")) {
			t.Errorf("a report says %q", text)
		}
	}
	for _, r := range f.tape.leases {
		if text := string(r.Keys.KeyText); strings.Contains(text, "kris") || !strings.Contains(text, h.Hash("kristie")) {
			t.Errorf("a lease request says %q", text)
		}
	}
	if got := hits(f.last()); got[h.Hash("kristie")] != 3 || got[""] != 1 {
		t.Errorf("reported %v", got)
	}
}

// TestLongKeysAreOne: a key beyond the bound is the same by rule and key as by attributes, hashed or not.
func TestLongKeysAreOne(t *testing.T) {
	for _, h := range []*identity.Hasher{nil, hasher(t, "a secret of enough bytes")} {
		c := newChecker(t, Options{KeyHash: h}, rule("r", 10, time.Minute, 1))
		long := strings.Repeat("x", identity.MaxKey+1)
		c.CheckAt(noon, identity.Attributes{{Name: "user", Value: long}}, 3)
		if d := limiter(t, c, "r").CheckAt(noon, long, 1); d.Remaining != 6 {
			t.Errorf("%v: %+v, want 6 left of 10", h, d)
		}
	}
}

// TestHashingAllocatesNothing, neither by rule and key nor by attributes.
func TestHashingAllocatesNothing(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates; make test runs it without")
	}
	c := newChecker(t, Options{KeyHash: hasher(t, "a secret of enough bytes")}, rule("r", 1e9, time.Hour, 1))
	l := limiter(t, c, "r")
	attrs := identity.Attributes{{Name: "user", Value: "kristie"}}
	n := testing.AllocsPerRun(100, func() {
		l.CheckAt(noon, "kristie", 1)
		c.CheckAt(noon, attrs, 1)
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}
