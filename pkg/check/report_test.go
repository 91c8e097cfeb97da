package check

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/rules"
)

// TestHitsMoveFromPendingToBase, and are counted once at every step, whatever alarms come.
func TestHitsMoveFromPendingToBase(t *testing.T) {
	f, l := newFleetOf(t, 1, Options{}, 100, time.Minute)
	want := func(step string, n int64) {
		t.Helper()
		equal(t, 100-left(l, noon, "k"), n, step)
	}
	atTime(noon, l).Check("k", 5)
	want("pending 5", 5)
	atTime(noon+50*ms, f).Step()
	equal(t, hits(f.last())["k"], 5, "reported hits")
	want("in flight 5", 5)
	atTime(noon+60*ms, l).Check("k", 2)
	want("in flight 5, pending 2", 7)
	f.alarm(noon+61*ms, 1, l, "k", 30)
	want("an alarm of 30, which may hold the 5 in flight, but not the pending 2", 32)
	f.answer(noon+62*ms, 40)
	want("the answer of 40 holds the 5; pending 2", 42)
	f.answer(noon+63*ms, 90)
	want("an answer that comes twice is ignored", 42)
	f.alarm(noon+64*ms, 1, l, "k", 35)
	want("an old alarm takes nothing back", 42)
	atTime(noon+100*ms, f).Step()
	f.alarm(noon+101*ms, 1, l, "k", 42)
	want("the alarm may hold the 2 in flight: 42 either way", 42)
	f.answer(noon+102*ms, 50)
	want("the answer of 50 holds all own hits", 50)
	s := f.Stats().Rules[0]
	expect(t, s.Charged == 7 && s.Answered == 7 && s.InFlight == 0 && s.Pending == 0, "stats: %+v", s)
}

// TestReportIsRepeatedUnchanged for hours: it tries soon, then backs off up to 8 × 100 ms, and what
// is admitted meanwhile goes together into the next.
func TestReportIsRepeatedUnchanged(t *testing.T) {
	f, l := newFleetOf(t, 1, Options{Tuning: tuning{ReportTimeout: 100 * time.Millisecond}}, 1000, time.Minute)
	atTime(noon, l).Check("k", 1)
	var at []int64
	now := noon
	for ; now < noon+4*second; now += 10 * ms {
		before := len(f.tape.bytes)
		if atTime(now, f).Step(); len(f.tape.bytes) > before {
			at = append(at, (now-noon)/ms)
		}
	}
	want := []int64{50, 150, 250, 350, 450, 550, 750, 1150, 1950, 2750, 3550}
	require(t, slices.Equal(at, want), "sent at %v ms, want %v", at, want)
	for i := range 40 * 60 { // an hour
		atTime(now, l).Check("k", 1)
		if i%10 == 0 {
			atTime(now, l).Check("other", 1)
		}
		now += 1500 * ms
		atTime(now, f).Step()
	}
	for i, b := range f.tape.bytes {
		require(t, b == f.tape.bytes[0], "sending %d differs from the first", i)
	}
	equal(t, len(f.tape.bytes), len(want)+40*60, "sendings, one at each step")
	f.answer(now, 1)
	r := f.last()
	expect(t, r.Sequence == 2 && hits(r)["k"] != 0 && hits(r)["other"] != 0, "the next report has %v", hits(r))
}

// TestReportIsGivenUpAfterTwentyHours, since marks last a day, and counted as lost.
func TestReportIsGivenUpAfterTwentyHours(t *testing.T) {
	f, l := newFleetOf(t, 1, Options{}, 1000, time.Minute)
	atTime(noon, l).Check("k", 3)
	atTime(noon+50*ms, f).Step()
	late := noon + int64(20*time.Hour) + second
	atTime(late, l).Check("k", 4)
	atTime(late, f).Step()
	s := f.Stats()
	r := s.Rules[0]
	expect(t, s.ReportsGivenUp == 1 && r.Lost == 3 && r.Charged == 7 && r.InFlight == 0 && r.Pending == 4,
		"after 20 hours: %+v", s)
	f.join(late, 1, 0) // somebody is there again
	atTime(late+50*ms, f).Step()
	got := hits(f.last())
	expect(t, f.last().Sequence == 2 && got["k"] == 4, "the next report: %v", got)
}

// TestLargeReportsAreSplit, each sent on the answer to the one before.
func TestLargeReportsAreSplit(t *testing.T) {
	f, l := newFleetOf(t, 1, Options{Tuning: tuning{ReportKeys: 10}}, 1000, time.Minute)
	for i := range 25 {
		atTime(noon, l).Check(string(rune('a'+i)), 1)
	}
	atTime(noon+50*ms, f).Step()
	for _, want := range []int{10, 10, 5} {
		r := f.last()
		require(t, r.Hits.Keys() == want, "report %d holds %d keys, want %d", r.Sequence, r.Hits.Keys(), want)
		f.answerRows(noon+60*ms, make([]uint64, want)...)
	}
	equal(t, f.Stats().ReportsAnswered, 3, "reports answered")
}

// TestReportsAndAnswersAreBounded: with many buckets per window fewer keys go into a report, since
// its answer has all their buckets.
func TestReportsAndAnswersAreBounded(t *testing.T) {
	f, l := fleetAndLimiter(t, Options{}, rule("day", 1e6, 24*time.Hour, 1440))
	now := noon
	for range 120 { // an outage of as many minutes
		for i := range 100 {
			atTime(now, l).Check(string(rune('a'+i)), 1)
		}
		now += 60 * second
	}
	atTime(now, f).Step()
	r := f.last()
	keys, cells, bytes := r.Hits.Keys(), len(r.Hits.Age), len(f.tape.bytes[0])
	expect(t, keys > 0 && keys < 100 && keys*1441 <= bucketsReported+1441 && cells <= bucketsReported+1441 && bytes <= 1<<19,
		"a report of %d keys, %d cells, and %d bytes", keys, cells, bytes)
}

// TestBucketsOfAReport are those of the hits' times.
func TestBucketsOfAReport(t *testing.T) {
	f, l := fleetAndLimiter(t, Options{}, rule("r", 1000, time.Minute, 60))
	for s := range int64(3) {
		atTime(noon+s*second, l).Check("k", s+1)
	}
	atTime(noon+2*second+500*ms, f).Step()
	r := f.last()
	newest := noon/second + 2
	require(t, r.Hits.Rules[0].Newest == newest && len(r.Hits.Age) == 3,
		"newest %d, ages %v; want %d and three", r.Hits.Rules[0].Newest, r.Hits.Age, newest)
	for i, age := range r.Hits.Age {
		equal(t, r.Hits.Value[i], uint64(3-age), "hits %d buckets ago", age)
	}
}

func TestHitsThatHaveLeftTheWindowAreReportedLate(t *testing.T) {
	f, l := newFleetOf(t, 1, Options{}, 1000, time.Second)
	atTime(noon, l).Check("k", 3)
	f.tape.err = errors.New("no network")
	atTime(noon+50*ms, f).Step() // in flight as they are
	atTime(noon+second, l).Check("k", 4)
	atTime(noon+4*second, l).Check("k", 5)
	f.tape.err = nil
	atTime(noon+4*second+50*ms, f).Step()
	equal(t, hits(f.last())["k"], 3, "hits of the report in flight")
	f.answer(noon+4*second+60*ms, 3)
	atTime(noon+4*second+110*ms, f).Step()
	r := f.last()
	got := hits(r)["k"]
	expect(t, got == 5 && len(r.Late) == 1 && r.Late[0] == 4, "the next one holds %d hits and %v late, want 5 and 4", got, r.Late)
	f.answer(noon+4*second+120*ms, 5)
	s := f.Stats().Rules[0]
	expect(t, s.Charged == 12 && s.Answered == 12, "stats: %+v", s)
}

// TestAnswersThatDoNotFitAreRefused, and the report stays in flight.
func TestAnswersThatDoNotFitAreRefused(t *testing.T) {
	f, l := newFleetOf(t, 1, Options{}, 100, time.Minute)
	atTime(noon, l).Check("k", 1)
	atTime(noon+50*ms, f).Step()
	r := f.last()
	for name, m := range map[string]*events.Refresh{
		"another epoch":   {Epoch: r.Epoch + 1, Sequence: 1, KeyCells: []uint32{0}},
		"no such shard":   {Epoch: r.Epoch, Shard: 3, Sequence: 1, KeyCells: []uint32{0}},
		"totals too many": {Epoch: r.Epoch, Sequence: 1, KeyCells: []uint32{0, 0}},
	} {
		before := f.Stats()
		f.receive(noon+60*ms, events.KindRefresh, m)
		after := f.Stats()
		expect(t, after.Unreadable == before.Unreadable+1 && after.Problem != "" && after.Rules[0].InFlight == 1,
			"%s: %+v", name, after)
	}
	f.answer(noon+70*ms, 1)
	s := f.Stats()
	expect(t, s.Problem == "" && s.Rules[0].InFlight == 0, "after a good answer: %+v", s)
}

// TestReportsGoToTheirShards once their number is known; when it changes, what is in flight is
// lost.
func TestReportsGoToTheirShards(t *testing.T) {
	f := unwelcomed(t, Options{}, rule("r", 100, time.Minute, 1))
	tape, l := f.tape, limiter(t, f.Checker, "r")
	for _, k := range []string{"a", "b", "c", "d", "e", "f"} {
		atTime(noon, l).Check(k, 1)
	}
	atTime(noon, f).Step()
	atTime(noon+100*ms, f).Step()
	require(t, len(tape.reports) == 0, "reported before the number of shards was known")
	f.welcome(noon+110*ms, 4)
	atTime(noon+120*ms, f).Step()
	seen := make(map[string]uint32)
	for _, r := range tape.reports {
		equal(t, r.Shards, 4, "shards of a report")
		for k := range hits(r) {
			equal(t, r.Shard, events.Shard("r", k, 4), "shard of %s", k)
			seen[k] = r.Shard
		}
	}
	equal(t, len(seen), 6, "keys reported")
	// A store made anew with another number: nobody can answer the reports in flight.
	atTime(noon+130*ms, l).Check("a", 2)
	atTime(noon+200*ms, f).Step()
	f.welcome(noon+2200*ms, 2)
	s := f.Stats()
	expect(t, s.Shards == 4 && s.Rules[0].Lost == 0, "a change was believed when it was heard once: %+v", s)
	f.welcome(noon+2210*ms, 2)
	atTime(noon+2300*ms, f).Step()
	s = f.Stats()
	expect(t, s.Rules[0].Lost == 6 && s.Rules[0].InFlight == 2 && s.Shards == 2, "after another number of shards: %+v", s)
}

// refuse answers a report as an aggregator that does not count it.
func (f *fleet) refuse(now int64, sequence uint64) {
	f.receive(now, events.KindRefresh, &events.Refresh{Epoch: f.o.Epoch, Sequence: sequence, Error: "no"})
}

// TestRefusedReportIsGivenUp after a while, so that others are not held up for ever; two refusals
// with a sleep of the machine between them are not enough.
func TestRefusedReportIsGivenUp(t *testing.T) {
	f, l := newFleetOf(t, 1, Options{}, 100, time.Minute)
	atTime(noon, l).Check("k", 1)
	atTime(noon+50*ms, f).Step()
	atTime(noon+60*ms, l).Check("other", 2)
	hellos, first := len(f.tape.hellos), noon+100*ms
	for i, at := range []int64{first, first, first, first + int64(refusalsFor) - 1, first + int64(refusalsFor)} {
		s := f.Stats()
		require(t, s.Rules[0].InFlight == 1 && s.ReportsGivenUp == 0, "refused %d times: %+v", i, s)
		f.refuse(at, 1)
	}
	s := f.Stats()
	expect(t, s.Rules[0].Lost == 1 && s.Rules[0].InFlight == 0 && s.ReportsGivenUp == 1 && s.Problem != "",
		"refused for so long: %+v", s)
	atTime(first+2*int64(refusalsFor), f).Step()
	got := hits(f.last())
	expect(t, got["other"] == 2 && len(f.tape.hellos) != hellos,
		"the next report: %v; %d hellos asked for the number of shards", got, len(f.tape.hellos)-hellos)

	f = newFleet(t, Options{}, rule("r", 100, time.Minute, 1))
	atTime(noon, limiter(t, f.Checker, "r")).Check("k", 1)
	atTime(noon+50*ms, f).Step()
	f.refuse(noon+60*ms, 1)
	f.refuse(noon+int64(time.Hour), 1)
	s = f.Stats()
	expect(t, s.Rules[0].InFlight == 1 && s.ReportsGivenUp == 0, "%+v", s)
}

// TestRefusedReportIsRepeated: while a fleet is upgraded, an older aggregator may refuse what a
// newer one counts.
func TestRefusedReportIsRepeated(t *testing.T) {
	f := newFleet(t, Options{Tuning: tuning{ReportTimeout: 100 * time.Millisecond}}, rule("r", 100, time.Minute, 1))
	atTime(noon, limiter(t, f.Checker, "r")).Check("k", 3)
	now := noon + 50*ms
	atTime(now, f).Step()
	for i := range 20 {
		sent := len(f.tape.reports)
		f.refuse(now, 1)
		atTime(now+99*ms, f).Step()
		n := len(f.tape.reports)
		require(t, n == sent, "refusal %d: sent again at once", i)
		now += 100 * ms
		atTime(now, f).Step()
		n = len(f.tape.reports)
		require(t, n == sent+1 && f.tape.bytes[n-1] == f.tape.bytes[0],
			"refusal %d: %d reports, want one more than %d, and the same bytes", i, n, sent)
	}
	f.answer(now, 3)
	s := f.Stats()
	expect(t, s.Rules[0].Lost == 0 && s.Rules[0].Answered == 3 && s.ReportsGivenUp == 0 && s.Problem == "", "%+v", s)
}

// TestSequencesNeverStartAgain: marks outlive a change of the number of shards and back.
func TestSequencesNeverStartAgain(t *testing.T) {
	f, l := newFleetOf(t, 1, Options{}, 100, time.Minute)
	now, last := noon, uint64(0)
	for i, shards := range []uint32{2, 1, 3, 1, 2, 1} {
		atTime(now, l).Check("k", 1)
		now += 50 * ms
		atTime(now, f).Step()
		r := f.last()
		require(t, r.Sequence > last, "report %d has sequence %d, the one before had %d", i, r.Sequence, last)
		last = r.Sequence
		f.answer(now, int64(i))
		f.welcome(now, shards)
		f.welcome(now, shards)
	}
}

// FuzzReceive: whatever is received, nothing panics, and counts stay within the limit.
func FuzzReceive(f *testing.F) {
	fl := newFleet(f, Options{}, rule("r", 100, time.Minute, 1))
	l := limiter(f, fl.Checker, "r")
	atTime(noon, l).Check("k", 1)
	atTime(noon+50*ms, fl).Step()
	for kind, m := range map[events.Kind]events.Message{
		events.KindRefresh: &events.Refresh{Epoch: fl.o.Epoch, Sequence: 1, KeyCells: []uint32{1}, Age: []int64{0}, Total: []uint64{1}},
		events.KindAlarm:   &events.Alarm{Totals: fl.last().Hits},
		events.KindWelcome: &events.Welcome{Epoch: fl.o.Epoch, Shards: 3, Time: noon},
	} {
		f.Add(uint8(kind), encode(f, m))
	}
	now := noon + 50*ms
	f.Fuzz(func(t *testing.T, kind uint8, payload []byte) {
		now += ms
		atTime(now, fl).Receive(events.Kind(kind), payload)
		atTime(now, l).Check("k", 1)
		atTime(now, fl).Step()
		d := left(l, now, "k")
		expect(t, d >= 0 && d <= 100, "%d left of 100", d)
	})
}

// TestReportsOfTheLargestRulesFit: as many rules as there may be, with the longest names, keys and
// settlements, at the end of an outage in which the hits of most have become late: each report fits
// a message of NATS with much to spare, and all is reported.
func TestReportsOfTheLargestRulesFit(t *testing.T) {
	const count, fits = 12_000, 900 << 10
	list := make([]rules.Rule, count)
	for i := range list {
		list[i] = rule(fmt.Sprintf("%0*d", events.MaxRuleName, i), 1e15, time.Second, 1)
	}
	f := unwelcomed(t, Options{}, list...)
	key := strings.Repeat("k", 512)
	charge := func(now int64, each int) {
		for i := 0; i < count; i += each {
			l := limiter(t, f.Checker, list[i].Name)
			mustSettle(t, f.Checker, now, receipt(t, l, now, key, 1), 2)
		}
	}
	charge(noon, 1)
	now := noon + 10*second
	charge(now, 4)
	atTime(now, f).Step()
	f.welcome(now, 1)
	late, counted, settled := uint64(0), uint64(0), 0
	for end := now + 60*second; now < end; now += 50 * ms {
		reports := len(f.tape.reports)
		atTime(now, f).Step()
		for ; reports < len(f.tape.reports); reports++ {
			m := f.last()
			if size := len(f.tape.bytes[len(f.tape.bytes)-1]); size > fits {
				t.Fatalf("report %d has %d bytes: %d rules, %d keys, %d late counts, %d settlements",
					m.Sequence, size, len(m.Hits.Rules), m.Hits.Keys(), len(m.Late), len(m.Settlements))
			}
			for _, n := range m.Late {
				late += n
			}
			for _, n := range m.Hits.Value {
				counted += n
			}
			settled += len(m.Settlements)
			f.answerAll(now, len(m.Settlements))
		}
	}
	expect(t, late+counted == count+count/4 && counted > 0 && settled == count+count/4, "late %d, counted %d, settled %d", late, counted, settled)
}
