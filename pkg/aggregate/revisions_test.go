package aggregate_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/window"
)

// ofRevision is perSecond with another limit and revision.
func ofRevision(limit, revision uint64) *events.Rule {
	r := perSecond(start)
	r.Limit, r.Revision = limit, revision
	return r
}

// A checker that has not got the newest rules yet does not raise alarms by its limit, and does not
// keep them from being raised, even if its report comes alone.
func TestAlarmsGoByTheHighestRevision(t *testing.T) {
	const none = -1
	for _, test := range []struct {
		why           string
		first, second *events.Rule
		inOne         int64 // the limit of the alarm if both are in one batch
		apart         int64 // if the second comes a second later
		muchLater     int64 // or a minute
	}{
		{"one revision", ofRevision(10, 1), ofRevision(10, 1), 10, 10, 10},
		{"one revision, two limits", ofRevision(10, 1), ofRevision(100, 1), none, none, none},
		{"the limit has become lower", ofRevision(10, 2), ofRevision(100, 1), 10, 10, none},
		{"the limit has become higher", ofRevision(100, 2), ofRevision(10, 1), none, none, 10},
		{"the second is the newer one", ofRevision(100, 1), ofRevision(10, 2), 10, 10, 10},
		{"the second is the newer one, and higher", ofRevision(10, 1), ofRevision(100, 2), none, none, none},
		{"rules without revisions", ofRevision(100, 0), ofRevision(10, 0), none, 10, 10},
		{"a revision, and none", ofRevision(100, 1), ofRevision(10, 0), none, none, 10},
		{"no limit to be near to", ofRevision(0, 1), ofRevision(0, 1), none, none, none},
	} {
		for after, want := range map[time.Duration]int64{0: test.inOne, time.Second: test.apart, time.Minute: test.muchLater} {
			d := newFixture(t, memstore.New())
			now := start + int64(after)
			d.send(start, report(1, 1, test.first, own{"other", 0, 0}))
			if after > 0 {
				d.step(start + 2*ms)
			}
			test.second.Newest = now / second
			d.send(now, report(2, 1, test.second, own{"k", 0, 5}))
			d.step(now + 10*ms)
			got := int64(none)
			for _, m := range d.bus.alarms {
				got = int64(m.Totals.Rules[0].GetLimit())
			}
			if got != want {
				t.Errorf("%s, %v later: an alarm by a limit of %d, want %d", test.why, after, got, want)
			}
		}
	}
}

// Permits are granted by the limit of the highest revision that was reported, by either kind of
// request.
func TestLeasesGoByTheHighestRevision(t *testing.T) {
	for _, test := range []struct {
		why  string
		news func(*fixture)
		asks *events.Rule
		want string
	}{
		{"nothing is known", func(*fixture) {}, ofRevision(10, 1), "0:10/10"},
		{"another has asked by a lower limit", func(d *fixture) {
			d.lease(start, leaseRequest(1, 1, ofRevision(4, 2), wish{"k", 0, 0, 0, 0}))
		}, ofRevision(10, 1), "0:4/4"},
		{"another has asked by a higher limit, of another key", func(d *fixture) {
			d.lease(start, leaseRequest(1, 1, ofRevision(100, 2), wish{"other", 0, 0, 1, 0}))
		}, ofRevision(10, 1), "0:50/50"},
		{"another has reported by a lower limit", func(d *fixture) {
			d.exchange(start, report(1, 1, ofRevision(4, 2), own{"other", 0, 1}))
		}, ofRevision(10, 1), "0:4/4"},
		{"an older one was reported", func(d *fixture) {
			d.lease(start, leaseRequest(1, 1, ofRevision(4, 1), wish{"k", 0, 0, 0, 0}))
		}, ofRevision(10, 2), "0:10/10"},
		{"more are held than the lower limit", func(d *fixture) {
			d.lease(start, leaseRequest(1, 1, ofRevision(10, 1), wish{"k", 0, 0, 8, 0}))
			d.lease(start+2*ms, leaseRequest(1, 2, ofRevision(4, 2), wish{"k", 0, 8, 0, 0}))
		}, ofRevision(10, 1), "0:0/0"},
	} {
		d := newFixture(t, memstore.New())
		test.news(d)
		m := d.lease(start+5*ms, leaseRequest(2, 1, test.asks, wish{"k", 0, 0, 50, 0}))
		if got := fmt.Sprintf("0:%d/%d", m.Granted[0], m.Spoken[0]); got != test.want || !slices.Equal(m.Age, []int64{0}) {
			t.Errorf("%s: granted %s, want %s", test.why, got, test.want)
		}
	}
}

// No report changes a rule from a trusted source, whatever its revision, and for however long:
// alarms and permits use the trusted limit. All hits count nevertheless, also while rules change,
// and where a checker has another rule of that name.
func TestReportsDoNotChangeKnownRules(t *testing.T) {
	const hostile = uint64(1) << 62
	for _, test := range []struct {
		why             string
		limit, revision uint64
		window          int64 // in seconds
		alarms          string
	}{
		{"what is known", 10, 2, 1, "[10]"},
		{"an older revision", 100, 1, 1, "[10]"},
		{"a newer one, which is not known yet", 100, 3, 1, "[10]"},
		{"none", 100, 0, 1, "[10]"},
		{"one of the far future", 1000, hostile, 1, "[10]"},
		{"a lower limit of the far future", 1, hostile, 1, "[10]"},
		{"no limit", 0, hostile, 1, "[10]"},
		{"another window, with too much room", 1000, hostile, 2, "[]"},
		{"another window, with little", 1, hostile, 2, "[1]"},
	} {
		for _, after := range []time.Duration{0, time.Second, 30 * time.Second} {
			now := start + int64(after)
			says := func() *events.Rule {
				r := ofRevision(test.limit, test.revision)
				r.WindowMs, r.Newest = uint64(1000*test.window), now/(test.window*second)
				return r
			}
			d := newFixture(t, memstore.New())
			d.worker.SetRules([]storage.Rule{{Name: "per-second", Shape: window.Shape{Length: time.Second, Buckets: 1}, Limit: 10, Revision: 2}})
			honest, sent := says(), int64(5)
			if after > 0 { // who says so has spoken before, and does so beside an honest checker, which is not up to date
				honest, sent = ofRevision(50, 1), 7
				honest.Newest = now / second
				d.exchange(start, report(1, 1, says(), own{"before", 0, 1}))
				d.send(now, report(3, 1, says(), own{"beside", 0, 1}))
				test.alarms = "[10]"
			}
			d.send(now, report(2, 1, honest, own{"key", 0, 5}))
			d.step(now + 10*ms)
			var limits []uint64
			for _, m := range d.bus.alarms {
				for _, r := range m.Totals.Rules {
					if r.WindowMs == honest.WindowMs {
						limits = append(limits, r.GetLimit())
					}
				}
			}
			s := d.worker.Stats()
			if got := fmt.Sprint(limits); got != test.alarms || s.HitsCounted+s.HitsRefused != sent {
				t.Errorf("%s, %v later: alarms by limits of %s, want %s; %d hits counted and %d refused of %d", test.why, after, got, test.alarms, s.HitsCounted, s.HitsRefused, sent)
			}
			if honest.WindowMs == 1000 && honest.Limit > 0 {
				m := d.lease(now+20*ms, leaseRequest(4, 1, honest, wish{"leased", 0, 0, 50, 0}))
				if len(m.Granted) != 1 || m.Granted[0] != 10 {
					t.Errorf("%s, %v later: permits %v, want 10", test.why, after, m.Granted)
				}
			}
		}
	}
}
