package aggregate_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
	"github.com/offpath-io/offpath/pkg/events"
)

// greet sends a hello, and returns the answer.
func (d *fixture) greet(now int64, m *events.Hello) *events.Welcome {
	d.t.Helper()
	d.send(now, m)
	for _, welcome := range d.welcomes.take() {
		return welcome
	}
	return nil
}

func TestHello(t *testing.T) {
	d := newFixture(t, memstore.New(), func(o *aggregate.Options) { o.Shards = 6 })
	got := d.greet(start+ms, &events.Hello{Epoch: 1, Sent: 5})
	if got.GetEpoch() != 1 || got.GetSent() != 5 || got.GetShards() != 6 || got.GetTime() != start+ms {
		t.Errorf("welcome: %v", got)
	}
	checkers := func(why string, after int64, epoch uint64, want uint32) {
		t.Helper()
		if got := d.greet(start+after, &events.Hello{Epoch: epoch}).GetCheckers(); got != want {
			t.Errorf("%s: %d checkers, want %d", why, got, want)
		}
	}
	checkers("it has not listened yet", 2*ms, 1, 0)
	d.pass(start + 3*second)
	now := 3 * second
	checkers("the same again", now+2*ms, 1, 1)
	d.worker.Receive(start+now+2*ms, events.KindHello, encode(t, &events.Hello{Epoch: 2}), nil)
	checkers("another, whom another worker answers", now+2*ms, 1, 2)
	if got := d.greet(start+now+3*ms, &events.Hello{Epoch: 2, Leaving: true}); got != nil {
		t.Errorf("an answer to a farewell: %v", got)
	}
	checkers("one has left, one has come", now+4*ms, 3, 2)
	d.bus.hear = nil
	d.pass(start + now + 17*second)
	checkers("no hello for 17 s, in which nothing came at all", now+17*second, 1, 2)
	d.bus.hear = d.hear
	d.pass(start + now + 34*second)
	checkers("the other has sent no hello for 17 s", now+34*second, 1, 1)
	d.worker.Receive(start, events.KindHello, []byte("nonsense"), d.welcomes.reply)
	if got := d.worker.Stats(); got.Hellos != 10 || len(d.welcomes.take()) != 0 {
		t.Errorf("%+v", got)
	}
}

// TestOthersKnowMoreCheckers: a worker that has not listened for as long as a checker may be silent
// believes another one that counts more of them, and from then on itself.
func TestOthersKnowMoreCheckers(t *testing.T) {
	for _, forget := range []time.Duration{0, 60 * time.Second} {
		d := newFixture(t, memstore.New(), func(o *aggregate.Options) { o.Forget = forget })
		listens, forgets := 2500*ms, 8*second
		if forget != 0 {
			listens, forgets = 10*second, 60*second
		}
		for after := 500 * ms; after < 70*second; after += 500 * ms {
			d.pass(start + after)
			told, want := uint32(0), uint32(0)
			if after > listens {
				want = 1
			}
			if after > 6*second { // another one is there
				told = 10
				other := &events.Member{Id: 99, Sent: start + after, Checkers: told}
				d.worker.Receive(d.now, events.KindMember, encode(t, other), nil)
				if after < forgets {
					want = told
				}
			}
			if got := d.greet(d.now, &events.Hello{Epoch: 1}).GetCheckers(); got != want && after != listens && after != forgets {
				t.Errorf("forget %v: after %d ms: %d checkers, want %d", forget, after/ms, got, want)
			}
		}
	}
}

// Before the store has been reached nothing is answered. While it is away no checker is told that
// all is well; when it is back they are.
func TestAnswersWithoutTheStore(t *testing.T) {
	down := errors.New("connection refused")
	store := &faulty{Store: memstore.New()}
	d := coldFixture(t, store)
	now := start
	for i, step := range []struct {
		why                       string
		down                      error
		welcomes, reports, leases int // answers
	}{
		{"not reached yet", down, 0, 0, 0},
		{"reached", nil, 1, 1, 1},
		{"away: the number of shards is known", down, 0, 1, 1},
		{"back", nil, 1, 1, 1},
	} {
		store.have(faults{join: step.down})
		next := d.step(now)
		if next <= now || next > now+second/2 {
			t.Errorf("%s: the next try comes at +%d", step.why, next-now)
		}
		if err := d.worker.Ready(); !errors.Is(err, step.down) {
			t.Errorf("%s: ready: %v", step.why, err)
		}
		d.send(now, &events.Hello{Epoch: 1})
		d.send(now, report(1, uint64(i)+1, perSecond(now), own{"a", 0, 1}))
		d.send(now, leaseRequest(1, uint64(i)+1, perSecond(now), wish{key: "a", want: 1}))
		d.step(now + 2*ms)
		welcomes, reports, leases := len(d.welcomes.take()), len(d.refreshes.take()), len(d.grants.take())
		if welcomes != step.welcomes || reports != step.reports || leases != step.leases {
			t.Errorf("%s: %d welcomes, %d reports and %d leases answered", step.why, welcomes, reports, leases)
		}
		now += 2 * second
	}
	if s := d.worker.Stats(); s.LeasesDropped != 1 {
		t.Errorf("before the store is there: %+v", s)
	}
}

// Where the fleet's record is away and most shards count on, as in a cluster of which one node is
// dead, the fleet is not told to decide by less than it knows.
func TestWelcomeWithoutTheRecord(t *testing.T) {
	store := &faulty{Store: memstore.New()}
	d := newFixture(t, store, func(o *aggregate.Options) { o.Shards = 3 })
	now, sequence := d.next, uint64(0)
	away, both := faults{join: errors.New("away")}, faults{join: errors.New("away"), before: errors.New("away, too")}
	for _, step := range []struct {
		why      string
		have     faults
		wait     int64
		count    []uint32 // shards
		answered bool
	}{
		{"at first", faults{}, 0, []uint32{0, 1, 2}, true},
		{"what was counted before tells nothing", away, 2 * second, nil, false},
		{"one shard of three", away, 0, []uint32{0}, false},
		{"two shards of three", away, 0, []uint32{1}, true},
		{"one of them has gone", both, 0, []uint32{1}, false},
		{"it is back", away, 0, []uint32{1}, true},
		{"the record is still away", away, 2 * second, nil, true},
	} {
		store.have(step.have)
		if step.wait > 0 {
			now += step.wait
			d.step(now)
		}
		for _, shard := range step.count {
			sequence++
			m := report(1, sequence, perSecond(now+10*ms), own{"a", 0, 1})
			m.Shard, m.Shards = shard, 3
			d.send(now+10*ms, m)
			now += 20 * ms
			d.step(now)
		}
		if got := d.greet(now, &events.Hello{Epoch: 1}); (got != nil) != step.answered {
			t.Errorf("%s: %v", step.why, got)
		}
	}
}

func TestTheFleetsTimeIsTheStores(t *testing.T) {
	hour := int64(time.Hour)
	store := &faulty{Store: memstore.New()}
	d := coldFixture(t, store)
	store.clock = func() int64 { return d.now + hour }
	d.pass(start + second) // it listens for other aggregators first
	if got := d.greet(start+second, &events.Hello{Epoch: 1}).GetTime(); got != start+hour+second {
		t.Errorf("welcome an hour ahead: %d", got-start)
	}
	// Buckets are judged by it, too.
	m := report(1, 1, perSecond(start), own{"a", 0, 1}, own{"a", -3600, 2})
	if got := totals(d.exchange(start+second, m)); got != "-3600:2" {
		t.Errorf("totals: %s", got)
	}
}

// TestOneCredentialIsSoManyCheckers: whoever has one can make others believe in so many checkers
// and no more; checkers that have gone give their place back, and those of others always have
// theirs.
func TestOneCredentialIsSoManyCheckers(t *testing.T) {
	d := newFixture(t, memstore.New(), func(o *aggregate.Options) { o.MaxCheckers = 100 })
	greet := func(now int64, owner string, count int) (checkers uint32) {
		for range count {
			checkers = d.greet(now, &events.Hello{Epoch: events.NewEpoch(owner)}).GetCheckers()
		}
		return checkers
	}
	d.pass(start + 3*second)
	if got := greet(start+3*second, "mine", 65_000); got != 100 {
		t.Errorf("65,000 hellos of one credential are %d checkers", got)
	}
	d.pass(start + 8*second)
	if got := greet(start+8*second, "yours", 3); got != 103 {
		t.Errorf("with three of another: %d", got)
	}
	d.pass(start + 13*second)
	if got := greet(start+13*second, "mine", 7); got != 10 {
		t.Errorf("when the hundred have gone, seven others and the three are %d", got)
	}
}

// TestLongWindowsAreRefused: what is counted is kept for two windows, so made-up rules would fill
// the store for years.
func TestLongWindowsAreRefused(t *testing.T) {
	store := memstore.New()
	d := newFixture(t, store, func(o *aggregate.Options) { o.MaxWindow = time.Hour })
	long := perMinute(start)
	long.Name, long.WindowMs = "made up", uint64((366 * 24 * time.Hour).Milliseconds())
	d.want("a year", totals(d.exchange(start, report(1, 1, long, own{"a", 0, 5})))[:30], "error: rule \"made up\": a windo")
	d.send(start, leaseRequest(1, 1, long, wish{key: "k", want: 1}))
	settled := asks(2, start, 5, settlement(start, 1, charge(long, 0, 1), 1))
	d.want("an hour at most", totals(d.exchange(start, settled)), " | 0:5")
	ledger, err := store.Ledger(t.Context())
	if s := d.worker.Stats(); err != nil || len(ledger) != 1 || s.Refused != 1 ||
		s.LeasesRefused != 1 || s.SettlementsRefused != 1 || s.RulesLong != 3 {
		t.Errorf("ledger %v, %v, stats %+v", ledger, err, s)
	}
}

// TestMadeUpRulesAreBounded: each rule is in the ledger for ever. A credential that makes rules up,
// in reports, settlements or lease requests, finds no room beyond its bound; the rules that it had
// before, and others', count on.
func TestMadeUpRulesAreBounded(t *testing.T) {
	store := memstore.New()
	d := newFixture(t, store, func(o *aggregate.Options) { o.MaxRules = 1000 })
	sequence := uint64(0)
	of := func(owner uint64, name string, rules int) *events.Report {
		sequence++
		m := report(owner<<40+1, sequence, perMinute(start), own{"a", 0, 1})
		for n := range rules {
			made := perMinute(start)
			made.Name = fmt.Sprint(name, n)
			addHits(m, made, own{"a", 0, 1})
		}
		return m
	}
	made := perMinute(start)
	made.Name = "settled"
	for i, step := range []struct {
		now     int64
		report  *events.Report
		refused bool
	}{
		{start, of(1, "mine ", 500), false},
		{start, of(1, "made up too ", 10_000), true},
		{start, of(1, "made up ", 500), true},
		{start, of(1, "made up ", 499), false},
		{start, of(1, "mine ", 500), false},
		{start, of(2, "another's ", 500), false},
		{start + int64(12*time.Hour), of(1, "mine ", 500), false},
		{start + int64(13*time.Hour), of(1, "made up too ", 500), true}, // the first ones are remembered still
		{start + int64(25*time.Hour), of(1, "new ", 499), false},
	} {
		d.step(step.now)
		if got := d.exchange(step.now, step.report); (got.GetError() != "") != step.refused {
			t.Errorf("%d: %q", i, got.GetError())
		}
		if i == 3 { // the bound is reached
			m := asks(99, start, 1, settlement(start, 1, charge(made, 0, 1), +1))
			m.Epoch = 1<<40 + 2
			d.exchange(start, m)
			l := leaseRequest(1<<40+3, 1, made, wish{key: "k", want: 1})
			d.send(start, l)
		}
	}
	ledger, err := store.Ledger(t.Context())
	if s := d.worker.Stats(); err != nil || len(ledger) != 1+500+499+500+499 ||
		s.RulesMany != 5 || s.SettlementsRefused != 1 || s.LeasesRefused != 1 {
		t.Errorf("%d rules in the ledger, %v, stats %+v", len(ledger), err, s)
	}
}
