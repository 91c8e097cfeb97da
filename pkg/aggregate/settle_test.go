package aggregate_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/events"
)

// charge is what a receipt says of a hit of key "a" that was charged age buckets before now.
func charge(rule *events.Rule, age int64, cost uint64) *events.Charge {
	rule.Newest -= age
	return &events.Charge{Rule: rule, Key: []byte("a"), Cost: cost}
}

// settlement settles number n of the receipts of checker 77.
func settlement(now int64, n uint64, c *events.Charge, hits int64) *events.Settlement {
	return &events.Settlement{Epoch: 77, Number: n, Made: now, Charge: c, Hits: hits}
}

// settle settles a hit of perMinute that was charged now.
func settle(now int64, n, cost uint64, hits int64) *events.Settlement {
	return settlement(now, n, charge(perMinute(now), 0, cost), hits)
}

// asks is a report of one minute's hits of key "a", which asks for what was refunded of them too.
func asks(sequence uint64, now int64, hits uint64, settlements ...*events.Settlement) *events.Report {
	return asksOf(perMinute, sequence, now, hits, settlements...)
}

func asksOf(rule func(int64) *events.Rule, sequence uint64, now int64, hits uint64, settlements ...*events.Settlement) *events.Report {
	m := report(1, sequence, rule(now))
	back := rule(now)
	back.Refunded = true
	m.Hits.Rules = append(m.Hits.Rules, back)
	m.Hits.AddKey(1, "a")
	m.Hits.AddKey(0, "a")
	m.Hits.AddCell(0, hits)
	m.Settlements = settlements
	return m
}

func TestSettlementsAreCountedOnce(t *testing.T) {
	store := memstore.New()
	d, now := newFixture(t, store), start+20*second
	d.want("before", totals(d.exchange(now, asks(1, now, 100))), " | 0:100")
	of := func(n uint64, age int64, hits int64) *events.Settlement {
		return settlement(now, n, charge(perMinute(now), age, 10), hits)
	}
	for i, r := range []struct {
		why                                      string
		settles                                  []*events.Settlement
		answer                                   string // refunded | admitted
		counted, late, refused, settled, refunds int64
	}{
		{"up", []*events.Settlement{of(1, 0, 5)}, " | 0:105", 105, 0, 0, 5, 0},
		{"down", []*events.Settlement{of(2, 0, -7)}, "0:7 | 0:105", 105, 0, 0, 5, 7},
		{"both again", []*events.Settlement{of(1, 0, 5), of(2, 0, -7)}, "0:7 | 0:105", 105, 0, 0, 5, 7},
		{"again with another cost", []*events.Settlement{of(2, 0, -9)}, "0:7 | 0:105", 105, 0, 0, 5, 7},
		{"twice in one report", []*events.Settlement{of(3, 0, -1), of(3, 0, -2)}, "0:8 | 0:105", 105, 0, 0, 5, 8},
		{"as it was estimated", []*events.Settlement{of(4, 0, 0)}, "0:8 | 0:105", 105, 0, 0, 5, 8},
		{"then not so", []*events.Settlement{of(4, 0, -3)}, "0:8 | 0:105", 105, 0, 0, 5, 8},
		{"of an earlier bucket", []*events.Settlement{of(5, 9, -3)}, "0:8 9:3 | 0:105", 105, 0, 0, 5, 11},
		{"its bucket is gone", []*events.Settlement{of(6, 61, -2)}, "0:8 9:3 | 0:105", 105, 0, 0, 5, 13},
		{"the same, up", []*events.Settlement{of(7, 61, 4)}, "0:8 9:3 | 0:105", 105, 4, 0, 9, 13},
		{"of the far future", []*events.Settlement{of(8, -60, 1)}, "0:8 9:3 | 0:105", 105, 4, 1, 10, 13},
		{"more than the cost, and one that is right", []*events.Settlement{of(9, 0, -11), of(10, 0, -10)},
			"0:18 9:3 | 0:105", 105, 4, 1, 10, 23},
	} {
		m := asks(uint64(i)+2, now, 0, r.settles...)
		want := storage.RuleLedger{Counted: r.counted, Late: r.late, Refused: r.refused, Settled: r.settled, Refunded: r.refunds}
		for _, again := range []string{"", " (repeated)"} { // as it is sent if the answer is lost
			answer := d.exchange(now, m)
			d.want(r.why, totals(answer), r.answer+again)
			wantLedger(t, r.why+again, store, "per-minute", want)
			dealt := len(r.settles)
			if again != "" { // nobody knows any more which of them were covered
				dealt = 0
			}
			if got := answer.GetSettlements(); int(got) != dealt {
				t.Errorf("%s%s: %d settlements dealt with", r.why, again, got)
			}
		}
	}
	s := d.worker.Stats()
	if s.SettlementsRefused != 2 || s.SettlementsApplied != 9 || s.HitsRefunded != 23 || s.HitsSettled != 10 {
		t.Errorf("stats: %+v", s)
	}
	later := now + 21*int64(time.Hour)
	d.want("a day later", totals(d.exchange(later, asks(99, later, 1))), " | 0:1")
}

// Who asks for what was refunded of a bucket, and not for its hits, is answered like any other.
func TestRefundsAlone(t *testing.T) {
	d := newFixture(t, memstore.New())
	d.exchange(start, asksOf(tokens, 1, start, 9, settlement(start, 1, charge(tokens(start), 0, 9), -2)))
	r := tokens(start)
	r.Refunded = true
	got := d.exchange(start, report(2, 1, r, own{"a", 0, 5}))
	d.want("refunds", totals(got), "0:2")
	d.want("levels", levels(got), "")
}

// What makes no sense is left out; the report's hits count.
func TestInvalidSettlementsAreLeftOut(t *testing.T) {
	ok := func() *events.Settlement { return settle(start, 1, 10, -1) }
	for why, change := range map[string]func(*events.Settlement){
		"no epoch":        func(m *events.Settlement) { m.Epoch = 0 },
		"no charge":       func(m *events.Settlement) { m.Charge = nil },
		"refunded hits":   func(m *events.Settlement) { m.Charge.Rule.Refunded = true },
		"too much":        func(m *events.Settlement) { m.Hits = -11 },
		"far too much":    func(m *events.Settlement) { m.Hits = events.MaxCount + 1 },
		"too old":         func(m *events.Settlement) { m.Made = start - int64(events.MaxReceiptAge) - 10*ms },
		"of the future":   func(m *events.Settlement) { m.Made = start + 2*int64(time.Hour) },
		"a bad window":    func(m *events.Settlement) { m.Charge.Rule.Buckets = 7 },
		"a bucket beyond": func(m *events.Settlement) { m.Charge.Rule.Newest = 1<<42 + 1 },
	} {
		store := memstore.New()
		d := newFixture(t, store)
		bad := ok()
		change(bad)
		answer := d.exchange(start, asks(1, start, 5, bad))
		if d.want(why, totals(answer), " | 0:5"); answer.GetSettlements() != 1 || d.worker.Stats().SettlementsRefused != 1 {
			t.Errorf("%s: %+v", why, d.worker.Stats())
		}
		wantLedger(t, why, store, "per-minute", storage.RuleLedger{Counted: 5})
	}

	store := memstore.New()
	d := newFixture(t, store)
	m := asks(1, start, 5)
	for range events.MaxSettlements + 1 {
		m.Settlements = append(m.Settlements, ok())
	}
	if got := d.exchange(start, m); got.GetError() == "" {
		t.Errorf("%d settlements in one report: %v", len(m.Settlements), got)
	}
	oldest := ok()
	oldest.Made = start - int64(events.MaxReceiptAge)
	if d.exchange(start, asks(2, start, 1, oldest)); d.worker.Stats().SettlementsApplied != 1 {
		t.Errorf("as old as may be: %+v", d.worker.Stats())
	}
	store = memstore.New()
	d = newFixture(t, store)
	m = asks(1, start, 50) // and hits that it calls refunded
	m.Hits.Value, m.Hits.Age, m.Hits.KeyCells = []uint64{30, 50}, []int64{0, 0}, []uint32{1, 1}
	d.want("only settlements refund", totals(d.exchange(start, m)), " | 0:50")
	wantLedger(t, "only settlements refund", store, "per-minute", storage.RuleLedger{Counted: 50})
}

// Settlements of another shard's keys would count where nobody looks for them.
func TestSettlementOfAnotherShardIsLeftOut(t *testing.T) {
	d := newFixture(t, memstore.New(), func(o *aggregate.Options) { o.Shards = 7 })
	right := events.Shard("per-minute", "a", 7)
	for shard := range uint32(7) {
		m := asks(1, start, 1)
		m.Shards, m.Shard = 7, shard
		m.Settlements = []*events.Settlement{settle(start, 1, 1, -1)}
		before := d.worker.Stats().SettlementsApplied
		d.exchange(start, m)
		if applied := d.worker.Stats().SettlementsApplied > before; applied != (shard == right) {
			t.Errorf("shard %d, right is %d: applied: %v", shard, right, applied)
		}
	}
}

// Two workers of one store get the same receipt's settlement: one of them counts it.
func TestOneReceiptAtTwoWorkers(t *testing.T) {
	store := memstore.New()
	a, b := newFixture(t, store), newFixture(t, store)
	a.exchange(start, asks(1, start, 50))
	a.exchange(start, asks(2, start, 0, settle(start, 1, 40, -30)))
	m := asks(1, start, 3, settle(start, 1, 40, -20), settle(start, 2, 40, +2))
	m.Epoch = 2
	b.want("the second", totals(b.exchange(start, m)), "0:30 | 0:55")
	wantLedger(t, "both", store, "per-minute", storage.RuleLedger{Counted: 55, Refunded: 30, Settled: 2})
	if s := b.worker.Stats(); s.Retries != 1 || s.Repeated != 0 {
		t.Errorf("stats: %+v", s)
	}
}

// A store that has lost its data does not know which receipts were settled, and a worker does not
// know better.
func TestSettledIsWhatTheStoreSays(t *testing.T) {
	store := memstore.New()
	d := newFixture(t, store)
	for i, want := range []int64{1, 1, 2} { // settled by all workers
		if i == 2 {
			store.Lose()
		}
		d.exchange(start, asks(uint64(i)+1, start, 9, settle(start, 1, 10, -1)))
		if got := d.worker.Stats().SettlementsApplied; got != want {
			t.Errorf("%d: %d applied, want %d", i, got, want)
		}
	}
}

// A key that was near its limit until it got hits back raises an alarm; one that was not does not.
func TestRefundsRaiseAlarms(t *testing.T) {
	d := newFixture(t, memstore.New())
	for i, step := range []struct {
		why         string
		hits        uint64
		settlements []*events.Settlement
		want        []string
	}{
		{"over the limit", 100, nil, []string{"per-minute a 0:100"}},
		{"refunded", 0, []*events.Settlement{settle(start, 1, 90, -80)}, []string{"per-minute a 0:80", "per-minute a 0:100"}},
		{"far below the limit: 21 count", 1, nil, nil},
		{"and 16", 0, []*events.Settlement{settle(start, 2, 90, -5)}, nil},
		{"46 count", 30, nil, nil},
		{"50 count", 4, nil, []string{"per-minute a 0:85", "per-minute a 0:135"}},
	} {
		now := start + int64(i+1)*20*ms // longer than from alarm to alarm
		d.exchange(now, asks(uint64(i)+1, start, step.hits, step.settlements...))
		d.step(now + 10*ms)
		for _, alarm := range d.wantAlarms(step.why, step.want...) {
			refunded := alarm.GetTotals().GetRules()[0].GetKind() == events.RowKind_REFUNDED
			if refunded != (alarm.GetFormat() == events.FormatRefunds) { // or older checkers take them for others
				t.Errorf("%s: %v", step.why, alarm)
			}
		}
	}
}

// A bucket that has room again raises an alarm, with its level.
func TestRefundsOfLevelsRaiseAlarms(t *testing.T) {
	d := newFixture(t, memstore.New())
	d.exchange(start, asksOf(tokens, 1, start, 100))
	now := start + 61*second
	d.step(now)
	d.exchange(now, asksOf(tokens, 2, now, 20))
	d.step(now + 10*ms)
	d.bus.alarms = nil
	now += 20 * ms
	d.exchange(now, asksOf(tokens, 3, now, 0, settlement(now, 1, charge(tokens(now), 0, 15), -15)))
	d.step(now + 10*ms)
	alarms := d.wantAlarms("room again", "tokens a 0:15", "tokens a 0:20")
	d.want("levels", levels(alarms[1].GetTotals()), "61:6000")
}

// A checker that was refused permits learns that some are free again, even if the hits that had
// spent them are not reported yet.
func TestFreedPermitsRaiseAlarms(t *testing.T) {
	d := newFixture(t, memstore.New())
	c := charge(perMinute(start), 0, 10)
	c.Permits = true
	d.exchange(start, asks(1, start, 0, settlement(start, 1, c, +1)))
	d.step(start + 10*ms)
	d.wantAlarms("more were spent")
	d.exchange(start+20*ms, asks(2, start, 1, settlement(start, 2, c, -1)))
	d.step(start + 30*ms)
	d.wantAlarms("fewer were spent", "per-minute a 0:1", "per-minute a 0:2")
}

// Answers to those who do not ask for refunds name the rules that have some.
func TestAnswersNameRulesWithRefunds(t *testing.T) {
	d := newFixture(t, memstore.New())
	plain := func(sequence uint64, now int64) *events.Refresh {
		m := report(2, sequence, perSecond(now), own{"x", 0, 1})
		addHits(m, perMinute(now), own{"b", 0, 1})
		return d.exchange(now, m)
	}
	want := func(why string, m *events.Refresh, rules int) {
		t.Helper()
		if got := m.GetRefunding(); len(got) != rules || rules == 1 && got[0] != 1 {
			t.Errorf("%s: %v", why, got)
		}
	}
	want("before there are any", plain(1, start), 0)
	d.exchange(start, asks(1, start, 50))
	want("asked for only", plain(2, start), 0)
	d.exchange(start, asks(2, start, 0, settle(start, 1, 1, -1)))
	want("after one", plain(3, start), 1)
	want("to one who asks", d.exchange(start, asks(3, start, 1)), 0)
	later := start + 4*int64(time.Minute)
	d.step(later)
	want("windows later", plain(4, later), 0)
}

// TestNoCredentialGivesBackMoreThanItReported: a checker that makes settlements up lowers no count
// by more than those of its own credential have reported under that rule in that window, in
// whatever order, and at whichever worker.
func TestNoCredentialGivesBackMoreThanItReported(t *testing.T) {
	store := memstore.New()
	a, b := newFixture(t, store), newFixture(t, store)
	of := func(owner, sequence, hits uint64, settlements ...*events.Settlement) *events.Report {
		m := asks(sequence, start, hits, settlements...)
		m.Epoch = owner<<40 + 1
		m.Hits.Rules[0].Settles = true
		return m
	}
	made := uint64(0)
	up := func(n int64) *events.Settlement {
		made++
		return settle(start, made, uint64(n), -n)
	}
	a.exchange(start, of(1, 1, 100))
	for i, step := range []struct {
		why       string
		at        *fixture
		report    *events.Report
		refunded  string
		uncovered []uint32
	}{
		{"one that has reported nothing", a, of(2, 1, 0, up(events.MaxCount)), "", []uint32{0}},
		{"it reports 5: no more than these", a, of(2, 2, 5, up(6), up(3), up(2)), "0:5", []uint32{0}},
		{"nor at another worker", b, of(2, 3, 0, up(1)), "0:5", []uint32{0}},
		{"what others have reported is theirs", b, of(1, 2, 0, up(101), up(99)), "0:104", []uint32{0}},
		{"once it has reported more", b, of(2, 4, 1, up(1)), "0:105", nil},
	} {
		got := step.at.exchange(start, step.report)
		step.at.want(step.why, strings.Split(totals(got), " | ")[0], step.refunded)
		if !slices.Equal(got.GetUncovered(), step.uncovered) {
			t.Errorf("%d, %s: uncovered %v, want %v", i, step.why, got.GetUncovered(), step.uncovered)
		}
	}
}

// TestMadeUpSettlementsAreBounded: settlements of made-up receipts, each of another checker or far
// from the last number, take up no more than the bound for one credential; hits, and what others
// settle, count.
func TestMadeUpSettlementsAreBounded(t *testing.T) {
	store := memstore.New()
	d := newFixture(t, store, func(o *aggregate.Options) { o.MaxChunks = 1000 })
	applied := func(owner, sequence uint64, settlements ...*events.Settlement) int64 {
		t.Helper()
		m := asks(sequence, start, 1, settlements...)
		m.Epoch = owner<<40 + 1
		before := d.worker.Stats().SettlementsApplied
		if got := d.exchange(start, m); got.GetError() != "" || int(got.GetSettlements()) != len(settlements) {
			t.Fatalf("%v", got)
		}
		return d.worker.Stats().SettlementsApplied - before
	}
	made, sum := uint64(0), int64(0)
	for sequence := range uint64(40) {
		var list []*events.Settlement
		for range events.MaxSettlements {
			made++
			m := settle(start, 1+made%2*made*storage.Chunk, 10, 0)
			m.Epoch = 5<<40 + (1+made)%2*made
			list = append(list, m)
		}
		sum += applied(1, sequence+1, list...)
	}
	if s := d.worker.Stats(); sum != 1000 || s.SettlementsOverflow != 19_000 {
		t.Errorf("%d of 20,000 settlements applied: %+v", sum, s)
	}
	if n := applied(1, 41, settle(start, 2, 10, 0)) + applied(2, 1, settle(start, 1, 10, +1)); n != 1 {
		t.Errorf("%d applied of one of that credential and one of another", n)
	}
	wantLedger(t, "in the end", store, "per-minute", storage.RuleLedger{Counted: 43, Settled: 1})
}

// TestUnknownKinds: rows of hits of a kind that this build does not know are neither counted nor
// answered; others of the report are.
func TestUnknownKinds(t *testing.T) {
	store := memstore.New()
	d := newFixture(t, store)
	for i, rule := range []func(int64) *events.Rule{perMinute, tokens} {
		unknown := rule(start)
		unknown.Kind = events.RowKind_REFUNDED + 1
		m := report(1, uint64(i)+1, unknown, own{"a", 0, 7}, own{"b", 0, 8})
		addHits(m, rule(start), own{"a", 0, 5})
		addHits(m, unknown, own{"c", 0, 9})
		m.Late = []uint64{3}
		d.want("answer", totals(d.exchange(start, m)), " |  | 0:5 | ")
		wantLedger(t, "ledger", store, unknown.Name, storage.RuleLedger{Counted: 5})
	}
	later := perMinute(start)
	later.Algorithm = events.Algorithm_LEAKY_BUCKET + 1
	many := report(2, 1, perMinute(start), own{"a", 0, 1})
	for len(many.Hits.Rules) <= events.MaxRules {
		many.Hits.Rules = append(many.Hits.Rules, perMinute(start))
	}
	for _, refused := range []*events.Report{report(2, 1, later, own{"a", 0, 1}), many} {
		if got := d.exchange(start, refused); got.GetError() == "" {
			t.Errorf("counted: %v", got)
		}
	}
	if s := d.worker.Stats(); s.RulesUnknown != 3 || s.RulesMany != 1 || s.Malformed != 2 {
		t.Errorf("rules that are not counted: %+v", s)
	}
	m := leaseRequest(1, 1, perMinute(start), wish{key: "k", want: 1})
	m.Keys.Rules[0].Kind = events.RowKind_DENIED
	if d.send(start, m); len(d.grants.take()) != 1 || d.worker.Stats().LeasesRefused != 1 {
		t.Errorf("permits of denied hits: %+v", d.worker.Stats())
	}
}
