package aggregate_test

import (
	"strings"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
	"github.com/offpath-io/offpath/pkg/events"
)

// ofRevision is perSecond with another limit and revision.
func ofRevision(now int64, limit, revision uint64) *events.Rule {
	r := perSecond(now)
	r.Limit, r.Revision = limit, revision
	return r
}

// TestAlarmsByTheHighestRevision: a checker that has not got the newest rules yet does not raise alarms by its
// limit, and does not keep them from being raised, even if its report comes alone.
func TestAlarmsByTheHighestRevision(t *testing.T) {
	for _, test := range []struct {
		why           string
		after         time.Duration // between the reports
		first, second *events.Rule
		alarm         bool // by 5 hits that the second tells of
		limit         uint64
	}{
		{"one revision", time.Second, ofRevision(start, 10, 1), ofRevision(start, 10, 1), true, 10},
		{"the limit has become lower", time.Second, ofRevision(start, 10, 2), ofRevision(start, 100, 1), true, 10},
		{"the limit has become higher", time.Second, ofRevision(start, 100, 2), ofRevision(start, 10, 1), false, 0},
		{"the second is the newer one", time.Second, ofRevision(start, 100, 1), ofRevision(start, 10, 2), true, 10},
		{"the second is the newer one, and higher", time.Second, ofRevision(start, 10, 1), ofRevision(start, 100, 2), false, 0},
		{"nobody has spoken of the newer one for long", time.Minute, ofRevision(start, 100, 2), ofRevision(start, 10, 1), true, 10},
		{"rules without revisions", time.Second, ofRevision(start, 100, 0), ofRevision(start, 10, 0), true, 10},
		{"a revision, and none", time.Second, ofRevision(start, 100, 1), ofRevision(start, 10, 0), false, 0},
	} {
		d := newFixture(t, memstore.New())
		d.exchange(start, report(1, 1, test.first, own{"a", 0, 0}))
		now := start + int64(test.after)
		test.second.Newest = now / second
		d.exchange(now, report(2, 1, test.second, own{"k", 0, 5}))
		d.step(now + 10*ms)
		switch got := d.bus.alarms; {
		case (len(got) > 0) != test.alarm:
			t.Errorf("%s: alarms %v", test.why, got)
		case test.alarm && got[0].Totals.Rules[0].GetLimit() != test.limit:
			t.Errorf("%s: an alarm by a limit of %d", test.why, got[0].Totals.Rules[0].GetLimit())
		}
	}
}

// TestAnotherShapeIsAnotherRule: what is said of a rule with another window says nothing of this one.
func TestAnotherShapeIsAnotherRule(t *testing.T) {
	d := newFixture(t, memstore.New())
	r := ofRevision(start, 1000, 2)
	r.WindowMs = 2000
	d.exchange(start, report(1, 1, r, own{"a", 0, 0}))
	d.exchange(start+10*ms, report(2, 1, ofRevision(start, 10, 1), own{"k", 0, 5}))
	d.step(start + 20*ms)
	if len(d.alarms()) != 1 {
		t.Error("no alarm by its own limit")
	}
}

// TestLeasesByTheHighestRevision: permits are granted by the limit of the highest revision that was heard of, by
// whatever kind of message, whoever asks.
func TestLeasesByTheHighestRevision(t *testing.T) {
	for _, test := range []struct {
		why  string
		news func(*fixture)
		asks *events.Rule
		want string
	}{
		{"nothing is known", func(*fixture) {}, ofRevision(start, 10, 1), "0:10/10"},
		{"another has asked by a lower limit", func(d *fixture) {
			d.lease(start, leaseRequest(1, 1, ofRevision(start, 4, 2), wish{"k", 0, 0, 0, 0}))
		}, ofRevision(start, 10, 1), "0:4/4"},
		{"another has asked by a higher limit, of another key", func(d *fixture) {
			d.lease(start, leaseRequest(1, 1, ofRevision(start, 100, 2), wish{"other", 0, 0, 1, 0}))
		}, ofRevision(start, 10, 1), "0:50/50"},
		{"another has reported by a lower limit", func(d *fixture) {
			d.exchange(start, report(1, 1, ofRevision(start, 4, 2), own{"other", 0, 1}))
		}, ofRevision(start, 10, 1), "0:4/4"},
		{"an older one was heard of", func(d *fixture) {
			d.lease(start, leaseRequest(1, 1, ofRevision(start, 4, 1), wish{"k", 0, 0, 0, 0}))
		}, ofRevision(start, 10, 2), "0:10/10"},
		{"more are held than the lower limit", func(d *fixture) {
			d.lease(start, leaseRequest(1, 1, ofRevision(start, 10, 1), wish{"k", 0, 0, 8, 0}))
			d.lease(start+2*ms, leaseRequest(1, 2, ofRevision(start, 4, 2), wish{"k", 0, 8, 0, 0}))
		}, ofRevision(start, 10, 1), "0:0/0"},
	} {
		d := newFixture(t, memstore.New())
		test.news(d)
		got := permits(d.lease(start+5*ms, leaseRequest(2, 1, test.asks, wish{"k", 0, 0, 50, 0})))
		if got, _, _ = strings.Cut(got, " "); got != test.want { // the rest is when there may be more
			t.Errorf("%s: granted %s, want %s", test.why, got, test.want)
		}
	}
}
