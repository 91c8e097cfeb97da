package aggregate_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
	"github.com/offpath-io/offpath/pkg/events"
)

// greet sends a hello to be answered, and returns the answer.
func (d *fixture) greet(now int64, payload []byte) *events.Welcome {
	d.t.Helper()
	var welcome *events.Welcome
	d.worker.Receive(now, events.KindHello, payload, func(data []byte) error {
		var err error
		welcome, err = events.DecodeWelcome(data)
		return err
	})
	return welcome
}

func TestHello(t *testing.T) {
	d := coldFixture(t, memstore.New(), func(o *aggregate.Options) { o.Shards = 6 })
	if got := d.greet(start, hello(t, 1, 5)); got != nil {
		t.Errorf("an answer before the store was reached: %v", got)
	}
	d.step(start)
	got := d.greet(start+ms, hello(t, 1, 5))
	if got.GetEpoch() != 1 || got.GetSent() != 5 || got.GetShards() != 6 || got.GetTime() != start+ms || got.GetCheckers() != 1 {
		t.Errorf("welcome: %v", got)
	}
	d.worker.Receive(start+ms, events.KindHello, hello(t, 2, 0), nil) // another worker answers this one
	if got := d.greet(start+2*ms, hello(t, 1, 5)).GetCheckers(); got != 2 {
		t.Errorf("%d checkers, want 2", got)
	}
	leaving, err := events.Append(nil, &events.Hello{Epoch: 2, Leaving: true})
	if err != nil {
		t.Fatal(err)
	}
	if got := d.greet(start+3*ms, leaving); got != nil {
		t.Errorf("an answer to a farewell: %v", got)
	}
	if got := d.greet(start+4*ms, hello(t, 3, 0)).GetCheckers(); got != 2 {
		t.Errorf("%d checkers after one came and one left, want 2", got)
	}
	if got := d.greet(start+17*second, hello(t, 1, 0)).GetCheckers(); got != 1 {
		t.Errorf("%d checkers after 17 s, want 1", got)
	}
	d.worker.Receive(start, events.KindHello, []byte("nonsense"), d.reply)
	if got := d.worker.Stats(); got.Hellos != 8 {
		t.Errorf("%+v", got)
	}
}

// While the store is away nobody is told that all is well, and when it is back they are.
func TestNoWelcomeWithoutTheStore(t *testing.T) {
	store := &faulty{Store: memstore.New()}
	d := newFixture(t, store)
	next := d.next
	if d.greet(next, hello(t, 1, 0)) == nil {
		t.Fatal("no answer")
	}
	store.have(faults{join: errors.New("away")})
	next = d.step(next)
	if got := d.greet(next, hello(t, 1, 0)); got != nil {
		t.Errorf("without the store: %v", got)
	}
	store.have(faults{})
	next = d.step(next)
	if got := d.greet(next, hello(t, 1, 0)); got.GetCheckers() != 1 {
		t.Errorf("with the store again: %v", got)
	}
}

// Where the fleet's record is away and most shards count on, as in a cluster of which one node is
// dead, the fleet is not told to decide by less than it knows.
func TestWelcomeWithoutTheRecord(t *testing.T) {
	store := &faulty{Store: memstore.New()}
	d := newFixture(t, store, func(o *aggregate.Options) { o.Shards = 3 })
	now, sequence := d.next, uint64(0)
	count := func(shard uint32) {
		t.Helper()
		sequence++
		now += 10 * ms
		m := report(1, sequence, perSecond(now), own{"a", 0, 1})
		m.Shard, m.Shards = shard, 3
		d.send(now, m)
		now += 10 * ms
		d.step(now)
	}
	want := func(why string, answered bool) {
		t.Helper()
		if got := d.greet(now, hello(t, 1, 0)); (got != nil) != answered {
			t.Errorf("%s: %v", why, got)
		}
	}
	for shard := range uint32(3) {
		count(shard)
	}
	want("at first", true)
	store.have(faults{join: errors.New("away")})
	now += 2 * second
	d.step(now)
	want("what was counted before tells nothing", false)
	count(0)
	want("one shard of three", false)
	count(1)
	want("two shards of three", true)
	store.have(faults{join: errors.New("away"), before: errors.New("away, too")})
	count(1)
	want("one of them has gone", false)
	store.have(faults{join: errors.New("away")})
	count(1)
	want("it is back", true)
	now += 2 * second
	d.step(now)
	want("the record is still away", true)
}

func TestTheFleetsTimeIsTheStores(t *testing.T) {
	store := ahead{memstore.New(), time.Hour}
	d := newFixture(t, store)
	hour := int64(time.Hour)
	if got := d.greet(start+ms, hello(t, 1, 0)).GetTime(); got != start+hour+ms {
		t.Errorf("welcome an hour ahead: %d", got-start)
	}
	// Buckets are judged by it, too.
	m := report(1, 1, perSecond(start), own{"a", 0, 1}, own{"a", -3600, 2})
	if got := totals(d.exchange(start, m)); got != "-3600:2" {
		t.Errorf("totals: %s", got)
	}
}

// ahead is a store whose clock is ahead of the test's.
type ahead struct {
	aggregate.Store
	by time.Duration
}

func (s ahead) Join(ctx context.Context, shards int) (aggregate.Fleet, error) {
	fleet, err := s.Store.Join(ctx, shards)
	fleet.Time = time.Unix(0, start).Add(s.by)
	return fleet, err
}
