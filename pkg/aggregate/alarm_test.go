package aggregate_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/events"
)

func TestAlarmsFromHalfOfTheLimit(t *testing.T) {
	d := newFixture(t, memstore.New())
	now := start
	for i, step := range []struct {
		why   string
		after int64
		rule  func(int64) *events.Rule
		hits  []own
		want  []string
	}{
		{"far below", 0, perSecond, []own{{"a", 0, 4}}, nil},
		{"half", 100 * ms, perSecond, []own{{"a", 0, 1}, {"b", 0, 4}}, []string{"per-second a 0:5"}},
		{"over", 100 * ms, perSecond, []own{{"a", 0, 100}}, []string{"per-second a 0:105"}},
		{"the old bucket still weighs", 0, perSecond, []own{{"a", -1, 1}}, []string{"per-second a 0:105 -1:1"}},
		{"20 % of 105 and 1: enough", 1600 * ms, perSecond, []own{{"a", 0, 1}, {"b", 0, 1}}, []string{"per-second a 1:105 0:2"}},
		{"2 alone: not", 200 * ms, perSecond, []own{{"a", 0, 0}}, nil},
		{"60 buckets", 0, perMinute, []own{{"a", 0, 20}, {"a", 59, 30}}, []string{"per-minute a 59:30 0:20"}},
	} {
		now += step.after
		d.exchange(now, report(1, uint64(i)+1, step.rule(now), step.hits...))
		now += 20 * ms
		d.step(now)
		d.wantAlarms(step.why, step.want...)
	}
}

// However often a key is reported, alarms of it come at a bounded rate, and the last total comes in
// the end.
func TestAlarmsAreRare(t *testing.T) {
	for _, tt := range []struct {
		set         time.Duration
		checkers    int
		every, want int64 // ms, and alarms in 200 ms
	}{
		{set: 20 * time.Millisecond, checkers: 1, every: 20, want: 10},
		{checkers: 1, every: 4, want: 50},
		{checkers: 400, every: 4, want: 50},
		{checkers: 1000, every: 10, want: 20},
	} {
		d := newFixture(t, memstore.New(), func(o *aggregate.Options) { o.AlarmEvery = tt.set })
		for i := range tt.checkers {
			d.send(start, &events.Hello{Epoch: uint64(i) + 1})
		}
		now, alarms := start, int64(0)
		for i := range uint64(200) { // a report every ms
			d.send(now, report(1, i+1, perMinute(start), own{"a", 0, 10}))
			now += ms
			for d.step(now) <= now { // gathered for 2 ms: every second step batches
			}
			alarms += int64(len(d.bus.alarms))
			d.bus.alarms = nil
		}
		if alarms < tt.want-2 || alarms > tt.want+1 { // the first is gathered, and an alarm comes with a batch
			t.Errorf("%d alarms in 200 ms, at one in %d", alarms, tt.every)
		}
		for range 5 {
			now = d.step(now)
		}
		d.wantAlarms("the last total", "per-minute a 0:1000")
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
	if len(alarms) != 1 || alarms[0].GetTotals().Keys() != 1000 {
		t.Fatalf("%d alarms", len(alarms))
	}
	if s := d.worker.Stats(); s.Alarms != 1 || s.AlarmKeys != 1000 {
		t.Errorf("%+v", s)
	}
	if alarms[0].GetGeneration() == 0 || alarms[0].GetVersion() != 1 {
		t.Errorf("state: %d, %d", alarms[0].GetGeneration(), alarms[0].GetVersion())
	}
	rules := alarms[0].GetTotals().GetRules()
	if len(rules) != 1 || rules[0].GetLimit() != 10 || rules[0].GetRevision() != 1 || rules[0].GetWindowMs() != 1000 {
		t.Errorf("rules: %v", rules)
	}

	d.bus.alarms = nil
	hits = hits[:0]
	for i := range 300 { // whose names are too long for one alarm
		hits = append(hits, own{fmt.Sprintf("%01000d", i), 0, 9})
	}
	d.exchange(start+second, report(1, 2, perSecond(start+second), hits...))
	d.step(start + second + 20*ms)
	if alarms = d.bus.alarms; len(alarms) != 2 || alarms[0].GetTotals().Keys() != 256<<10/1000 {
		t.Errorf("%d alarms", len(alarms))
	}
}

// An alarm has room for 1,000 keys. Those that most checkers have reported are told, with their
// denied hits and their latest totals; the others take turns, as they are reported.
func TestAlarmsAreOfWhatConcernsMost(t *testing.T) {
	d := newFixture(t, memstore.New())
	keys := func(prefix string, n int) (all []own) {
		for i := range n {
			all = append(all, own{fmt.Sprintf("%s-%04d", prefix, i), 0, 9})
		}
		return all
	}
	denied := func(now int64) *events.Rule {
		r := perSecond(now)
		r.Denied, r.Kind = true, events.RowKind_DENIED
		return r
	}
	shared, own := keys("shared", 100), keys("own", 1200)
	told, now := map[string]bool{}, start
	for round := range uint64(12) {
		d.bus.alarms = nil
		d.send(now, report(1, round+1, perSecond(now), append(own[:1200:1200], shared...)...))
		for epoch := uint64(2); epoch < 5; epoch++ {
			m := report(epoch, round+1, perSecond(now), shared...)
			if epoch == 2 {
				addHits(m, denied(now), shared...)
			}
			d.send(now, m)
		}
		for range 20 {
			d.step(now)
			now += ms
		}
		text, news := "", 0
		for _, m := range d.bus.alarms {
			text += alarmText(m) + ", "
		}
		if n := strings.Count(text, "shared-"); n != 200 {
			t.Errorf("%d of 200 rows of keys that four checkers have reported", n)
		}
		if want := fmt.Sprintf("shared-0099 0:%d,", 36*(round+1)); !strings.Contains(text, want) {
			t.Errorf("not told: %s", want)
		}
		for key := range strings.SplitSeq(text, ", ") {
			if name, _, _ := strings.Cut(strings.TrimPrefix(key, "per-second "), " "); strings.HasPrefix(name, "own-") {
				told[name] = true
				news++
			}
		}
		if news != 900 {
			t.Errorf("%d other keys in one alarm, want 900", news)
		}
	}
	if len(told) != 1200 {
		t.Errorf("%d of 1200 keys of one checker are told after 12 reports", len(told))
	}
}

// A key with refunded hits is told in any case, since nobody reports these again.
func TestAlarmsAreOfRefundedHits(t *testing.T) {
	d := newFixture(t, memstore.New())
	var crowd []own
	for i := range 1500 {
		crowd = append(crowd, own{fmt.Sprint("crowd-", i), 0, 90})
	}
	d.exchange(start, asks(1, start, 100))
	now := start + 20*ms
	d.step(now)
	d.wantAlarms("all know", "per-minute a 0:100")
	d.send(now, asks(2, start, 0, settle(start, 2, 10, -5)))
	for epoch := uint64(2); epoch < 4; epoch++ {
		d.send(now, report(epoch, 1, perMinute(start), crowd...))
	}
	text := ""
	for range 20 {
		now += ms
		d.step(now)
	}
	for _, m := range d.bus.alarms {
		text += alarmText(m) + "; "
	}
	if !strings.Contains(text, "per-minute a 0:5") || !strings.Contains(text, "per-minute a 0:100") {
		t.Errorf("the refund is not told, but:\n%.300s…", text)
	}
	if n := strings.Count(text, "crowd-"); n != 1000 {
		t.Errorf("%d other keys are told, want 1000", n)
	}
}

// A checker that has missed alarms asks for the recent ones. However many checkers ask, and
// whatever the alarms were about, that costs at most two alarms now and then.
func TestAlarmsAreRepeated(t *testing.T) {
	store := memstore.New()
	d := newFixture(t, store)
	ask := func(now int64) { d.send(now, &events.Hello{Epoch: 7, Asks: true}) }
	d.exchange(start, report(1, 1, perMinute(start), own{"a", 0, 60}, own{"b", 0, 70}, own{"c", 0, 5}))
	d.exchange(start+ms, report(1, 2, perSecond(start), own{"soon", 0, 9}))
	d.exchange(start+20*ms, report(1, 3, perMinute(start), own{"b", 0, 1}))
	now := start + 5*second
	d.step(now)
	d.bus.alarms = nil
	both := "per-minute a 5:60, per-minute b 5:71"
	for _, tt := range []struct {
		why   string
		after int64
		asks  bool
		want  []string
	}{
		{"what is still near its limit, by its latest totals", 0, true, []string{both}},
		{"not at once again", 20 * ms, true, nil},
		{"but a little later", 300 * ms, false, []string{both}},
		{"nothing weighs any more", 70 * second, true, nil},
	} {
		if now += tt.after; tt.asks {
			ask(now)
		}
		d.step(now)
		for _, m := range d.wantAlarms(tt.why, tt.want...) {
			if m.GetMade() != 0 {
				t.Errorf("%s: made at %d", tt.why, m.GetMade())
			}
		}
		d.bus.alarms = nil
	}

	sequence := uint64(4)
	for i := range 5 {
		var hits []own
		for j := range 1000 {
			hits = append(hits, own{fmt.Sprintf("key-%d-%d", i, j), 0, 90})
		}
		d.exchange(now+int64(i)*10*ms, report(1, sequence, perMinute(now), hits...))
		sequence++
	}
	d.pass(now + second/2)
	d.bus.alarms = nil
	ask(now + second)
	d.step(now + second)
	if n := len(d.bus.alarms); n != 1 || d.bus.alarms[0].GetTotals().Keys() < 1000 || d.bus.alarms[0].GetTotals().Keys() > 2000 {
		t.Errorf("%d alarms are repeated of 5000 keys", n)
	}
	store.Lose()
	d.exchange(now+2*second, report(1, sequence, perMinute(now), own{"new", 0, 90}))
	d.step(now + 3*second)
	d.bus.alarms = nil
	ask(now + 4*second)
	d.step(now + 4*second)
	d.wantAlarms("of this generation", "per-minute new 4:90")
}

// TestAlarmsOfTheLargestRulesFit a message of NATS, with the longest names and keys, and as many
// buckets as one alarm tells.
func TestAlarmsOfTheLargestRulesFit(t *testing.T) {
	d := newFixture(t, memstore.New())
	sequence, keys := uint64(0), 0
	for part := range 10 {
		sequence++
		m := report(1, sequence, perMinute(start))
		for i := range 200 {
			rule := perMinute(start)
			rule.Name, rule.Revision, rule.Limit = fmt.Sprintf("%0*d", events.MaxRuleName, 200*part+i), 1<<63, events.MaxCount
			var hits []own
			for age := range int64(60) {
				hits = append(hits, own{strings.Repeat("k", 300+i), age, events.MaxCount / 100})
			}
			addHits(m, rule, hits...)
			keys++
		}
		d.exchange(start+int64(part)*10*ms, m)
	}
	d.pass(start + second)
	for _, m := range d.bus.alarms {
		if size := len(encode(t, m)); size > 900<<10 {
			t.Errorf("an alarm of %d keys has %d bytes", m.GetTotals().Keys(), size)
		}
		keys -= m.GetTotals().Keys()
	}
	if keys != 0 || len(d.bus.alarms) < 2 {
		t.Errorf("%d alarms; %d keys are missing", len(d.bus.alarms), keys)
	}
}

// Pending alarms of an older generation are not sent.
func TestAlarmsOfALostGeneration(t *testing.T) {
	store := memstore.New()
	d := newFixture(t, store, func(o *aggregate.Options) { o.AlarmEvery = 20 * time.Millisecond })
	d.exchange(start, report(1, 1, perMinute(start), own{"old", 0, 90}))
	d.wantAlarms("before", "per-minute old 0:90")
	d.exchange(start+3*ms, report(1, 2, perMinute(start), own{"old", 0, 1}))
	store.Lose()
	d.exchange(start+6*ms, report(1, 3, perMinute(start), own{"new", 0, 90}))
	d.step(start + 40*ms)
	d.wantAlarms("after", "per-minute new 0:90")
}

func TestAlarmsThatCannotBeSent(t *testing.T) {
	d := newFixture(t, memstore.New())
	d.bus.fails = errors.New("no connection")
	d.want("answer", totals(d.exchange(start, report(1, 1, perSecond(start), own{"a", 0, 9}))), "0:9")
	if s := d.worker.Stats(); s.AlarmErrors != 1 || s.Alarms != 0 {
		t.Errorf("%+v", s)
	}
}

// Of two batches of a key that end in another order than they were applied in, the later one is
// told.
func TestAlarmsOfBatchesThatOvertakeEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faulty{Store: memstore.New(), takes: time.Millisecond}
		store.after.Store(int64(200 * time.Millisecond))
		r := run(t, store, func(o *aggregate.Options) { o.AlarmEvery = time.Second })
		now := time.Now().UnixNano()
		r.send(report(1, 1, perMinute(now), own{"a", 0, 99})) // the first alarm, at once
		time.Sleep(500 * time.Millisecond)
		r.send(report(1, 2, perMinute(now), own{"a", 0, 1})) // applied first, its answer comes last
		time.Sleep(10 * time.Millisecond)
		store.after.Store(0)
		r.send(report(2, 1, perMinute(now), own{"a", 0, 1}))
		time.Sleep(3 * time.Second)
		r.end()
		if n := len(r.line.alarms); n != 2 || alarmText(r.line.alarms[1]) != "per-minute a 1:101" {
			t.Errorf("%d alarms, the last: %s", n, alarmText(r.line.alarms[n-1]))
		}
	})
}

// Denied hits have counters of their own. Alarms carry them beside the admitted ones, and no ledger
// has them.
func TestDeniedHitsAreCountedApart(t *testing.T) {
	store := memstore.New()
	d := newFixture(t, store)
	denied := perMinute(start)
	denied.Denied = true
	m := report(1, 1, perMinute(start), own{"a", 0, 90})
	addHits(m, denied, own{"a", 0, 7000})
	m.Late = []uint64{0, 5}
	m.Made = start - ms
	d.want("answer", totals(d.exchange(start, m)), "0:90 | 0:7000")
	wantLedger(t, "denied", store, "per-minute", storage.RuleLedger{Counted: 90})
	alarm := d.wantAlarms("both", "per-minute a 0:90, per-minute a 0:7000")[0]
	if rules := alarm.GetTotals().GetRules(); len(rules) != 2 || rules[0].GetDenied() || !rules[1].GetDenied() {
		t.Errorf("rules of the alarm: %v", rules)
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
