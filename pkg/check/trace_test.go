package check

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/events"
)

// diary follows reports: what is told of each, in order.
type diary struct{ lines []string }

func (d *diary) trace(shard uint32, sequence uint64, keys int) (string, func(TraceEvent)) {
	if sequence%2 == 0 { // these are not sampled
		return "", nil
	}
	d.lines = append(d.lines, fmt.Sprintf("%d: shard %d, %d keys", sequence, shard, keys))
	return fmt.Sprintf("parent of %d", sequence), func(e TraceEvent) {
		d.lines = append(d.lines, fmt.Sprintf("%d: %s", sequence, [...]string{"", "repeated", "refused", "answered", "merged", "given up"}[e]))
	}
}

// TestTraceFollowsReports until they are answered or given up; repeats have the same bytes, and reports
// that are not traced carry nothing.
func TestTraceFollowsReports(t *testing.T) {
	var d diary
	f, l := fleetAndLimiter(t, Options{Trace: d.trace}, rule("r", 1000, time.Hour, 1))
	flush := func(now int64) *events.Report {
		t.Helper()
		l.CheckAt(now, "kristie", 1)
		before := len(f.tape.reports)
		f.Step(now + 60*ms)
		if len(f.tape.reports) != before+1 {
			t.Fatalf("%d reports", len(f.tape.reports)-before)
		}
		return f.last()
	}

	now := noon
	if r := flush(now); r.Trace != "parent of 1" {
		t.Errorf("the first report carries %q", r.Trace)
	}
	f.Step(now + second) // it has waited for too long
	if n := len(f.tape.bytes); n != 2 || f.tape.bytes[0] != f.tape.bytes[1] {
		t.Errorf("%d reports, or other bytes", n)
	}
	f.answer(now+second, 1)

	now += 2 * second
	if r := flush(now); r.Trace != "" {
		t.Errorf("a report that is not traced carries %q", r.Trace)
	}
	f.answer(now+70*ms, 2)

	now += 2 * second
	r := flush(now)
	f.refuse(now+70*ms, r.Sequence)
	for range mostRefusals - 1 {
		f.refuse(now+70*ms+int64(refusedFor), r.Sequence)
	}
	want := []string{
		"1: shard 0, 1 keys", "1: repeated", "1: answered", "1: merged",
		"3: shard 0, 1 keys", "3: refused", "3: refused", "3: refused", "3: given up",
	}
	if !slices.Equal(d.lines, want) {
		t.Errorf("got  %q\nwant %q", d.lines, want)
	}
}
