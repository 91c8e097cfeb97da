package check

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
)

// TestWireRule: what reports and lease requests say of a rule. Aggregators grant permits within the
// limit, and must not call it an overshoot if a loose rule lets more pass.
func TestWireRule(t *testing.T) {
	elastic := func(r *rules.Rule) {
		r.Throttle = rules.Throttle{Kind: rules.Elastic, UpTo: 2, While: "whole", Below: 0.5}
	}
	soft := func(r *rules.Rule) { r.Throttle = rules.Throttle{Kind: rules.Soft, Exceed: 0.25} }
	strict := func(r *rules.Rule) { r.Enforcement = rules.Strict }
	algorithm := func(a rules.Algorithm) func(*rules.Rule) { return func(r *rules.Rule) { r.Algorithm = a } }
	type changes []func(*rules.Rule)
	const sliding = events.Algorithm_SLIDING_WINDOW
	for _, test := range []struct {
		why          string
		changes      changes
		algorithm    events.Algorithm
		limit, burst uint64
		loose        bool
	}{
		{"a plain limit", nil, sliding, 100, 0, false},
		{"strict", changes{strict}, sliding, 100, 0, false},
		{"soft: the limit is a higher one", changes{soft}, sliding, 125, 0, false},
		{"soft and strict", changes{soft, strict}, sliding, 125, 0, false},
		{"elastic: more may pass", changes{elastic}, sliding, 100, 0, true},
		{"elastic and strict: permits are for no more", changes{elastic, strict}, sliding, 200, 0, false},
		{"shadow", changes{func(r *rules.Rule) { r.Shadow = true }}, sliding, 100, 0, true},
		{"denied hits count", changes{func(r *rules.Rule) { r.Count = rules.All }}, sliding, 100, 0, true},
		{"fixed window", changes{algorithm(rules.FixedWindow)}, events.Algorithm_FIXED_WINDOW, 100, 0, false},
		{"log", changes{algorithm(rules.SlidingLog)}, events.Algorithm_SLIDING_LOG, 100, 0, false},
		{"token bucket", changes{algorithm(rules.TokenBucket)}, events.Algorithm_TOKEN_BUCKET, 100, 100, false},
		{"leaky bucket", changes{algorithm(rules.LeakyBucket)}, events.Algorithm_LEAKY_BUCKET, 100, 100, false},
	} {
		r := rule("r", 100, time.Second, 1)
		for _, change := range test.changes {
			change(&r)
		}
		_, l := fleetAndLimiter(t, Options{}, r, rule("whole", 100, time.Second, 1))
		w := l.core.Group.Wire(noon)
		expect(t, w.Algorithm == test.algorithm && w.Limit == test.limit && w.Burst == test.burst && w.GetLoose() == test.loose,
			"%s: %v, want limit %d, burst %d, loose %v", test.why, w, test.limit, test.burst, test.loose)
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
		before := len(f.tape.reports)
		atTime(now+60*ms, f).Step()
		require(t, len(f.tape.reports) == before+1 && f.last().Trace == trace,
			"%d reports, the last carries %q, want %q", len(f.tape.reports)-before, f.last().Trace, trace)
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
