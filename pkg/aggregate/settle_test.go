package aggregate_test

import (
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
	"github.com/offpath-io/offpath/pkg/events"
)

// charge is what a token says of a hit of key "a" that was charged age buckets before now.
func charge(rule *events.Rule, age int64, cost uint64) *events.Charge {
	rule.Newest -= age
	return &events.Charge{Rule: rule, Key: []byte("a"), Cost: cost}
}

// settlement settles number n of the tokens of checker 77.
func settlement(now int64, n uint64, c *events.Charge, hits int64) *events.Settlement {
	return &events.Settlement{Epoch: 77, Number: n, Made: now, Charge: c, Hits: hits}
}

// asks is a report of one minute's hits of key "a", which asks for what was refunded of them too.
func asks(sequence uint64, now int64, hits uint64, settlements ...*events.Settlement) *events.Report {
	m := report(1, sequence, perMinute(now))
	back := perMinute(now)
	back.Refunded = true
	m.Hits.Rules = append(m.Hits.Rules, back)
	m.Hits.AddKey(1, "a")
	m.Hits.AddKey(0, "a")
	m.Hits.AddCell(0, hits)
	m.Settlements = settlements
	return m
}

func TestSettlements(t *testing.T) {
	const minute = int64(time.Minute)
	now := start
	type row struct {
		why     string
		settles []*events.Settlement
		answer  string // refunded | admitted
		ledger  aggregate.RuleLedger
	}
	store := memstore.New()
	d := newFixture(t, store)
	if got := totals(d.exchange(now, asks(1, now, 100))); got != " | 0:100" {
		t.Fatalf("before: %s", got)
	}
	make := func(n uint64, age int64, cost uint64, hits int64) *events.Settlement {
		return settlement(now, n, charge(perMinute(now), age, cost), hits)
	}
	for i, r := range []row{
		{"up", []*events.Settlement{make(1, 0, 10, 5)}, " | 0:105", aggregate.RuleLedger{Counted: 105, Settled: 5}},
		{"down", []*events.Settlement{make(2, 0, 10, -7)}, "0:7 | 0:105", aggregate.RuleLedger{Counted: 105, Settled: 5, Refunded: 7}},
		{"both again", []*events.Settlement{make(1, 0, 10, 5), make(2, 0, 10, -7)}, "0:7 | 0:105", aggregate.RuleLedger{Counted: 105, Settled: 5, Refunded: 7}},
		{"again with another cost", []*events.Settlement{make(2, 0, 10, -9)}, "0:7 | 0:105", aggregate.RuleLedger{Counted: 105, Settled: 5, Refunded: 7}},
		{"twice in one report", []*events.Settlement{make(3, 0, 10, -1), make(3, 0, 10, -2)}, "0:8 | 0:105", aggregate.RuleLedger{Counted: 105, Settled: 5, Refunded: 8}},
		{"as it was estimated", []*events.Settlement{make(4, 0, 10, 0)}, "0:8 | 0:105", aggregate.RuleLedger{Counted: 105, Settled: 5, Refunded: 8}},
		{"then not so", []*events.Settlement{make(4, 0, 10, -3)}, "0:8 | 0:105", aggregate.RuleLedger{Counted: 105, Settled: 5, Refunded: 8}},
		{"of an earlier bucket", []*events.Settlement{make(5, 9, 10, -3)}, "0:8 9:3 | 0:105", aggregate.RuleLedger{Counted: 105, Settled: 5, Refunded: 11}},
		{"its bucket is gone", []*events.Settlement{make(6, 61, 10, -2)}, "0:8 9:3 | 0:105", aggregate.RuleLedger{Counted: 105, Settled: 5, Refunded: 13}},
		{"the same, up", []*events.Settlement{make(7, 61, 10, 4)}, "0:8 9:3 | 0:105", aggregate.RuleLedger{Counted: 105, Late: 4, Settled: 9, Refunded: 13}},
		{"of the far future", []*events.Settlement{make(8, -60, 10, 1)}, "0:8 9:3 | 0:105", aggregate.RuleLedger{Counted: 105, Late: 4, Refused: 1, Settled: 10, Refunded: 13}},
		{"more than the cost, and one that is right", []*events.Settlement{make(9, 0, 10, -11), make(10, 0, 10, -10)}, "0:18 9:3 | 0:105", aggregate.RuleLedger{Counted: 105, Late: 4, Refused: 1, Settled: 10, Refunded: 23}},
	} {
		m := asks(uint64(i)+2, now, 0, r.settles...)
		answer := d.exchange(now, m)
		if got := totals(answer); got != r.answer {
			t.Errorf("%s: %s, want %s", r.why, got, r.answer)
		}
		if got := answer.GetSettlements(); int(got) != len(r.settles) {
			t.Errorf("%s: %d settlements dealt with", r.why, got)
		}
		if got := ledger(t, store)["per-minute"]; got != r.ledger {
			t.Errorf("%s: %+v, want %+v", r.why, got, r.ledger)
		}
		again := d.exchange(now, m) // as it is sent if the answer is lost
		if got := totals(again); got != r.answer+" (repeated)" || ledger(t, store)["per-minute"] != r.ledger {
			t.Errorf("%s, repeated: %s, %+v", r.why, got, ledger(t, store)["per-minute"])
		}
	}
	if s := d.worker.Stats(); s.SettlementsRefused != 2 || s.SettlementsApplied != 9 || s.HitsRefunded != 23 || s.HitsSettled != 10 {
		t.Errorf("stats: %+v", s)
	}
	if now = start + 21*60*minute; totals(d.exchange(now, asks(99, now, 1))) != " | 0:1" {
		t.Errorf("a day later: %s", totals(d.take()[0]))
	}
}

// asksTokens is asks for a token bucket.
func asksTokens(sequence uint64, now int64, hits uint64, settlements ...*events.Settlement) *events.Report {
	m := asks(sequence, now, hits, settlements...)
	m.Hits.Rules[0], m.Hits.Rules[1] = tokens(now), tokens(now)
	m.Hits.Rules[1].Refunded = true
	return m
}

// What is given back of a bucket that drains is told beside its hits, and in time both are in the level.
func TestSettlementsOfLevels(t *testing.T) {
	store := memstore.New()
	d := newFixture(t, store)
	for i, step := range []struct {
		why    string
		at     int64 // in seconds
		hits   uint64
		settle int64 // hits of the first bucket
		answer string
		levels string // of the refunded ones there is none
		ledger aggregate.RuleLedger
	}{
		{"an estimate", 0, 100, 0, " | 0:100", " 0:0 61:0", aggregate.RuleLedger{Counted: 100}},
		{"of which 30 come back", 2, 0, -30, "2:30 | 2:100", " 0:0 61:0", aggregate.RuleLedger{Counted: 100, Refunded: 30}},
		{"and 20", 60, 1, -20, "60:50 | 0:1 60:100", " 0:0 61:0", aggregate.RuleLedger{Counted: 101, Refunded: 50}},
		{"50 hits are a level when their bucket is gone", 61, 0, 0, " | 1:1", " 0:0 61:3000", aggregate.RuleLedger{Counted: 101, Refunded: 50}},
		{"then the rest goes to the ledger", 61, 0, -40, " | 1:1", " 0:0 61:3000", aggregate.RuleLedger{Counted: 101, Refunded: 90}},
		{"and they drain", 91, 0, 0, " | 31:1", " 0:0 61:1200", aggregate.RuleLedger{Counted: 101, Refunded: 90}},
	} {
		now := start + step.at*second
		m := asksTokens(uint64(i)+1, now, step.hits)
		if step.settle != 0 {
			m.Settlements = append(m.Settlements, settlement(now, uint64(i)+1, charge(tokens(now), step.at, 100), step.settle))
		}
		for _, again := range []string{"", " (repeated)"} {
			got := d.exchange(now, m)
			if text := totals(got); text != step.answer+again {
				t.Errorf("%s: %q, want %q", step.why, text, step.answer+again)
			}
			if text := levels(got.GetLevelAge(), got.GetLevel()); text != step.levels {
				t.Errorf("%s: levels %q, want %q", step.why, text, step.levels)
			}
		}
		if got := ledger(t, store)["tokens"]; got != step.ledger {
			t.Errorf("%s: %+v, want %+v", step.why, got, step.ledger)
		}
	}
}

// A bucket that has room again is told of to everybody, with its level.
func TestRefundsOfLevelsAreTold(t *testing.T) {
	d := newFixture(t, memstore.New())
	d.exchange(start, asksTokens(1, start, 100))
	now := start + 61*second
	d.step(now)
	d.exchange(now, asksTokens(2, now, 20))
	d.step(now + 10*ms)
	d.bus.alarms = nil
	now += 20 * ms
	d.exchange(now, asksTokens(3, now, 0, settlement(now, 1, charge(tokens(now), 0, 15), -15)))
	d.step(now + 10*ms)
	if len(d.bus.alarms) != 1 || alarmText(d.bus.alarms[0]) != "tokens a 0:20, tokens a 0:15" {
		t.Fatalf("%d alarms: %v", len(d.bus.alarms), d.bus.alarms)
	}
	if m := d.bus.alarms[0].GetTotals(); levels(m.GetLevelAge(), m.GetLevel()) != " 61:6000 0:0" {
		t.Errorf("levels%s", levels(m.GetLevelAge(), m.GetLevel()))
	}
}

// Who asks for what was refunded of a bucket, and not for its hits, is answered like any other.
func TestRefundsAlone(t *testing.T) {
	d := newFixture(t, memstore.New())
	d.exchange(start, asksTokens(1, start, 9, settlement(start, 1, charge(tokens(start), 0, 9), -2)))
	r := tokens(start)
	r.Refunded = true
	m := report(2, 1, r, own{"a", 0, 5})
	if got := d.exchange(start, m); totals(got) != "0:2" || levels(got.GetLevelAge(), got.GetLevel()) != "" {
		t.Errorf("%s, levels%s", totals(got), levels(got.GetLevelAge(), got.GetLevel()))
	}
}

// What makes no sense is left out; the report's hits count.
func TestSettlementsThatMakeNoSense(t *testing.T) {
	ok := func() *events.Settlement { return settlement(start, 1, charge(perMinute(start), 0, 10), -1) }
	for why, change := range map[string]func(*events.Settlement){
		"no epoch":           func(m *events.Settlement) { m.Epoch = 0 },
		"no number":          func(m *events.Settlement) { m.Number = 0 },
		"too large a number": func(m *events.Settlement) { m.Number = events.MaxState },
		"no charge":          func(m *events.Settlement) { m.Charge = nil },
		"no rule":            func(m *events.Settlement) { m.Charge.Rule = nil },
		"no cost":            func(m *events.Settlement) { m.Charge.Cost = 0 },
		"a long key":         func(m *events.Settlement) { m.Charge.Key = make([]byte, events.MaxKeyLength+1) },
		"refunded hits":      func(m *events.Settlement) { m.Charge.Rule.Refunded = true },
		"too much":           func(m *events.Settlement) { m.Hits = -11 },
		"far too much":       func(m *events.Settlement) { m.Hits = events.MaxCount + 1 },
		"too old":            func(m *events.Settlement) { m.Made = start - int64(events.MaxTokenAge) - 10*ms },
		"of the future":      func(m *events.Settlement) { m.Made = start + 2*int64(time.Hour) },
		"a bad window":       func(m *events.Settlement) { m.Charge.Rule.Buckets = 7 },
		"a bucket beyond":    func(m *events.Settlement) { m.Charge.Rule.Newest = 1<<42 + 1 },
	} {
		store := memstore.New()
		d := newFixture(t, store)
		bad := ok()
		change(bad)
		answer := d.exchange(start, asks(1, start, 5, bad))
		if got := totals(answer); got != " | 0:5" || answer.GetSettlements() != 1 || d.worker.Stats().SettlementsRefused != 1 {
			t.Errorf("%s: %s, %+v", why, got, d.worker.Stats())
		}
		if got := ledger(t, store)["per-minute"]; got != (aggregate.RuleLedger{Counted: 5}) {
			t.Errorf("%s: %+v", why, got)
		}
	}
	m := asks(1, start, 5)
	for range events.MaxSettlements + 1 {
		m.Settlements = append(m.Settlements, ok())
	}
	d := newFixture(t, memstore.New())
	if got := d.exchange(start, m); got.GetError() == "" {
		t.Errorf("%d settlements in one report: %v", len(m.Settlements), got)
	}
}

// A report may not name refunds but by settlements.
func TestOnlySettlementsRefund(t *testing.T) {
	store := memstore.New()
	d := newFixture(t, store)
	m := asks(1, start, 50)
	m.Hits.Value, m.Hits.Age, m.Hits.KeyCells = []uint64{30, 50}, []int64{0, 0}, []uint32{1, 1}
	if got := totals(d.exchange(start, m)); got != " | 0:50" {
		t.Errorf("answer: %s", got)
	}
	if got := ledger(t, store)["per-minute"]; got != (aggregate.RuleLedger{Counted: 50}) {
		t.Errorf("ledger: %+v", got)
	}
}

// Settlements of another shard's keys would count where nobody looks for them.
func TestSettlementOfAnotherShard(t *testing.T) {
	d := newFixture(t, memstore.New(), func(o *aggregate.Options) { o.Shards = 7 })
	right := events.Shard("per-minute", "a", 7)
	for shard := range uint32(7) {
		m := report(1, 1, perMinute(start))
		m.Shards, m.Shard = 7, shard
		m.Settlements = []*events.Settlement{settlement(start, 1, charge(perMinute(start), 0, 1), -1)}
		before := d.worker.Stats().SettlementsApplied
		d.exchange(start, m)
		if applied := d.worker.Stats().SettlementsApplied > before; applied != (shard == right) {
			t.Errorf("shard %d, right is %d: applied: %v", shard, right, applied)
		}
	}
}

// Two workers of one store get the same token's settlement: one of them counts it.
func TestOneTokenAtTwoWorkers(t *testing.T) {
	store := memstore.New()
	a, b := newFixture(t, store), newFixture(t, store)
	a.exchange(start, asks(1, start, 50))
	a.exchange(start, asks(2, start, 0, settlement(start, 1, charge(perMinute(start), 0, 40), -30)))
	m := asks(1, start, 3, settlement(start, 1, charge(perMinute(start), 0, 40), -20), settlement(start, 2, charge(perMinute(start), 0, 40), +2))
	m.Epoch = 2
	if got := totals(b.exchange(start, m)); got != "0:30 | 0:55" {
		t.Errorf("answer: %s", got)
	}
	want := aggregate.RuleLedger{Counted: 55, Refunded: 30, Settled: 2}
	if got := ledger(t, store)["per-minute"]; got != want {
		t.Errorf("ledger: %+v, want %+v", got, want)
	}
	if s := b.worker.Stats(); s.Refolds != 1 || s.Repeated != 0 {
		t.Errorf("stats: %+v", s)
	}
}

// A key that was near its limit until it got hits back is told to everybody; one that was not is not.
func TestRefundsAreTold(t *testing.T) {
	d := newFixture(t, memstore.New())
	now := start
	next := func() int64 { now += 10 * ms; return now } // longer than from alarm to alarm
	d.step(now)
	d.exchange(next(), asks(1, start, 100))
	d.step(next())
	d.bus.alarms = nil
	d.exchange(next(), asks(2, start, 0, settlement(start, 1, charge(perMinute(start), 0, 90), -80)))
	d.step(next())
	if len(d.bus.alarms) != 1 || alarmText(d.bus.alarms[0]) != "per-minute a 0:100, per-minute a 0:80" {
		t.Fatalf("%d alarms: %v", len(d.bus.alarms), d.bus.alarms)
	}
	if rules := d.bus.alarms[0].GetTotals().GetRules(); rules[0].GetRefunded() || !rules[1].GetRefunded() {
		t.Errorf("rules: %v", rules)
	}
	d.bus.alarms = nil
	d.exchange(next(), asks(3, start, 1)) // 21 count
	d.exchange(next(), asks(4, start, 0, settlement(start, 2, charge(perMinute(start), 0, 90), -5)))
	d.step(next())
	if len(d.bus.alarms) != 0 {
		t.Errorf("alarms of a key far below its limit: %v", d.bus.alarms)
	}
	d.exchange(next(), asks(5, start, 30)) // 46 count
	d.exchange(next(), asks(6, start, 4))  // 50
	d.step(next())
	if len(d.bus.alarms) != 1 || alarmText(d.bus.alarms[0]) != "per-minute a 0:135, per-minute a 0:85" {
		t.Errorf("%d alarms: %v", len(d.bus.alarms), d.bus.alarms)
	}
}

// Who does not ask for refunds, of which there are some, is told to.
func TestRefundsAreHintedAt(t *testing.T) {
	d := newFixture(t, memstore.New())
	plain := func(sequence uint64, now int64) *events.Refresh {
		m := report(2, sequence, perSecond(now), own{"x", 0, 1})
		m.Hits.Rules = append(m.Hits.Rules, perMinute(now))
		m.Hits.AddKey(1, "b")
		m.Hits.AddCell(0, 1)
		return d.exchange(now, m)
	}
	if got := plain(1, start).GetRefunding(); len(got) != 0 {
		t.Errorf("before there are any: %v", got)
	}
	d.exchange(start, asks(1, start, 50))
	if got := plain(2, start).GetRefunding(); len(got) != 0 {
		t.Errorf("asked for only: %v", got)
	}
	d.exchange(start, asks(2, start, 0, settlement(start, 1, charge(perMinute(start), 0, 1), -1)))
	if got := plain(3, start).GetRefunding(); len(got) != 1 || got[0] != 1 {
		t.Errorf("after one: %v, want rule 1", got)
	}
	if got := d.exchange(start, asks(3, start, 1)).GetRefunding(); len(got) != 0 {
		t.Errorf("to one who asks: %v", got)
	}
	later := start + 4*int64(time.Minute)
	d.step(later)
	if got := plain(4, later).GetRefunding(); len(got) != 0 {
		t.Errorf("windows later: %v", got)
	}
}

// Who was told that there are no permits hears that there are, even if nobody has reported the hits that had spent them.
func TestFreedPermitsAreTold(t *testing.T) {
	d := newFixture(t, memstore.New())
	c := charge(perMinute(start), 0, 10)
	c.Permits = true
	d.exchange(start, asks(1, start, 0, settlement(start, 1, c, +1)))
	d.step(start + 10*ms)
	if len(d.bus.alarms) != 0 {
		t.Errorf("more were spent: %v", d.bus.alarms)
	}
	d.exchange(start+20*ms, asks(2, start, 0, settlement(start, 2, c, -1)))
	d.step(start + 30*ms)
	if len(d.bus.alarms) != 1 || alarmText(d.bus.alarms[0]) != "per-minute a 0:1, per-minute a 0:1" {
		t.Errorf("%v", d.bus.alarms)
	}
}

// A store that has lost its data does not know which tokens were settled, and a worker does not know better.
func TestSettledIsWhatTheStoreSays(t *testing.T) {
	store := memstore.New()
	d := newFixture(t, store)
	for i, want := range []int64{1, 1, 2} { // settled by all workers
		if i == 2 {
			store.Lose()
		}
		d.exchange(start, asks(uint64(i)+1, start, 9, settlement(start, 1, charge(perMinute(start), 0, 10), -1)))
		if got := d.worker.Stats().SettlementsApplied; got != want {
			t.Errorf("%d: %d applied, want %d", i, got, want)
		}
	}
}
