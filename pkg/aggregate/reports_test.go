package aggregate_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/events"
)

func TestReportsAreAnsweredWithTotals(t *testing.T) {
	store := memstore.New()
	d := newFixture(t, store)
	for _, step := range []struct {
		why   string
		after int64
		epoch uint64
		seq   uint64
		hits  []own
		want  string // age:total, newest first
	}{
		{"the first hits", 0, 1, 1, []own{{"a", 0, 3}, {"b", 0, 1}}, "0:3 | 0:1"},
		{"another checker's are added", 100 * ms, 2, 1, []own{{"a", 0, 2}}, "0:5"},
		{"a key without hits is only read", 100 * ms, 2, 2, []own{{"b", 0, 0}, {"c", 0, 0}}, "0:1 | "},
		{"a repeat adds nothing", 200 * ms, 1, 1, []own{{"a", 0, 3}, {"b", 0, 1}}, "0:5 | 0:1 (repeated)"},
		{"all live buckets have totals", second, 1, 2, []own{{"a", 0, 1}}, "0:1 1:5"},
		{"the previous bucket still counts", second, 2, 3, []own{{"a", 1, 1}, {"b", 1, 1}}, "0:1 1:6 | 1:2"},
		{"a gone bucket does not", 2 * second, 2, 4, []own{{"a", 0, 1}, {"a", 2, 4}}, "0:1 1:1"},
		{"nor does one of the far future", 2 * second, 2, 5, []own{{"a", -6, 7}, {"a", -1, 1}}, "-1:1 0:1 1:1"},
	} {
		now := start + step.after
		m := d.exchange(now, report(step.epoch, step.seq, perSecond(now), step.hits...))
		d.want(step.why, totals(m), step.want)
	}
	wantLedger(t, "all", store, "per-second", storage.RuleLedger{Counted: 11, Late: 4, Refused: 7})

	store = memstore.New()
	d = newFixture(t, store)
	m := report(1, 1, perSecond(start))
	m.Late = []uint64{9} // by the checker's own judgement
	d.exchange(start, m)
	d.want("a repeat", totals(d.exchange(start, m)), " (repeated)")
	wantLedger(t, "late hits", store, "per-second", storage.RuleLedger{Late: 9})
}

// One report may name a rule twice, several rules, and a key twice; and rules of one name may
// differ.
func TestOneReportOfManyRules(t *testing.T) {
	store := memstore.New()
	d := newFixture(t, store)
	m := report(1, 1, perSecond(start))
	m.Hits.Rules = append(m.Hits.Rules, perMinute(start), perSecond(start+second))
	for _, h := range []struct {
		rule uint32
		key  string
		age  int64
		n    uint64
	}{{0, "a", 0, 1}, {1, "a", 0, 10}, {0, "a", 0, 2}, {1, "b", 59, 4}, {2, "a", 1, 5}} {
		m.Hits.AddKey(h.rule, h.key)
		m.Hits.AddCell(h.age, h.n)
	}
	d.want("five keys", totals(d.exchange(start, m)), "0:8 | 0:10 | 0:8 | 59:4 | 1:8")
	wantLedger(t, "one rule", store, "per-second", storage.RuleLedger{Counted: 8})
	wantLedger(t, "another", store, "per-minute", storage.RuleLedger{Counted: 14})
}

// hitsOf are n keys with a hit each.
func hitsOf(name any, n int) []own {
	hits := make([]own, n)
	for i := range hits {
		hits[i] = own{fmt.Sprint(name, i), 0, 1}
	}
	return hits
}

func TestReportsAreGathered(t *testing.T) {
	store := &faulty{Store: memstore.New()}
	d := newFixture(t, store, func(o *aggregate.Options) { o.BatchKeys = 100 })
	if d.next <= start || d.next > start+2*second {
		t.Errorf("idle: next step at +%d", d.next-start)
	}

	// Reports that come within 2 ms are one batch.
	for epoch := range uint64(5) {
		d.send(start+int64(epoch)*ms/10, report(epoch+1, 1, perSecond(start), own{"a", 0, 1}))
	}
	if next := d.step(start + ms); next != start+2*ms || store.batches != 0 {
		t.Errorf("too early: next step at +%d, %d batches", next-start, store.batches)
	}
	d.step(start + 2*ms)
	if got := d.refreshes.take(); len(got) != 5 || store.batches != 1 || totals(got[0]) != "0:5" {
		t.Errorf("%d answers by %d batches: %v", len(got), store.batches, got)
	}

	// More than fits one batch goes at once, whole reports at a time; a single larger one goes
	// alone.
	store.batches, store.largest = 0, 0
	for epoch, keys := range []int{60, 60, 250, 10, 10} {
		d.send(start+second, report(uint64(epoch)+1, 2, perSecond(start+second), hitsOf(epoch, keys)...))
	}
	d.step(start + second)
	if got := d.refreshes.take(); len(got) != 3 || store.batches != 3 || store.largest != 250 {
		t.Errorf("at once: %d answers by %d batches of at most %d keys", len(got), store.batches, store.largest)
	}
	d.step(start + second + 2*ms)
	if got := d.refreshes.take(); len(got) != 2 || store.batches != 4 {
		t.Errorf("then %d answers, %d batches", len(got), store.batches)
	}

	// Keys of many buckets take more of the budget.
	store.batches = 0
	for epoch := range uint64(4) {
		d.send(start+second, report(epoch+1, 3, perMinute(start+second), hitsOf(epoch, 10)...))
	}
	d.step(start + 2*second)
	if store.batches != 4 {
		t.Errorf("%d batches of 40 keys in 60 buckets", store.batches)
	}
	full := report(9, 1, perMinute(start)) // and so do settlements
	for n := range uint64(50) {
		full.Settlements = append(full.Settlements, settle(start, n+1, 1, 0))
	}
	d.send(start+3*second, full)
	d.step(start + 3*second)
	if store.batches != 5 {
		t.Error("50 settlements wait for more")
	}
}

// A checker has one request in the queue, whatever it sends.
func TestOneRequestPerChecker(t *testing.T) {
	store := memstore.New()
	d := newFixture(t, store)
	first := report(1, 1, perSecond(start), own{"a", 0, 1})
	for range 1000 {
		d.send(start, first)
	}
	if got := d.worker.Stats(); got.Waiting != 1 || got.Replaced != 999 {
		t.Errorf("%+v", got)
	}
	d.send(start, report(1, 2, perSecond(start), own{"a", 0, 10})) // so 1 has had its answer
	d.send(start, first)                                           // a late copy
	d.step(start + 2*ms)
	answers := d.refreshes.take()
	if len(answers) != 1 || answers[0].GetSequence() != 2 || totals(answers[0]) != "0:10" {
		t.Errorf("answers: %v", answers)
	}
	if got := d.worker.Stats(); got.Stale != 1 || got.Answered != 1 || got.Waiting != 0 {
		t.Errorf("%+v", got)
	}
}

func TestMalformedReportsAreRefused(t *testing.T) {
	good := func() *events.Report { return report(7, 3, perSecond(start), own{"a", 0, 1}) }
	for _, tt := range []struct {
		why    string
		change func(*events.Report)
		want   string
	}{
		{"another number of shards", func(m *events.Report) { m.Shards = 4; m.Shard = 2 }, "4 shards"},
		{"no number of shards", func(m *events.Report) { m.Shards = 0 }, "0 shards"},
		{"columns that do not fit", func(m *events.Report) { m.Hits.Age = nil }, "cells"},
		{"a window that cannot be", func(m *events.Report) { m.Hits.Rules[0].Buckets = 7 }, "7 buckets"},
		{"a report too old", func(m *events.Report) { m.Made = start - int64(events.MaxReportAge) - 1e9 }, "20h0m1s old"},
		{"a bucket beyond all time", func(m *events.Report) { m.Hits.Rules[0].Newest = 1 << 43 }, "bucket"},
	} {
		d := newFixture(t, memstore.New())
		m := good()
		tt.change(m)
		d.send(start, m)
		answers := d.refreshes.take() // at once
		if len(answers) != 1 || !strings.Contains(answers[0].GetError(), tt.want) ||
			answers[0].GetEpoch() != 7 || answers[0].GetSequence() != m.GetSequence() || answers[0].GetShard() != m.GetShard() {
			t.Errorf("%s: answers %v", tt.why, answers)
		}
		if got := d.worker.Stats(); got.Refused != 1 || got.Waiting != 0 {
			t.Errorf("%s: %+v", tt.why, got)
		}
	}
	d := newFixture(t, memstore.New())
	d.worker.Receive(start, events.KindReport, []byte("\xff nonsense"), d.refreshes.reply)
	beyond := good()
	beyond.Sequence = 1 << 60 // no answer could name it
	d.send(start, beyond)
	if got := d.worker.Stats(); len(d.refreshes.take()) != 0 || got.Malformed != 2 || got.Refused != 0 {
		t.Errorf("nonsense: %+v", got)
	}
}

func TestOptions(t *testing.T) {
	for why, o := range map[string]aggregate.Options{
		"no store":         {Bus: &silent{}},
		"no bus":           {Store: memstore.New()},
		"negative shards":  {Store: memstore.New(), Bus: &silent{}, Shards: -1},
		"too many shards":  {Store: memstore.New(), Bus: &silent{}, Shards: 1 << 20},
		"negative options": {Store: memstore.New(), Bus: &silent{}, BatchKeys: -1},
	} {
		if _, err := aggregate.New(o); err == nil {
			t.Errorf("%s: no error", why)
		}
	}
}

// What a checker says that it has seen of a shard moves nothing: else one of them could have all
// checkers forget what was counted, and stop every strict rule for a window.
func TestNoCheckersClaimMovesAGeneration(t *testing.T) {
	d := newFixture(t, memstore.New())
	first := d.exchange(start, report(10, 1, perSecond(start), own{"a", 0, 5}))
	for i, ahead := range []time.Duration{time.Second, 23 * time.Hour, 30 * 365 * 24 * time.Hour} {
		generation := uint64(start+int64(ahead)) / 1000
		m := report(uint64(11+i), 1, perSecond(start), own{"a", 0, 1})
		m.ProtoReflect().SetUnknown(claim(generation, 5))
		got := d.exchange(start, m)
		if got.GetError() != "" || got.GetGeneration() != first.GetGeneration() || got.GetTotal()[0] != uint64(6+i) {
			t.Errorf("a report that claims %v ahead: %v, before it was generation %d", ahead, got, first.GetGeneration())
		}
		ask := leaseRequest(uint64(20+i), 1, perSecond(start), wish{key: "b", want: 2})
		ask.ProtoReflect().SetUnknown(claim(generation, 5))
		if got := d.lease(start, ask); got.GetGeneration() != first.GetGeneration() || got.GetGranted()[0] != 2 {
			t.Errorf("a lease request that claims %v ahead: %v, before it was generation %d", ahead, got, first.GetGeneration())
		}
	}
}

// claim is what checkers of before said of the shard's state, in reports and lease requests.
func claim(generation, version uint64) []byte {
	b := protowire.AppendVarint(protowire.AppendTag(nil, 5, protowire.VarintType), generation)
	return protowire.AppendVarint(protowire.AppendTag(b, 6, protowire.VarintType), version)
}
