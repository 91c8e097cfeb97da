package check

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// TestTraceFollowsReports until they are answered or given up; repeats have the same bytes, and reports
// that are not traced carry nothing.
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
		l.CheckAt(now, "kristie", 1)
		before := len(f.tape.reports)
		f.Step(now + 60*ms)
		if len(f.tape.reports) != before+1 || f.last().Trace != trace {
			t.Fatalf("%d reports, the last carries %q, want %q", len(f.tape.reports)-before, f.last().Trace, trace)
		}
	}
	now := noon
	flush(now, "parent of 1")
	f.Step(now + second) // it has waited for too long
	if n := len(f.tape.bytes); n != 2 || f.tape.bytes[0] != f.tape.bytes[1] {
		t.Errorf("%d reports, or other bytes", n)
	}
	f.answer(now+second, 1)
	now += 2 * second
	flush(now, "")
	f.answer(now+70*ms, 2)
	now += 2 * second
	flush(now, "parent of 3")
	f.refuse(now+70*ms, 3)
	for range mostRefusals - 1 {
		f.refuse(now+70*ms+int64(refusedFor), 3)
	}
	want := []string{
		"1: shard 0, 1 keys", "1: repeated", "1: answered", "1: merged",
		"3: shard 0, 1 keys", "3: refused", "3: refused", "3: refused", "3: given up",
	}
	if !slices.Equal(lines, want) {
		t.Errorf("got  %q\nwant %q", lines, want)
	}
}
