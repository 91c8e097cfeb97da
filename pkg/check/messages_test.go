package check

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/identity"
)

// TestWireRule: reports and lease requests say of each counter what the set says, since aggregators
// that have the set believe it instead. They grant permits within the limit, and must not call it
// an overshoot if a loose rule lets more pass.
func TestWireRule(t *testing.T) {
	const elastic = "throttle: elastic, elastic: {up_to: 200%, while: {rule: plain, below: 50%}}"
	tests := []struct{ name, clauses, want string }{
		{"plain", "buckets: 10", "SLIDING_WINDOW 100 0 false"},
		{"strict", "enforcement: strict", "SLIDING_WINDOW 100 0 false"},
		{"soft", "throttle: soft, soft: {exceed: 12.5%}", "SLIDING_WINDOW 112 0 false"},
		{"soft-strict", "throttle: soft, soft: {exceed: 12.5%}, enforcement: strict", "SLIDING_WINDOW 112 0 false"},
		{"elastic", elastic, "SLIDING_WINDOW 100 0 true"},                                   // more may pass
		{"elastic-strict", elastic + ", enforcement: strict", "SLIDING_WINDOW 200 0 false"}, // permits are for no more
		{"shadow", "shadow: true", "SLIDING_WINDOW 100 0 true"},
		{"denied-hits-count", "count: all", "SLIDING_WINDOW 100 0 true"},
		{"fixed", "algorithm: fixed_window", "FIXED_WINDOW 100 0 false"},
		{"log", "algorithm: sliding_log", "SLIDING_LOG 100 0 false"},
		{"token", "algorithm: token_bucket", "TOKEN_BUCKET 100 100 false"},
		{"leaky", "algorithm: leaky_bucket", "LEAKY_BUCKET 100 100 false"},
		{"burst", "algorithm: token_bucket, burst: 7, throttle: soft, soft: {exceed: 50%}", "TOKEN_BUCKET 100 7 false"},
		{"tiers", "throttle: soft, soft: {exceed: 20%}, overrides: [" +
			"{match: {tier: gold}, limit: 10x}, {match: {tier: none}, limit: blocked}, {match: {tier: log}, limit: 5/day}]",
			"SLIDING_WINDOW 120 0 false, SLIDING_WINDOW 1200 0 false, SLIDING_WINDOW 120 0 false, SLIDING_WINDOW 6 0 false"},
	}
	text := "rules:\n"
	for _, test := range tests {
		text += fmt.Sprintf("- {name: %q, key: [user], limit: 100/s, %s}\n", test.name, test.clauses)
	}
	set := parse(t, text)
	p := checkerOf(t, Options{Link: new(tape), Revision: 9}, set).ruleset.Load()
	for n, r := range set.Rules() {
		var got []string
		for i := -1; i < len(r.Overrides); i++ {
			terms, w := r.Terms(i), p.ByName[r.WireName(i)].Group.Wire(noon)
			got = append(got, fmt.Sprint(w.Algorithm, " ", w.Limit, " ", w.Burst, " ", w.GetLoose()))
			expect(t, w.Name == r.WireName(i) && int64(w.Limit) == r.WireLimit(i) && w.Revision == 9 && int64(w.Burst) == terms.Burst &&
				int64(w.WindowMs) == terms.Window.Length.Milliseconds() && int(w.Buckets) == terms.Window.Buckets && w.Loose == r.Loose(),
				"reported is %v, and the set has %d, %+v", w, r.WireLimit(i), terms)
		}
		equal(t, strings.Join(got, ", "), tests[n].want, "%s: reported", r.Name)
	}
}

const keySecret = "a secret of enough bytes"

func hasher(t testing.TB, secret string) *identity.Hasher {
	t.Helper()
	h, err := identity.NewHasher([]byte(secret))
	must(t, err)
	return h
}

// TestKeysAreHashed: with a secret no message holds a key, in whichever way it was checked, and yet
// it is one key.
func TestKeysAreHashed(t *testing.T) {
	h := hasher(t, keySecret)
	all := rule("all", 1000, time.Minute, 1)
	all.Key = nil
	f, l := fleetAndLimiter(t, Options{KeyHash: h}, rule("r", 10, time.Minute, 1), all, strictRule("strict", 1000, time.Minute, 1))
	for _, key := range []string{"kristie", strings.Repeat("kristie", 100)} {
		text := string(identity.AppendKey(nil, []string{"user"}, user(key)))
		atTime(noon, l).Check(text, 1)
		atTime(noon, l).Check(text, 2)
		atTime(noon, f).Check(user(key), 1) // denied by the strict one, and asked for
		d := atTime(noon, l).Check(text, 8)
		expect(t, !d.Allowed && d.Remaining == 7, "%+v, want 7 left of 10", d)
	}
	atTime(noon, limiter(t, f.Checker, "all")).Check("", 1)
	atTime(noon+60*ms, f).Step()
	asked, _ := f.asked()
	for _, text := range []string{string(asked.Keys.KeyText), string(f.last().Hits.KeyText)} {
		expect(t, !strings.Contains(text, "kris") && strings.Contains(text, h.Hash("kristie")), "a message holds %q", text)
	}
	got := hits(f.last())
	expect(t, got[h.Hash("kristie")] == 3 && got[""] == 1, "reported %v", got)
}

// TestLongKeysAreOne: a key beyond the bound is the same by rule and key as by attributes, hashed
// or not.
func TestLongKeysAreOne(t *testing.T) {
	for _, h := range []*identity.Hasher{nil, hasher(t, keySecret)} {
		c, l := checkerAndLimiter(t, Options{KeyHash: h}, rule("r", 10, time.Minute, 1))
		long := strings.Repeat("x", identity.MaxKey+1)
		atTime(noon, c).Check(user(long), 3)
		d := atTime(noon, l).Check(long, 1)
		expect(t, d.Remaining == 6, "%v: %+v, want 6 left of 10", h, d)
	}
}

// TestTraceFollowsReports until they are answered or given up; repeats have the same bytes, and
// reports that are not traced carry nothing.
func TestTraceFollowsReports(t *testing.T) {
	var lines []string
	trace := func(shard uint32, sequence uint64, keys int) (string, func(TraceEvent)) {
		if sequence%2 == 0 { // these are not sampled
			return "", nil
		}
		lines = append(lines, fmt.Sprintf("%d: shard %d, %d keys", sequence, shard, keys))
		return fmt.Sprintf("parent of %d", sequence), func(e TraceEvent) {
			event := [...]string{"", "repeated", "refused", "answered", "merged", "given up"}[e]
			lines = append(lines, fmt.Sprintf("%d: %s", sequence, event))
		}
	}
	f, l := fleetAndLimiter(t, Options{Trace: trace}, rule("r", 1000, time.Hour, 1))
	flush := func(now int64, trace string) {
		t.Helper()
		atTime(now, l).Check("kristie", 1)
		n := len(f.reportsAt(now + 60*ms))
		require(t, n == 1 && f.last().Trace == trace, "%d reports, the last carries %q, want %q", n, f.last().Trace, trace)
	}
	now := noon
	flush(now, "parent of 1")
	atTime(now+second, f).Step() // it has waited for too long
	n := len(f.tape.bytes)
	expect(t, n == 2 && f.tape.bytes[0] == f.tape.bytes[1], "%d reports, or other bytes", n)
	f.answer(now+second, 1)
	now += 2 * second
	flush(now, "")
	f.answer(now+70*ms, 2)
	now += 2 * second
	flush(now, "parent of 3")
	f.refuse(now+70*ms, 3)
	for range refusalsTaken - 1 {
		f.refuse(now+70*ms+int64(refusalsFor), 3)
	}
	want := []string{
		"1: shard 0, 1 keys", "1: repeated", "1: answered", "1: merged",
		"3: shard 0, 1 keys", "3: refused", "3: refused", "3: refused", "3: given up",
	}
	expect(t, slices.Equal(lines, want), "got  %q\nwant %q", lines, want)
}

// When a report is given up that aggregators refuse, and how many buckets one may have.
const (
	refusalsTaken   = 3
	refusalsFor     = 10 * time.Second
	bucketsReported = 16_000
)
