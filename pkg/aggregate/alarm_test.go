package aggregate_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
	"github.com/offpath-io/offpath/pkg/events"
)

// alarmText is what an alarm says: rule key age:total ..., in order.
func alarmText(m *events.Alarm) string {
	var keys []string
	t, text, at := m.GetTotals(), string(m.GetTotals().GetKeyText()), 0
	for i, n := range t.GetKeyLength() {
		s := t.Rules[t.KeyRule[i]].GetName() + " " + text[:n]
		text = text[n:]
		for range t.KeyCells[i] {
			s += fmt.Sprintf(" %d:%d", t.Age[at], t.Value[at])
			at++
		}
		keys = append(keys, s)
	}
	return strings.Join(keys, ", ")
}

// alarms returns the alarms since the last time.
func (d *fixture) alarms() []string {
	var all []string
	for _, m := range d.bus.alarms {
		all = append(all, alarmText(m))
	}
	d.bus.alarms = nil
	return all
}

func TestAlarmsFromHalfOfTheLimit(t *testing.T) {
	d := newFixture(t, memstore.New())
	now := start
	for i, step := range []struct {
		why   string
		after int64
		rule  func(int64) *events.Rule
		hits  []own
		want  string
	}{
		{"far below", 0, perSecond, []own{{"a", 0, 4}}, ""},
		{"half", 100 * ms, perSecond, []own{{"a", 0, 1}, {"b", 0, 4}}, "per-second a 0:5"},
		{"over", 100 * ms, perSecond, []own{{"a", 0, 100}}, "per-second a 0:105"},
		{"the old bucket still weighs", 0, perSecond, []own{{"a", -1, 1}}, "per-second a 0:105 -1:1"},
		{"20 % of 105 and 1: enough", 1600 * ms, perSecond, []own{{"a", 0, 1}, {"b", 0, 1}}, "per-second a 1:105 0:2"},
		{"2 alone: not", 200 * ms, perSecond, []own{{"a", 0, 0}}, ""},
		{"60 buckets", 0, perMinute, []own{{"a", 0, 20}, {"a", 59, 30}}, "per-minute a 59:30 0:20"},
	} {
		now += step.after
		d.exchange(now, report(1, uint64(i)+1, step.rule(now), step.hits...))
		now += 20 * ms
		d.step(now)
		if got := strings.Join(d.alarms(), "; "); got != step.want {
			t.Errorf("%s: got %q, want %q", step.why, got, step.want)
		}
	}
}

// However often a key is reported, alarms of it come at a bounded rate, and the last total is told.
func TestAlarmsAreRare(t *testing.T) {
	for _, tt := range []struct {
		set         time.Duration
		checkers    int
		every, told int64 // ms
	}{
		{set: 20 * time.Millisecond, checkers: 1, every: 20, told: 10},
		{checkers: 1, every: 4, told: 50},
		{checkers: 400, every: 4, told: 50},
		{checkers: 1000, every: 10, told: 20},
	} {
		d := newFixture(t, memstore.New(), func(o *aggregate.Options) { o.AlarmEvery = tt.set })
		for i := range tt.checkers {
			d.worker.Receive(start, events.KindHello, hello(t, uint64(i)+1, 0), nil)
		}
		tellOften(t, d, tt.every, tt.told)
	}
}

// tellOften reports a key every ms for 200 ms, and expects so many alarms of it.
func tellOften(t *testing.T, d *fixture, every, want int64) {
	now := start
	const millis = 200
	told := int64(0)
	for i := range int64(millis) {
		now = start + i*ms
		d.send(now, report(1, uint64(i)+1, perMinute(start), own{"a", 0, 10}))
		next := d.step(now + ms) // gathered for 2 ms: every second step folds
		for next <= now+ms {
			next = d.step(now + ms)
		}
		told += int64(len(d.alarms()))
	}
	if told < want-2 || told > want+1 { // the first is gathered, and an alarm comes with a fold, every 2 ms
		t.Errorf("%d alarms in %d ms, at one in %d", told, millis, every)
	}
	for range 5 {
		now = d.step(now)
		for _, text := range d.alarms() {
			told, _ = 0, text
			if text != fmt.Sprintf("per-minute a 0:%d", millis*10/2) {
				t.Errorf("the last alarm: %s", text)
			}
		}
	}
	if told != 0 {
		t.Error("the last total was never told")
	}
}

func TestAlarmsOfManyKeys(t *testing.T) {
	d := newFixture(t, memstore.New())
	var hits []own
	for i := range 2500 {
		hits = append(hits, own{fmt.Sprintf("key-%04d", i), 0, 9})
	}
	d.exchange(start, report(1, 1, perSecond(start), hits...))
	d.step(start + 20*ms)
	alarms := d.bus.alarms
	if len(alarms) != 3 || alarms[0].GetTotals().Keys() != 1000 || alarms[2].GetTotals().Keys() != 500 {
		t.Fatalf("%d alarms", len(alarms))
	}
	if s := d.worker.Stats(); s.Alarms != 3 || s.AlarmKeys != 2500 {
		t.Errorf("%+v", s)
	}
	if alarms[0].GetGeneration() == 0 || alarms[0].GetVersion() != 1 {
		t.Errorf("state: %d, %d", alarms[0].GetGeneration(), alarms[0].GetVersion())
	}
	r := alarms[0].GetTotals().GetRules()[0]
	if len(alarms[0].GetTotals().GetRules()) != 1 || r.GetLimit() != 10 || r.GetRevision() != 1 || r.GetWindowMs() != 1000 {
		t.Errorf("rules: %v", alarms[0].GetTotals().GetRules())
	}
}

// Of two limits for a rule, the later revision's counts; within one, the higher.
func TestAlarmsGoByTheLatestLimit(t *testing.T) {
	for _, tt := range []struct {
		why               string
		revision, limit   uint64
		revision2, limit2 uint64
		alarm             bool
	}{
		{"a raised limit", 1, 10, 2, 100, false},
		{"a lowered limit", 1, 100, 2, 10, true},
		{"one revision, two limits", 1, 10, 1, 100, false},
		{"no limit to be near to", 1, 0, 1, 0, false},
	} {
		for swap := range 2 {
			d := newFixture(t, memstore.New())
			a, b := perSecond(start), perSecond(start)
			a.Revision, a.Limit, b.Revision, b.Limit = tt.revision, tt.limit, tt.revision2, tt.limit2
			if swap == 1 {
				a, b = b, a
			}
			d.send(start, report(1, 1, a, own{"a", 0, 4}))
			d.send(start, report(2, 1, b, own{"a", 0, 4}))
			d.step(start + 2*ms)
			if got := d.alarms(); (len(got) > 0) != tt.alarm {
				t.Errorf("%s: alarms %q", tt.why, got)
			}
		}
	}
}

// What was to be told of an older generation is told to nobody.
func TestAlarmsOfALostGeneration(t *testing.T) {
	store := memstore.New()
	d := newFixture(t, store, func(o *aggregate.Options) { o.AlarmEvery = 20 * time.Millisecond })
	d.exchange(start, report(1, 1, perMinute(start), own{"old", 0, 90}))
	d.alarms()
	d.exchange(start+3*ms, report(1, 2, perMinute(start), own{"old", 0, 1}))
	store.Lose()
	d.exchange(start+6*ms, report(1, 3, perMinute(start), own{"new", 0, 90}))
	d.step(start + 40*ms)
	if got := d.alarms(); len(got) != 1 || got[0] != "per-minute new 0:90" {
		t.Errorf("alarms: %q", got)
	}
}

func TestAlarmsThatCannotBeSent(t *testing.T) {
	store := memstore.New()
	d := newFixture(t, store, func(o *aggregate.Options) { o.Bus = &deaf{} })
	if got := totals(d.exchange(start, report(1, 1, perSecond(start), own{"a", 0, 9}))); got != "0:9" {
		t.Errorf("answer: %s", got)
	}
	if s := d.worker.Stats(); s.AlarmErrors != 1 || s.Alarms != 0 {
		t.Errorf("%+v", s)
	}
}

// deaf is a bus whose connection is down.
type deaf struct{ silent }

func (*deaf) Alarm(uint32, []byte) error { return fmt.Errorf("no connection") }

// Of two folds of a key that end in another order than they were applied in, the later one is told.
func TestAlarmsOfFoldsThatOvertakeEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slow{Store: memstore.New(), takes: time.Millisecond, after: 200 * time.Millisecond}
		r := run(t, store, func(o *aggregate.Options) { o.AlarmEvery = time.Second })
		now := time.Now().UnixNano()
		r.send(report(1, 1, perMinute(now), own{"a", 0, 99})) // the first alarm, at once
		time.Sleep(500 * time.Millisecond)
		r.send(report(1, 2, perMinute(now), own{"a", 0, 1})) // applied first, its answer comes last
		time.Sleep(10 * time.Millisecond)
		store.hurry()
		r.send(report(2, 1, perMinute(now), own{"a", 0, 1}))
		time.Sleep(3 * time.Second)
		r.end()
		if n := len(r.line.alarms); n != 2 || alarmText(r.line.alarms[1]) != "per-minute a 1:101" {
			t.Errorf("%d alarms, the last: %s", n, alarmText(r.line.alarms[n-1]))
		}
	})
}

// What was denied is counted apart and told along with what was admitted, but is nobody's to account for.
func TestDeniedHits(t *testing.T) {
	store := memstore.New()
	d := newFixture(t, store)
	admitted, denied := perMinute(start), perMinute(start)
	denied.Denied = true
	m := report(1, 1, admitted, own{"a", 0, 90})
	m.Hits.Rules = append(m.Hits.Rules, denied)
	m.Hits.AddKey(1, "a")
	m.Hits.AddCell(0, 7000)
	m.Late = []uint64{0, 5}
	m.Made = start - ms
	if got := totals(d.exchange(start, m)); got != "0:90 | 0:7000" {
		t.Errorf("answer: %s", got)
	}
	if got, want := ledger(t, store)["per-minute"], (aggregate.RuleLedger{Counted: 90}); got != want {
		t.Errorf("ledger: %+v, want %+v", got, want)
	}
	if len(d.bus.alarms) != 1 {
		t.Fatalf("%d alarms", len(d.bus.alarms))
	}
	alarm := d.bus.alarms[0]
	if rules := alarm.GetTotals().GetRules(); len(rules) != 2 || rules[0].GetDenied() || !rules[1].GetDenied() {
		t.Errorf("rules of the alarm: %v", rules)
	}
	if got := alarmText(alarm); got != "per-minute a 0:90, per-minute a 0:7000" {
		t.Errorf("alarm: %s", got)
	}
	if alarm.GetMade() != start-ms {
		t.Errorf("the alarm's newest report was made at %d, want %d", alarm.GetMade(), start-ms)
	}
}

// A report that says it was made in the future does not make an alarm say so.
func TestAlarmsAreNotOfTheFuture(t *testing.T) {
	d := newFixture(t, memstore.New())
	m := report(1, 1, perMinute(start), own{"a", 0, 90})
	m.Made = start + second
	d.exchange(start, m)
	if alarms := d.bus.alarms; len(alarms) != 1 || alarms[0].GetMade() > start+2*ms {
		t.Errorf("alarms: %v", alarms)
	}
}
