package aggregate_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/offpath-io/offpath/internal/testing/membus"
	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/events"
)

// A shard that the store takes no batch of is left at once to whoever can write to it, and taken up
// again when the store does, also without any traffic.
func TestAShardInTroubleIsLeft(t *testing.T) {
	store := &faulty{Store: memstore.New()}
	d := newFixture(t, store, func(o *aggregate.Options) { o.Shards = 2 })
	d.bus.wantAttended(t, "at first", true, true)
	m := report(1, 1, perSecond(start), own{"a", 0, 1})
	m.Shards, m.Shard = 2, 1

	store.have(faults{before: errors.New("read-only")})
	d.send(start, m)
	d.step(start + 2*ms)
	d.bus.wantAttended(t, "after a batch that failed", true, false)
	if next := d.step(start + 10*ms); next > start+260*ms {
		t.Errorf("looks again in %d ms", (next-start)/ms)
	}
	d.step(start + 500*ms)
	d.bus.wantAttended(t, "it still fails", true, false)
	store.have(faults{})
	d.step(start + second)
	d.bus.wantAttended(t, "it works again", true, true)

	store.hook = failingWithKeys(errPoison)
	m.Sequence++
	d.send(start+2*second, m)
	d.step(start + 2*second + 2*ms)
	d.bus.wantAttended(t, "what fails for its content", true, true)
}

// TestFailedSubscriptions: they are tried again every 250 ms. Others are told no more often than
// that, and the log only now and then.
func TestFailedSubscriptions(t *testing.T) {
	d := coldFixture(t, memstore.New())
	d.bus.unattended = errors.New("no subscriptions")
	for now := start; now < start+20*second; now += 5 * ms {
		d.step(now)
	}
	if d.bus.attends < 60 || d.bus.attends > 100 || d.bus.tells > 100 {
		t.Errorf("%d attempts and %d messages in 20 s", d.bus.attends, d.bus.tells)
	}
	if n := strings.Count(d.log.String(), "cannot subscribe"); n < 1 || n > 3 {
		t.Errorf("logged %d times in 20 s", n)
	}
}

// A store that can be read, but takes no writes, as Redis that is full, takes no reports: a lookup,
// or a report that was counted before, says nothing else of it.
func TestAShardIsLeftForItsWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faulty{Store: memstore.New()}
		var full atomic.Bool
		store.hook = func(batch *storage.Batch, do func() (storage.Applied, error)) (storage.Applied, error) {
			writes := len(batch.Keys) == 0 || len(batch.Marks) > 0 && batch.Marks[0].Sequence > 1
			if full.Load() && writes {
				return storage.Applied{}, errors.New("full")
			}
			return do()
		}
		r := run(t, store)
		m := report(1, 1, perMinute(time.Now().UnixNano()), own{"a", 0, 1})
		r.exchange(m)
		full.Store(true)
		r.exchange(report(1, 2, perMinute(time.Now().UnixNano()), own{"a", 0, 1}))
		for _, after := range []struct {
			why string
			do  func()
		}{
			{"a report that failed", func() {}},
			{"a lookup", func() { r.look(minutely, "a") }},
			{"a report counted before", func() { r.exchange(m) }},
		} {
			after.do()
			r.line.wantAttended(t, "after "+after.why, false)
			if r.worker.Ready() == nil {
				t.Errorf("after %s it is ready", after.why)
			}
		}
		if repeated := r.worker.Stats().Repeated; repeated != 1 {
			t.Errorf("%d reports were repeated", repeated)
		}
	})
}

// hearOther brings a worker what another aggregator tells: that it serves some shards of two.
func (d *fixture) hearOther(now int64, serves byte) {
	d.worker.Receive(now, events.KindMember, encode(d.t, &events.Member{
		Id: 77, Sent: now, Shards: 2, Serves: []byte{serves},
	}), nil)
}

// A shard is left for a while, as long as another aggregator serves it: one whose store fails or is
// slow now and then does not take it back each time it works.
func TestAShardIsLeftForAWhile(t *testing.T) {
	store := &faulty{Store: memstore.New()}
	d := newFixture(t, store, func(o *aggregate.Options) { o.Shards = 2 })
	m := report(1, 1, perSecond(start), own{"a", 0, 1})
	m.Shards, m.Shard = 2, 1
	other := byte(3)
	pass := func(until int64) {
		for d.now = max(d.now, start); d.now < until; {
			d.hearOther(d.now, other)
			d.step(min(d.now+250*ms, until))
		}
	}
	fail := func() (at int64) {
		t.Helper()
		store.have(faults{before: errors.New("read-only")})
		m.Sequence++
		d.send(d.now, m)
		d.hearOther(d.now, other)
		at = d.now + 2*ms
		d.step(at)
		store.have(faults{})
		d.bus.wantAttended(t, "after a batch that failed", true, false)
		return at
	}
	for i, absence := range []int64{5, 10, 20, 40, 60, 60} {
		at := fail()
		pass(at + absence*second - second)
		d.bus.wantAttended(t, fmt.Sprint("absence ", i, ": not yet"), true, false)
		pass(at + absence*second + 2*second)
		d.bus.wantAttended(t, fmt.Sprint("absence ", i, " is over"), true, true)
	}
	pass(d.now + 61*second)
	at := fail()
	pass(at + 7*second)
	d.bus.wantAttended(t, "after a minute in which all went well, it is short again", true, true)

	at = fail()
	pass(at + second)
	d.bus.wantAttended(t, "another one serves it", true, false)
	other = 1
	pass(at + 3*second)
	d.bus.wantAttended(t, "nobody serves it", true, true)
}

// hearsItself has a worker hear what it tells all aggregators.
func hearsItself(o *aggregate.Options) {
	l := o.Bus.(*line)
	l.hear = func(said []byte) {
		<-l.ready
		l.handle(events.KindMember, said, nil)
	}
}

// A store that does not answer is no better than one that refuses, for who has another aggregator.
func TestAShardThatHangsIsLeft(t *testing.T) {
	for _, tt := range []struct {
		why                  string
		other                byte // the shards that another one serves
		hangs, then, finally bool
	}{
		{"another one serves it", 1, false, false, true},
		{"nobody else does", 0, true, true, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := &faulty{Store: memstore.New()}
			store.after.Store(second)
			r := run(t, store, hearsItself)
			for i := range 50 {
				r.hear(&events.Member{Id: 77, Sent: time.Now().UnixNano(), Shards: 1, Serves: []byte{tt.other}})
				switch i {
				case 0:
					r.send(report(1, 1, perSecond(time.Now().UnixNano()), own{"a", 0, 1}))
				case 2:
					r.line.wantAttended(t, tt.why+": while it hangs", tt.hangs)
				case 8:
					r.line.wantAttended(t, tt.why+": once it has answered", tt.then)
					store.after.Store(0)
				}
				time.Sleep(250 * time.Millisecond)
				synctest.Wait()
			}
			r.line.wantAttended(t, tt.why+": once it is quick again", tt.finally)
		})
	}
}

// A store that is slow for lease requests, or fails them and everything else, is left likewise; one
// that fails these alone is not.
func TestAShardIsLeftForItsLeases(t *testing.T) {
	for _, tt := range []struct {
		why      string
		takes    time.Duration
		fails    faults
		lease    error
		attended bool
	}{
		{"it is slow", time.Second, faults{}, nil, false},
		{"it is quick", 0, faults{}, nil, true},
		{"it fails", 0, faults{before: errors.New("away")}, nil, false},
		{"it fails leases alone", 0, faults{}, errors.New("not allowed"), true},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := &faulty{Store: memstore.New(), lease: func(*storage.LeaseBatch) error {
				time.Sleep(tt.takes)
				return tt.lease
			}}
			r := run(t, store, hearsItself)
			time.Sleep(2700 * time.Millisecond) // idle shards are probed every 2 s
			r.hear(&events.Member{Id: 77, Sent: time.Now().UnixNano(), Shards: 1, Serves: []byte{1}})
			store.have(tt.fails)
			r.send(leaseRequest(1, 1, perSecond(time.Now().UnixNano()), wish{key: "a", want: 1}))
			time.Sleep(400 * time.Millisecond)
			synctest.Wait()
			r.line.wantAttended(t, tt.why, tt.attended)
		})
	}
}

// An aggregator that does not keep up with a shard leaves it to another one that serves it.
func TestAShardThatIsTooMuchIsLeft(t *testing.T) {
	for _, tt := range []struct {
		why      string
		checkers uint64 // two of which are answered in 200 ms
		other    byte   // the shards that another one serves
		news     bool   // others have news more often than this one tells them of itself
		attended bool
	}{
		{"it keeps up", 6, 1, false, true},
		{"it does not", 40, 1, false, false},
		{"it does not, and there is much news", 40, 1, true, false},
		{"it does not, but nobody else serves it", 40, 0, false, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := &faulty{Store: memstore.New(), takes: 200 * time.Millisecond}
			r := run(t, store, hearsItself, func(o *aggregate.Options) { o.BatchKeys, o.Shards, o.ID = 1, 2, 1 })
			for epoch := range tt.checkers {
				m := report(epoch+1, 1, perSecond(time.Now().UnixNano()), own{"a", 0, 1})
				m.Shards = 2
				r.send(m)
			}
			for i := range 14 {
				r.hear(&events.Member{Id: 77, Sent: time.Now().UnixNano(), Shards: 2, Serves: []byte{tt.other}})
				if tt.news { // of another shard, for which it is the better one, and which it takes and leaves
					set := []byte{byte(i % 2 * 2)}
					r.hear(&events.Member{Id: 80, Sent: time.Now().UnixNano(), Shards: 2, Serves: set, Owns: set})
				}
				time.Sleep(125 * time.Millisecond)
				synctest.Wait()
			}
			r.line.wantAttended(t, tt.why, tt.attended, true)
			time.Sleep(time.Minute)
			synctest.Wait()
			r.line.wantAttended(t, tt.why+": a minute later", true, true)
		})
	}
}

// A call may end just when it has taken too long: whatever comes first, the shard is not left for
// good.
func TestAShardIsNotLeftForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, &faulty{Store: memstore.New(), takes: 250 * time.Millisecond}, hearsItself)
		for i := range uint64(200) {
			r.hear(&events.Member{Id: 77, Sent: time.Now().UnixNano(), Shards: 1, Serves: []byte{1}})
			r.send(report(1, i+1, perSecond(time.Now().UnixNano()), own{"a", 0, 1}))
			time.Sleep(260 * time.Millisecond)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		r.line.wantAttended(t, "when nobody else serves it", true)
	})
}

// If the store is slow for all aggregators alike, one of them keeps the shard, and answers.
func TestASlowStoreOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, n := memstore.New(), newNetwork(t, membus.Faults{})
		var workers []*aggregate.Worker
		for id := range uint64(3) {
			workers = append(workers, n.start(aggregate.Options{Store: &faulty{Store: store, takes: 300 * time.Millisecond}, ID: id + 1}))
		}
		checker, answered := n.Checker("c"), 0
		checker.Attach(func(kind events.Kind, data []byte) {
			if m, err := events.DecodeRefresh(data); kind == events.KindRefresh && err == nil && m.GetError() == "" {
				answered++
			}
		})
		time.Sleep(10 * time.Second)
		owner, moves := -1, 0
		for i := range uint64(600) {
			now, toOwner := time.Now().UnixNano(), i%10 != 0
			data := encode(t, report(i%5+1, i+1, perSecond(now), own{"a", 0, 1}))
			if err := checker.Report(0, toOwner, data); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			for i, w := range workers {
				if w.Stats().Owned == 1 && owner != i {
					owner, moves = i, moves+1
				}
			}
		}
		if moves > 3 || answered < 500 {
			t.Errorf("the shard had %d owners in a minute, %d of 600 reports were answered", moves, answered)
		}
	})
}

// TestNobodyOwnsWhatItNeverReached: an aggregator that reaches the fleet's record starts beside
// another one, and cannot reach the nodes of the shards. It takes none of them. Both count each other.
func TestNobodyOwnsWhatItNeverReached(t *testing.T) {
	const shards = 8
	synctest.Test(t, func(t *testing.T) {
		store, n := memstore.New(), newNetwork(t, membus.Faults{})
		works := n.start(aggregate.Options{Store: store, ID: 1, Shards: shards})
		time.Sleep(5 * time.Second)
		away := &faulty{Store: store, hangs: func(uint32) bool { return true }}
		hangs := n.start(aggregate.Options{Store: away, ID: 2, Shards: shards})
		for range 1000 {
			time.Sleep(10 * time.Millisecond)
			if n := hangs.Stats().Owned; n > 0 {
				t.Fatalf("it owns %d shards", n)
			}
		}
		if n := works.Stats().Owned; n != shards {
			t.Errorf("the other one owns %d", n)
		}
		if a, b := works.Stats().Aggregators, hangs.Stats().Aggregators; a != 2 || b != 2 {
			t.Errorf("they hear %d and %d aggregators", a, b)
		}
	})
}
