package check

import (
	"errors"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/events"
)

func TestHitsMoveFromPendingToBase(t *testing.T) {
	f := newFleet(t, Options{}, rule("r", 100, time.Minute, 1))
	l := limiter(t, f.Checker, "r")
	want := func(step string, n int64) {
		t.Helper()
		if got := 100 - left(l, noon, "k"); got != n {
			t.Errorf("%s: the count is %d, want %d", step, got, n)
		}
	}
	l.CheckAt(noon, "k", 5)
	want("pending 5", 5)
	f.Step(noon + 50*ms)
	if got := hits(f.last())["k"]; got != 5 {
		t.Fatalf("reported %d hits, want 5", got)
	}
	want("in flight 5", 5)
	l.CheckAt(noon+60*ms, "k", 2)
	want("in flight 5, pending 2", 7)
	f.alarm(noon+61*ms, 1, l, "k", 30)
	want("an alarm of 30, which may hold the 5 in flight, and surely not the pending 2", 32)
	f.answer(noon+62*ms, 40)
	want("the answer of 40 holds the 5; pending 2", 42)
	f.answer(noon+63*ms, 90)
	want("an answer that comes twice tells nothing", 42)
	f.alarm(noon+64*ms, 1, l, "k", 35)
	want("an old alarm takes nothing back", 42)
	f.Step(noon + 100*ms)
	f.alarm(noon+101*ms, 1, l, "k", 42)
	want("the alarm may hold the 2 in flight: 42 either way", 42)
	f.answer(noon+102*ms, 50)
	want("the answer of 50 holds all own hits", 50)
	if s := f.Stats().Rules[0]; s.Charged != 7 || s.Answered != 7 || s.InFlight != 0 || s.Pending != 0 {
		t.Errorf("stats: %+v", s)
	}
}

func TestReportIsRepeatedUnchanged(t *testing.T) {
	f := newFleet(t, Options{ReportTimeout: 100 * time.Millisecond}, rule("r", 1000, time.Minute, 1))
	l := limiter(t, f.Checker, "r")
	l.CheckAt(noon, "k", 1)
	now := noon + 50*ms
	f.Step(now)
	for i := range 40 * 60 * 4 { // four hours, a look every 1.5 s
		l.CheckAt(now, "k", 1)
		if i%10 == 0 {
			l.CheckAt(now, "other", 1)
		}
		now += 1500 * ms
		f.Step(now)
	}
	for i, b := range f.tape.bytes {
		if b != f.tape.bytes[0] {
			t.Fatalf("sending %d differs from the first", i)
		}
	}
	if n := len(f.tape.bytes); n < 9000 || n > 9602 {
		t.Errorf("sent %d times in four hours; the longest wait is 8 × 100 ms, a look every 1.5 s", n)
	}
	f.answer(now, 1)
	if r := f.last(); r.Sequence != 2 || hits(r)["k"] == 0 || hits(r)["other"] == 0 {
		t.Errorf("what was admitted meanwhile goes together, at once: %v", hits(f.last()))
	}
}

func TestBackoff(t *testing.T) {
	f := newFleet(t, Options{ReportTimeout: 100 * time.Millisecond}, rule("r", 1000, time.Minute, 1))
	limiter(t, f.Checker, "r").CheckAt(noon, "k", 1)
	var at []int64
	for now := noon; now < noon+4*second; now += 10 * ms {
		before := len(f.tape.bytes)
		f.Step(now)
		if len(f.tape.bytes) > before {
			at = append(at, (now-noon)/ms)
		}
	}
	want := []int64{50, 150, 350, 750, 1550, 2350, 3150, 3950}
	for i := range want {
		if len(at) != len(want) || at[i] != want[i] {
			t.Fatalf("sent at %v ms, want %v", at, want)
		}
	}
}

func TestGivenUpAfterTwentyHours(t *testing.T) {
	f := newFleet(t, Options{}, rule("r", 1000, time.Minute, 1))
	l := limiter(t, f.Checker, "r")
	l.CheckAt(noon, "k", 3)
	f.Step(noon + 50*ms)
	late := noon + int64(20*time.Hour) + second
	l.CheckAt(late, "k", 4)
	f.Step(late)
	s := f.Stats()
	if r := s.Rules[0]; s.ReportsGivenUp != 1 || r.Lost != 3 || r.Charged != 7 || r.InFlight != 0 || r.Pending != 4 {
		t.Errorf("after 20 hours: %+v", s)
	}
	f.Step(late + 50*ms)
	if got := hits(f.last()); f.last().Sequence != 2 || got["k"] != 4 {
		t.Errorf("the next report: %v", got)
	}
}

func TestReportHoldsSoManyKeys(t *testing.T) {
	f := newFleet(t, Options{ReportKeys: 10}, rule("r", 1000, time.Minute, 1))
	l := limiter(t, f.Checker, "r")
	for i := range 25 {
		l.CheckAt(noon, string(rune('a'+i)), 1)
	}
	f.Step(noon + 50*ms)
	for _, want := range []int{10, 10, 5} {
		r := f.last()
		if r.Hits.Keys() != want {
			t.Fatalf("report %d holds %d keys, want %d", r.Sequence, r.Hits.Keys(), want)
		}
		cells, totals := make([]uint32, want), make([]uint64, want)
		for i := range cells {
			cells[i], totals[i] = 1, 1
		}
		f.receive(noon+60*ms, events.KindRefresh, &events.Refresh{
			Epoch: r.Epoch, Sequence: r.Sequence, Generation: 1, KeyCells: cells, Age: make([]int64, want), Total: totals,
		})
	}
	if got := f.Stats().ReportsAnswered; got != 3 {
		t.Errorf("%d reports answered, want 3, each sent on the answer to the one before", got)
	}
}

func TestUnreportedHitsBecomeLate(t *testing.T) {
	f := newFleet(t, Options{}, rule("r", 1000, time.Second, 1))
	l := limiter(t, f.Checker, "r")
	l.CheckAt(noon, "k", 3)
	f.tape.err = errors.New("no network")
	f.Step(noon + 50*ms) // in flight as they are
	l.CheckAt(noon+second, "k", 4)
	l.CheckAt(noon+4*second, "k", 5)
	f.tape.err = nil
	f.Step(noon + 4*second + 50*ms)
	if got := hits(f.last())["k"]; got != 3 {
		t.Fatalf("the report in flight holds %d hits, want 3", got)
	}
	f.answer(noon+4*second+60*ms, 3)
	f.Step(noon + 4*second + 110*ms)
	r := f.last()
	if got := hits(r)["k"]; got != 5 || len(r.Late) != 1 || r.Late[0] != 4 {
		t.Errorf("the next one holds %d hits and %v late, want 5 and 4", got, r.Late)
	}
	f.answer(noon+4*second+120*ms, 5)
	if s := f.Stats().Rules[0]; s.Charged != 12 || s.Answered != 12 {
		t.Errorf("stats: %+v", s)
	}
}

func TestBucketsOfAReport(t *testing.T) {
	f := newFleet(t, Options{}, rule("r", 1000, time.Minute, 60))
	l := limiter(t, f.Checker, "r")
	for s := range int64(3) {
		l.CheckAt(noon+s*second, "k", s+1)
	}
	f.Step(noon + 2*second + 500*ms)
	r := f.last()
	newest := noon/second + 2
	if r.Hits.Rules[0].Newest != newest || len(r.Hits.Age) != 3 {
		t.Fatalf("newest %d, ages %v; want %d and three", r.Hits.Rules[0].Newest, r.Hits.Age, newest)
	}
	for i, age := range r.Hits.Age {
		if want := uint64(3 - age); r.Hits.Value[i] != want {
			t.Errorf("%d hits %d buckets ago, want %d", r.Hits.Value[i], age, want)
		}
	}
}

func TestAlarm(t *testing.T) {
	f := newFleet(t, Options{}, rule("r", 100, time.Minute, 1))
	l := limiter(t, f.Checker, "r")
	f.alarm(noon, 1, l, "never seen here", 100)
	if d := l.CheckAt(noon, "never seen here", 1); d.Allowed {
		t.Error("a caller who is over the limit elsewhere passed here")
	}
	f.alarm(noon, 1, l, "half", 50)
	if got := left(l, noon, "half"); got != 50 {
		t.Errorf("%d left, want 50", got)
	}
	// A holder of pending hits tells them soon: well before the 50 ms are over.
	f.Step(noon + 50*ms)
	l.CheckAt(noon+52*ms, "half", 1)
	f.alarm(noon+54*ms, 1, l, "half", 60)
	f.Step(noon + 56*ms)
	if got := hits(f.last())["half"]; got != 1 {
		t.Errorf("reported %d hits, want 1", got)
	}
}

// TestFlushFloor: an alarm about pending hits brings the flush forward, to the next tick that the floor
// allows, and wakes whoever steps.
func TestFlushFloor(t *testing.T) {
	for _, test := range []struct {
		floor, due time.Duration // after the last flush
	}{
		{0, 4 * time.Millisecond},
		{5 * time.Millisecond, 8 * time.Millisecond},
		{20 * time.Millisecond, 32 * time.Millisecond},
		{50 * time.Millisecond, 50 * time.Millisecond}, // the timer's: never early
	} {
		f := newFleet(t, Options{FlushFloor: test.floor}, rule("r", 100, time.Second, 1))
		l := limiter(t, f.Checker, "r")
		l.CheckAt(noon, "k", 1)
		for len(f.Wake()) > 0 {
			<-f.Wake()
		}
		f.alarm(noon+ms, 1, l, "k", 60)
		if woken := len(f.Wake()) == 1; woken != (test.floor < 50*time.Millisecond) {
			t.Errorf("floor %v: woken: %v", test.floor, woken)
		}
		due := noon + int64(test.due)
		if next := f.Step(noon + ms); next != due {
			t.Errorf("floor %v: next step after %v, want %v", test.floor, time.Duration(next-noon), test.due)
		}
		f.Step(due - 1)
		if len(f.tape.reports) != 0 {
			t.Errorf("floor %v: reported before %v", test.floor, test.due)
		}
		f.Step(due)
		if len(f.tape.reports) != 1 {
			t.Errorf("floor %v: not reported after %v", test.floor, test.due)
		}
	}
}

func TestAlarmsThatDoNotFit(t *testing.T) {
	f := newFleet(t, Options{}, rule("r", 100, time.Minute, 1))
	l := limiter(t, f.Checker, "r")
	for name, change := range map[string]func(*events.Alarm){
		"another window":    func(a *events.Alarm) { a.Totals.Rules[0].WindowMs = 1000 },
		"other buckets":     func(a *events.Alarm) { a.Totals.Rules[0].Buckets = 60 },
		"another algorithm": func(a *events.Alarm) { a.Totals.Rules[0].Algorithm = events.Algorithm_FIXED_WINDOW },
		"another rule":      func(a *events.Alarm) { a.Totals.Rules[0].Name = "other" },
		"no such shard":     func(a *events.Alarm) { a.Shard = 7 },
	} {
		a := &events.Alarm{Generation: 1, Totals: &events.Table{Rules: []*events.Rule{l.wire(noon)}}}
		a.Totals.AddKey(0, "k")
		a.Totals.AddCell(0, 100)
		change(a)
		f.receive(noon, events.KindAlarm, a)
		if got := left(l, noon, "k"); got != 100 {
			t.Errorf("%s: %d left, want the alarm ignored", name, got)
		}
	}
}

func TestGenerations(t *testing.T) {
	f := newFleet(t, Options{}, rule("r", 100, time.Minute, 1))
	l := limiter(t, f.Checker, "r")
	now := noon
	report := func() {
		t.Helper()
		l.CheckAt(now, "k", 1)
		now += 50 * ms
		f.Step(now)
	}
	want := func(why string, n int64) {
		t.Helper()
		if got := 100 - left(l, now, "k"); got != n {
			t.Errorf("%s: the count is %d, want %d", why, got, n)
		}
	}
	report()
	f.answerIn(now, 5, 70)
	want("generation 5", 70)
	report()
	f.answerIn(now, 6, 10)
	want("the new generation's totals replace the old", 10)
	if got := f.last(); got.Generation != 5 {
		t.Errorf("the report says generation %d, want the highest seen: 5", got.Generation)
	}
	report()
	f.answerIn(now, 5, 72)
	want("an answer of an older generation lands the report and tells nothing", 11)
	report()
	l.CheckAt(now, "k", 3)
	f.alarm(now, 7, l, "k", 4)
	want("an alarm of a new generation while hits are in flight is a floor only", 15)
	f.answerIn(now, 7, 5)
	want("the answer replaces: 5, and 3 pending", 8)
	f.alarm(now, 6, l, "k", 90)
	want("an alarm of an older generation tells nothing", 8)
}

func TestRefusedAnswers(t *testing.T) {
	f := newFleet(t, Options{}, rule("r", 100, time.Minute, 1))
	l := limiter(t, f.Checker, "r")
	l.CheckAt(noon, "k", 1)
	f.Step(noon + 50*ms)
	r := f.last()
	for name, m := range map[string]*events.Refresh{
		"another epoch":   {Epoch: r.Epoch + 1, Sequence: 1, KeyCells: []uint32{0}},
		"no such shard":   {Epoch: r.Epoch, Shard: 3, Sequence: 1, KeyCells: []uint32{0}},
		"totals too many": {Epoch: r.Epoch, Sequence: 1, KeyCells: []uint32{0, 0}},
	} {
		before := f.Stats()
		f.receive(noon+60*ms, events.KindRefresh, m)
		if after := f.Stats(); after.Unreadable != before.Unreadable+1 || after.Problem == "" || after.Rules[0].InFlight != 1 {
			t.Errorf("%s: %+v", name, after)
		}
	}
	f.answer(noon+70*ms, 1)
	if s := f.Stats(); s.Problem != "" || s.Rules[0].InFlight != 0 {
		t.Errorf("after a good answer: %+v", s)
	}
}

func TestShards(t *testing.T) {
	tape := new(tape)
	c := newChecker(t, Options{Link: tape}, rule("r", 100, time.Minute, 1))
	f := &fleet{c, t, tape}
	l := limiter(t, c, "r")
	for _, k := range []string{"a", "b", "c", "d", "e", "f"} {
		l.CheckAt(noon, k, 1)
	}
	f.Step(noon)
	f.Step(noon + 100*ms)
	if len(tape.reports) != 0 {
		t.Fatal("reported before the number of shards was known")
	}
	f.welcome(noon+110*ms, 4)
	f.Step(noon + 120*ms)
	seen := make(map[string]uint32)
	for _, r := range tape.reports {
		if r.Shards != 4 {
			t.Errorf("a report for %d shards", r.Shards)
		}
		for k := range hits(r) {
			if want := events.Shard("r", k, 4); r.Shard != want {
				t.Errorf("key %s in shard %d, want %d", k, r.Shard, want)
			}
			seen[k] = r.Shard
		}
	}
	if len(seen) != 6 {
		t.Errorf("reported %v", seen)
	}
	// A store made anew with another number: nobody can answer the reports in flight.
	l.CheckAt(noon+130*ms, "a", 2)
	f.Step(noon + 200*ms)
	f.welcome(noon+2200*ms, 2)
	if s := f.Stats(); s.Shards != 4 || s.Rules[0].Lost != 0 {
		t.Errorf("a change was believed when it was heard once: %+v", s)
	}
	f.welcome(noon+2210*ms, 2)
	f.Step(noon + 2300*ms)
	if s := f.Stats(); s.Rules[0].Lost != 6 || s.Rules[0].InFlight != 2 || s.Shards != 2 {
		t.Errorf("after another number of shards: %+v", s)
	}
}

// refuse answers the report of this number as an aggregator does that will not count it.
func (f *fleet) refuse(now int64, sequence uint64) {
	f.receive(now, events.KindRefresh, &events.Refresh{Epoch: f.Epoch(), Sequence: sequence, Error: "no"})
}

// TestRefusedReport: what nobody takes does not keep others from being sent for ever.
func TestRefusedReport(t *testing.T) {
	f := newFleet(t, Options{}, rule("r", 100, time.Minute, 1))
	l := limiter(t, f.Checker, "r")
	l.CheckAt(noon, "k", 1)
	f.Step(noon + 50*ms)
	l.CheckAt(noon+60*ms, "other", 2)
	hellos, first := len(f.tape.hellos), noon+100*ms
	for i, at := range []int64{first, first, first, first + int64(refusedFor) - 1, first + int64(refusedFor)} {
		if s := f.Stats(); s.Rules[0].InFlight != 1 || s.ReportsGivenUp != 0 {
			t.Fatalf("refused %d times: %+v", i, s)
		}
		f.refuse(at, 1)
	}
	if s := f.Stats(); s.Rules[0].Lost != 1 || s.Rules[0].InFlight != 0 || s.ReportsGivenUp != 1 || s.Problem == "" {
		t.Errorf("refused for so long: %+v", s)
	}
	f.Step(first + int64(refusedFor))
	if got := hits(f.last()); got["other"] != 2 || len(f.tape.hellos) == hellos {
		t.Errorf("the next report: %v; %d hellos asked for the number of shards", got, len(f.tape.hellos)-hellos)
	}
}

// TestRefusedSeldom: two refusals with a long sleep of the machine between them are not enough.
func TestRefusedSeldom(t *testing.T) {
	f := newFleet(t, Options{}, rule("r", 100, time.Minute, 1))
	limiter(t, f.Checker, "r").CheckAt(noon, "k", 1)
	f.Step(noon + 50*ms)
	f.refuse(noon+60*ms, 1)
	f.refuse(noon+int64(time.Hour), 1)
	if s := f.Stats(); s.Rules[0].InFlight != 1 || s.ReportsGivenUp != 0 {
		t.Errorf("%+v", s)
	}
}

// TestRefusedReportIsTakenByAnother: while a fleet is upgraded, an aggregator of before may refuse what one of the new version counts.
func TestRefusedReportIsTakenByAnother(t *testing.T) {
	f := newFleet(t, Options{ReportTimeout: 100 * time.Millisecond}, rule("r", 100, time.Minute, 1))
	limiter(t, f.Checker, "r").CheckAt(noon, "k", 3)
	now := noon + 50*ms
	f.Step(now)
	for i := range 20 {
		sent := len(f.tape.reports)
		f.refuse(now, 1)
		f.Step(now + 99*ms)
		if n := len(f.tape.reports); n != sent {
			t.Fatalf("refusal %d: sent again at once", i)
		}
		now += 100 * ms
		f.Step(now)
		if n := len(f.tape.reports); n != sent+1 || f.tape.bytes[n-1] != f.tape.bytes[0] {
			t.Fatalf("refusal %d: %d reports, want one more than %d, and the same bytes", i, n, sent)
		}
	}
	f.answer(now, 3)
	if s := f.Stats(); s.Rules[0].Lost != 0 || s.Rules[0].Answered != 3 || s.ReportsGivenUp != 0 || s.Problem != "" {
		t.Errorf("%+v", s)
	}
}

// TestSequencesNeverStartAgain: marks outlive a change of the number of shards and back.
func TestSequencesNeverStartAgain(t *testing.T) {
	f := newFleet(t, Options{}, rule("r", 100, time.Minute, 1))
	l := limiter(t, f.Checker, "r")
	now, last := noon, uint64(0)
	for i, shards := range []uint32{2, 1, 3, 1, 2, 1} {
		l.CheckAt(now, "k", 1)
		now += 50 * ms
		f.Step(now)
		r := f.last()
		if r.Sequence <= last {
			t.Fatalf("report %d has sequence %d, the one before had %d", i, r.Sequence, last)
		}
		last = r.Sequence
		f.answer(now, int64(i))
		f.welcome(now, shards)
		f.welcome(now, shards)
	}
}

// TestReportsAndAnswersAreBounded: with many buckets per window fewer keys go into a report, since
// its answer has to tell of all their buckets.
func TestReportsAndAnswersAreBounded(t *testing.T) {
	f := newFleet(t, Options{}, rule("day", 1e6, 24*time.Hour, 1440))
	l := limiter(t, f.Checker, "day")
	now := noon
	for range 400 { // an outage of 400 minutes
		for i := range 200 {
			l.CheckAt(now, string(rune('a'+i)), 1)
		}
		now += 60 * second
	}
	f.Step(now)
	r := f.last()
	if n := len(r.Hits.Age); r.Hits.Keys() == 0 || r.Hits.Keys()*1441 > reportCells+1441 || n > reportCells+1441 {
		t.Errorf("a report of %d keys and %d cells", r.Hits.Keys(), n)
	}
	if n := len(f.tape.bytes[len(f.tape.bytes)-1]); n > 1<<19 {
		t.Errorf("a report of %d bytes", n)
	}
}

// TestAlarmWhenFull: there is no room for a cell, but the alarm counts.
func TestAlarmWhenFull(t *testing.T) {
	f := newFleet(t, Options{MaxLiveKeys: 2}, rule("r", 100, time.Minute, 1))
	if err := f.idle.open(10); err != nil {
		t.Fatal(err)
	}
	defer f.idle.close()
	l := limiter(t, f.Checker, "r")
	l.CheckAt(noon, "a", 1)
	l.CheckAt(noon, "b", 1)
	f.alarm(noon, 1, l, "blocked", 100)
	f.idle.cache.Wait()
	if d := l.CheckAt(noon, "blocked", 1); d.Allowed {
		t.Errorf("passed: %+v", d)
	}
	if d := l.CheckAt(noon, "unknown", 101); d.Allowed || d.RetryAfter != Never {
		t.Errorf("a cost above the limit: %+v", d)
	}
}

func FuzzReceive(f *testing.F) {
	fl := newFleet(f, Options{}, rule("r", 100, time.Minute, 1))
	l := limiter(f, fl.Checker, "r")
	l.CheckAt(noon, "k", 1)
	fl.Step(noon + 50*ms)
	for kind, m := range map[events.Kind]events.Message{
		events.KindRefresh: &events.Refresh{Epoch: fl.Epoch(), Sequence: 1, KeyCells: []uint32{1}, Age: []int64{0}, Total: []uint64{1}},
		events.KindAlarm:   &events.Alarm{Totals: fl.last().Hits},
		events.KindWelcome: &events.Welcome{Epoch: fl.Epoch(), Shards: 3, Time: noon},
	} {
		payload, _ := events.Append(nil, m)
		f.Add(uint8(kind), payload)
	}
	now := noon + 50*ms
	f.Fuzz(func(t *testing.T, kind uint8, payload []byte) {
		now += ms
		fl.Receive(now, events.Kind(kind), payload)
		l.CheckAt(now, "k", 1)
		fl.Step(now)
		if d := left(l, now, "k"); d < 0 || d > 100 {
			t.Errorf("%d left of 100", d)
		}
	})
}
