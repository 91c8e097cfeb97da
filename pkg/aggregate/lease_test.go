package aggregate_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/events"
)

// lease sends one request, lets it be carried out, and returns its answer.
func (d *fixture) lease(now int64, m *events.LeaseRequest) *events.Grant {
	d.t.Helper()
	d.grants.take()
	d.send(now, m)
	d.step(now + ms)
	return d.grants.only()
}

// wish is what a request asks of one key: returned, if not 0, of the bucket that it speaks of.
type wish struct {
	key                   string
	age                   int64
	known, want, returned uint64
}

// leaseRequest makes a request of one rule for a fleet of one shard.
func leaseRequest(epoch, sequence uint64, rule *events.Rule, wishes ...wish) *events.LeaseRequest {
	m := &events.LeaseRequest{Epoch: epoch, Shards: 1, Sequence: sequence, Keys: &events.Table{Rules: []*events.Rule{rule}}}
	for _, w := range wishes {
		m.AddKey(0, w.key, w.age, w.known, w.want)
		if w.returned > 0 {
			m.AddReturn(w.age, w.returned)
		}
	}
	return m
}

// permits are what a grant says of its keys, one after the other: age:granted/spoken wait.
func permits(m *events.Grant) string {
	if m.GetError() != "" {
		return "error: " + m.GetError()
	}
	var keys []string
	for i := range m.GetAge() {
		keys = append(keys, fmt.Sprintf("%d:%d/%d %d", m.Age[i], m.Granted[i], m.Spoken[i], m.WaitMs[i]))
	}
	return strings.Join(keys, " | ")
}

func TestLeasesAreAnswered(t *testing.T) {
	d := newFixture(t, memstore.New())
	for i, step := range []struct {
		why    string
		after  int64
		epoch  uint64
		wishes []wish
		want   string // age:granted/spoken wait
	}{
		{"the first of two keys", 0, 1, []wish{{"a", 0, 0, 7, 0}, {"b", 0, 0, 10, 0}}, "0:7/7 0 | 0:10/10 1099"},
		{"another checker gets the rest", 0, 2, []wish{{"a", 0, 0, 7, 0}}, "0:3/3 1099"},
		{"a repeat", 100 * ms, 1, []wish{{"a", 0, 0, 7, 0}}, "0:7/7 999"},
		{"some are given back", 200 * ms, 1, []wish{{"a", 0, 7, 0, 2}}, "0:7/7 0"},
		{"and granted again", 200 * ms, 2, []wish{{"a", 0, 3, 10, 0}}, "0:5/5 899"},
		{"a key twice: only the first counts", 300 * ms, 3, []wish{{"c", 0, 0, 4, 0}, {"c", 0, 0, 6, 0}, {"d", 0, 0, 6, 0}},
			"0:4/4 0 | 0:4/4 0 | 0:6/6 0"},
		{"each key's own are given back", 300 * ms, 3, []wish{{"c", 0, 4, 0, 1}, {"d", 0, 6, 0, 3}}, "0:4/4 0 | 0:6/6 0"},
		{"in the next second, of the last one", second, 2, []wish{{"a", 1, 5, 1, 0}}, "0:0/5 99"},
		{"an earlier bucket melts", second + 499*ms, 2, []wish{{"a", 0, 0, 10, 0}, {"a", 1, 5, 0, 0}}, "0:5/5 100 | 0:5/5 100"},
		{"who speaks of the future gets of the present", second + 500*ms, 4, []wish{{"b", -1, 0, 1, 0}}, "0:1/0 0"},
	} {
		now := start + step.after
		m := d.lease(start+step.after, leaseRequest(step.epoch, uint64(i)+1, perSecond(now), step.wishes...))
		d.want(step.why, permits(m), step.want)
	}
	s := d.worker.Stats()
	if s.LeaseRequests != 10 || s.LeasesAnswered != 10 || s.LeaseBatches != 10 || s.PermitsGranted != 38 || s.PermitsReturned != 6 {
		t.Errorf("stats: %+v", s)
	}
}

func TestLeasesAreGathered(t *testing.T) {
	d := newFixture(t, memstore.New())
	for epoch := range uint64(4) {
		d.send(start+int64(epoch)*ms/10, leaseRequest(epoch+1, 1, perSecond(start), wish{key: "a", want: 10}))
	}
	if next := d.step(start + ms/2); next != start+ms || len(d.grants.take()) != 0 {
		t.Errorf("too early: answers, or next step at +%d", next-start)
	}
	// A later request of the same checker takes the place of the first, an earlier one does not; it
	// is not due later for that.
	d.send(start+ms/2, leaseRequest(2, 3, perSecond(start), wish{key: "b", want: 3}))
	d.send(start+ms/2, leaseRequest(2, 2, perSecond(start), wish{key: "c", want: 3}))
	d.step(start + ms)
	all := make(map[uint64]string)
	sum := uint64(0)
	for _, g := range d.grants.take() {
		all[g.GetEpoch()] = permits(g)
		if g.GetEpoch() != 2 {
			sum += g.Granted[0]
		} else if g.GetSequence() != 3 || permits(g) != "0:3/3 0" {
			t.Errorf("checker 2: %v", g)
		}
	}
	if len(all) != 4 || sum != 10 {
		t.Errorf("%v", all)
	}
	if s := d.worker.Stats(); s.LeasesReplaced != 2 || s.LeaseBatches != 1 || s.LeaseRequests != 6 {
		t.Errorf("stats: %+v", s)
	}
}

// A wait is rounded up: after it, there is a permit.
func TestWaitsOfLeasesAreRoundedUp(t *testing.T) {
	d := newFixture(t, memstore.New())
	rule := perSecond(start)
	rule.Limit = 7
	first := d.lease(start, leaseRequest(1, 1, rule, wish{key: "a", want: 7}))
	d.want("after 1141.86 ms", permits(first), "0:7/7 1142")
	for _, step := range []struct {
		after int64
		want  string
	}{{1142, "-1:0/7 1"}, {1143, "-1:1/7 143"}} {
		m := leaseRequest(1, 2, rule, wish{key: "a", known: 7, want: 7})
		d.want(fmt.Sprint("after ms ", step.after), permits(d.lease(start+(step.after-1)*ms, m)), step.want)
	}
}

// Where there is one permit for four, it is not always the same checker's.
func TestScarcePermitsGoToAllInTurn(t *testing.T) {
	d := newFixture(t, memstore.New())
	got := make(map[uint64]uint64)
	const rounds = 60
	for i := range int64(rounds) {
		now := start + i*10*second
		d.step(now)
		rule := perSecond(now)
		rule.Limit = 1
		for epoch := range uint64(4) {
			d.send(now, leaseRequest(epoch+1, 1, rule, wish{key: "a", want: 1}))
		}
		d.step(now + ms)
		for _, g := range d.grants.take() {
			got[g.GetEpoch()] += g.Granted[0]
		}
	}
	for epoch := range uint64(4) {
		if n := got[epoch+1]; n < rounds/10 || n > rounds/2 {
			t.Errorf("of %d permits, checker %d had %d", rounds, epoch+1, n)
		}
	}
}

func TestLeasesThatAreRefused(t *testing.T) {
	d := newFixture(t, memstore.New())
	rule := perSecond(start)
	change := func(f func(m *events.LeaseRequest)) *events.LeaseRequest {
		m := leaseRequest(1, 1, rule, wish{key: "a", want: 1})
		m.Keys.Rules = []*events.Rule{perSecond(start)}
		f(m)
		return m
	}
	for _, test := range []struct {
		m    *events.LeaseRequest
		want string
	}{
		{change(func(m *events.LeaseRequest) { m.Keys.Rules[0].Limit = 0 }), `rule "per-second": permits of a limit of 0`},
		{change(func(m *events.LeaseRequest) { m.Keys.Rules[0].Buckets = 7 }), "1000 ms in 7 buckets"},
		{change(func(m *events.LeaseRequest) { m.Shards = 2 }), "a fleet of 2 shards; this one has 1"},
		{change(func(m *events.LeaseRequest) { m.Age[0] = -6 }), "too far in the future"},
		{change(func(m *events.LeaseRequest) { m.Keys.Rules[0].Newest = 1 << 43 }), "bucket 8796093022208"},
		{change(func(m *events.LeaseRequest) { m.Keys.Rules[0].Algorithm = events.Algorithm_SLIDING_LOG }),
			`rule "per-second": permits of a SLIDING_LOG`},
		{change(func(m *events.LeaseRequest) { m.Want = nil }), "0 wanted"},
	} {
		d.send(start, test.m)
		got := d.grants.take()
		if len(got) != 1 || !strings.Contains(got[0].GetError(), test.want) || len(got[0].Granted) > 0 {
			t.Errorf("got %v, want %q", got, test.want)
		}
	}
	d.worker.Receive(start, events.KindLease, []byte{0xff}, d.grants.reply) // from nobody knows whom
	if s := d.worker.Stats(); s.LeasesRefused != 8 || len(d.grants.take()) != 0 {
		t.Errorf("stats: %+v", s)
	}
	most := change(func(m *events.LeaseRequest) { m.Want[0], m.Age[0] = 1e15, -5 })
	d.want("more than the limit, of a bucket just ahead", permits(d.lease(start, most)), "0:10/0 1099")
}

// A store that fails leaves requests without an answer. The checker asks again, whatever the store
// did.
func TestLeasesWhenTheStoreFails(t *testing.T) {
	store := &faulty{Store: memstore.New()}
	d := newFixture(t, store)
	away := errors.New("away")
	for i, f := range []faults{{before: away}, {after: away}} {
		store.have(f)
		for range 2 {
			d.send(start, leaseRequest(1, 1, perSecond(start), wish{key: fmt.Sprint(i), want: 4}))
			d.step(start + ms)
		}
		if got := d.grants.take(); len(got) != 0 {
			t.Errorf("answers: %v", got)
		}
		store.have(faults{})
		again := leaseRequest(1, 1, perSecond(start), wish{key: fmt.Sprint(i), want: 4})
		d.want("then", permits(d.lease(start, again)), "0:4/4 0")
	}
	if s := d.worker.Stats(); s.LeasesDropped != 4 || s.LeaseErrors != 4 || s.LeasesAnswered != 2 {
		t.Errorf("stats: %+v", s)
	}
	for _, cut := range []func(*storage.Leased){
		func(l *storage.Leased) { l.Keys = l.Keys[1:] },
		func(l *storage.Leased) { l.Keys[0].Grants = nil },
	} {
		d := newFixture(t, &faulty{Store: memstore.New(), cut: cut})
		d.send(start, leaseRequest(1, 1, perSecond(start), wish{key: "a", want: 4}))
		d.step(start + ms)
		if got := d.worker.Stats(); got.LeaseErrors != 1 || got.LeasesRefused != 1 || d.grants.take()[0].GetError() == "" {
			t.Errorf("a store that leaves something out: %+v", got)
		}
	}
}

// Lease requests do not wait for reports, and a worker that stops answers those it has.
func TestLeasesDoNotWaitForReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, &faulty{Store: memstore.New(), takes: time.Second})
		for epoch := range uint64(3) { // more than there are hands
			r.send(report(epoch+1, 1, perSecond(time.Now().UnixNano()), own{"a", 0, 1}))
			time.Sleep(3 * time.Millisecond)
		}
		ask := func(epoch uint64) {
			t.Helper()
			r.send(leaseRequest(epoch, 1, perSecond(time.Now().UnixNano()), wish{key: "a", want: 1}))
		}
		ask(1)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if got := r.grants.only(); got.GetEpoch() != 1 || len(r.refreshes.take()) != 0 {
			t.Errorf("a grant for %d while reports wait", got.GetEpoch())
		}
		ask(2)
		r.end()
		if got := r.grants.only(); got.GetEpoch() != 2 {
			t.Errorf("in the end, a grant for %d", got.GetEpoch())
		}
	})
}
