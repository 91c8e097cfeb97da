package aggregate_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
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

// line is a bus that hands over what a test sends.
type line struct {
	silent
	ready   chan struct{}
	handle  func(events.Kind, []byte, func([]byte) error)
	hangUp  chan error
	stopped atomic.Bool
}

func (l *line) Serve(ctx context.Context, h func(events.Kind, []byte, func([]byte) error)) error {
	l.handle = h
	close(l.ready)
	defer l.stopped.Store(true)
	select {
	case <-ctx.Done():
		return nil
	case err := <-l.hangUp:
		return err
	}
}

// running is a worker that Run works.
type running struct {
	*answers
	t      *testing.T
	worker *aggregate.Worker
	line   *line
	stop   context.CancelFunc
	ended  chan error
	asked  bool // whether the test has seen how Run ended
	log    *bytes.Buffer
}

func run(t *testing.T, store storage.Store, change ...func(*aggregate.Options)) *running {
	t.Helper()
	l := &line{ready: make(chan struct{}), hangUp: make(chan error)}
	r := &running{answers: newAnswers(t), t: t, line: l, ended: make(chan error, 1), log: new(bytes.Buffer)}
	r.worker = newWorker(t, aggregate.Options{Store: store, Bus: l, Log: logTo(r.log)}, change)
	var ctx context.Context
	ctx, r.stop = context.WithCancel(t.Context())
	go func() { r.ended <- r.worker.Run(ctx) }()
	t.Cleanup(r.end)
	return r
}

func (r *running) send(m events.Message) {
	r.t.Helper()
	<-r.line.ready
	r.line.handle(kindOf(m), encode(r.t, m), r.reply(kindOf(m)))
}

// exchange sends a message, and lets it be answered.
func (r *running) exchange(m events.Message) {
	r.t.Helper()
	r.send(m)
	time.Sleep(10 * time.Millisecond)
	synctest.Wait()
}

// hear brings the worker what an aggregator tells all.
func (r *running) hear(m *events.Member) {
	r.t.Helper()
	<-r.line.ready
	r.line.handle(events.KindMember, encode(r.t, m), nil)
}

// result waits until Run ends, and returns its error.
func (r *running) result() error {
	r.asked = true
	return <-r.ended
}

// end stops the worker, unless it has ended.
func (r *running) end() {
	r.t.Helper()
	if r.stop(); !r.asked {
		if err := r.result(); err != nil {
			r.t.Error(err)
		}
	}
}

// network is aggregators that meet on one bus, within a bubble.
type network struct {
	*membus.Bus
	t    *testing.T
	ctx  context.Context
	ends sync.WaitGroup
}

func newNetwork(t *testing.T, faults membus.Faults) *network {
	ctx, stop := context.WithCancel(t.Context())
	n := &network{Bus: membus.New(membus.Options{Faults: faults}), t: t, ctx: ctx}
	t.Cleanup(func() { stop(); n.ends.Wait() })
	n.run(n.Run)
	return n
}

func (n *network) run(f func(context.Context) error) {
	n.ends.Go(func() {
		if err := f(n.ctx); err != nil {
			n.t.Error(err)
		}
	})
}

// start starts one more aggregator.
func (n *network) start(o aggregate.Options) *aggregate.Worker {
	n.t.Helper()
	o.Bus = n.Worker()
	w := newWorker(n.t, o, nil)
	n.run(w.Run)
	return w
}

func TestRunAnswersWithinTheGatherTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, memstore.New())
		for i := range uint64(10) {
			now := time.Now().UnixNano()
			r.send(report(1, i+1, perSecond(now), own{"a", 0, 1}))
			time.Sleep(2 * time.Millisecond)
			synctest.Wait()
			if got := r.refreshes.take(); len(got) != 1 || got[0].GetSequence() != i+1 {
				t.Fatalf("report %d: answers %v", i+1, got)
			}
			time.Sleep(time.Duration(i) * time.Second)
		}
		if err := r.worker.Ready(); err != nil {
			t.Error(err)
		}
	})
}

// The log says why the store is away: again when there is another reason, which is what the
// operator has to mend then; not at every try, though each names another port, and not often when
// reasons take turns.
func TestRunWaitsForTheStoreAndSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		port := 0
		refused := func(why string) faults {
			port++
			return faults{join: fmt.Errorf("write tcp 127.0.0.1:%d: %w", port, errors.New(why))}
		}
		store := &faulty{Store: memstore.New(), faults: refused("connection reset")}
		r := run(t, store)
		said := 0
		logged := func(why string, least, most int) {
			t.Helper()
			synctest.Wait()
			before := said
			said = strings.Count(r.log.String(), "waiting for the store")
			if n := said - before; n < least || n > most {
				t.Errorf("%s: logged %d times:\n%s", why, n, r.log)
			}
		}
		ready := func(want bool) {
			t.Helper()
			if err := r.worker.Ready(); (err == nil) != want {
				t.Errorf("ready: %v", err)
			}
		}
		for range 60 {
			time.Sleep(time.Second)
			store.have(refused("connection reset"))
		}
		logged("one reason", 1, 1)
		ready(false)
		store.have(refused("unknown certificate authority"))
		time.Sleep(3 * time.Second)
		if logged("another", 1, 1); !strings.Contains(r.log.String(), "unknown certificate authority") {
			t.Errorf("another reason is not logged:\n%s", r.log)
		}
		for i := range 60 {
			time.Sleep(time.Second)
			store.have(refused([]string{"connection reset", "no route"}[i/2%2]))
		}
		logged("reasons that take turns for a minute", 2, 6)
		store.have(faults{})
		time.Sleep(3 * time.Second)
		logged("the store is there", 0, 0)
		ready(true)
		store.have(refused("connection reset"))
		time.Sleep(time.Minute)
		logged("it is away again", 1, 1)
		ready(false)
		r.send(report(1, 1, perSecond(time.Now().UnixNano()), own{"a", 0, 1})) // shards are known: carry on
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		r.refreshes.only()
		r.end() // though it waits
	})
}

func TestRunRefusesAnotherNumberOfShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		if _, err := store.Join(t.Context(), 3); err != nil {
			t.Fatal(err)
		}
		r := run(t, store, func(o *aggregate.Options) { o.Shards = 4 })
		if err := r.result(); !errors.Is(err, storage.ErrShards) || !strings.Contains(err.Error(), "4 asked for, 3 recorded") {
			t.Error(err)
		}

		// Also in mid-run, after a loss of data and another worker that was faster.
		r = run(t, store)
		synctest.Wait()
		store.Lose()
		if _, err := store.Join(t.Context(), 5); err != nil {
			t.Fatal(err)
		}
		if err := r.result(); !errors.Is(err, storage.ErrShards) {
			t.Error(err)
		}
	})
}

func TestRunEndsWithItsBus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, broken := range []error{errors.New("closed"), nil} {
			r := run(t, memstore.New())
			r.line.hangUp <- broken
			if err := r.result(); err == nil || broken != nil && !errors.Is(err, broken) {
				t.Errorf("Run returned %v", err)
			}
		}
	})
}

// A worker that is told to stop answers what it has taken, and what is in a batch, unless the store
// is dead.
func TestStopAnswersWhatWasReceived(t *testing.T) {
	for takes, want := range map[time.Duration]struct {
		answers int
		within  time.Duration
	}{time.Second: {3, 3 * time.Second}, time.Hour: {0, 6 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			store := &faulty{Store: memstore.New(), takes: takes}
			r := run(t, store, func(o *aggregate.Options) { o.Timeout = time.Minute })
			from := time.Now()
			now := from.UnixNano()
			r.send(report(1, 1, perSecond(now), own{"a", 0, 9}))
			time.Sleep(10 * time.Millisecond) // in a batch by now
			r.send(report(2, 1, perSecond(now), own{"a", 0, 1}))
			r.send(report(3, 1, perSecond(now), own{"a", 0, 1}))
			r.end()
			got, alarms, took := len(r.refreshes.take()), len(r.line.alarms), time.Since(from)
			if got != want.answers || (alarms > 0) != (got > 0) || took > want.within || !r.line.stopped.Load() {
				t.Errorf("a store that takes %v: stopped: %v after %v, %d answers, %d alarms",
					takes, r.line.stopped.Load(), took, got, alarms)
			}
		})
	}
}

// Two batches of a shard may be under way at once, of different checkers, and a shard whose store
// node hangs holds up no other.
func TestTwoBatchesOfAShardAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faulty{Store: memstore.New(), takes: 100 * time.Millisecond, hangs: func(shard uint32) bool { return shard == 1 }}
		r := run(t, store, func(o *aggregate.Options) { o.Shards = 2 })
		now := time.Now().UnixNano()
		send := func(epoch, sequence uint64, shard uint32) {
			m := report(epoch, sequence, perSecond(now), own{"a", 0, 1})
			m.Shards, m.Shard = 2, shard
			r.send(m)
		}
		<-r.line.ready
		time.Sleep(200 * time.Millisecond) // the first probe is done
		send(9, 1, 1)                      // hangs
		send(1, 1, 0)                      // first batch: from 2 ms to 102 ms
		time.Sleep(10 * time.Millisecond)
		send(1, 1, 0) // a repeat, which has to wait for it
		send(2, 1, 0) // second batch: from 12 ms to 112 ms
		time.Sleep(10 * time.Millisecond)
		send(3, 1, 0) // third batch, when the first is done
		time.Sleep(95 * time.Millisecond)
		synctest.Wait()
		if got, most := len(r.refreshes.take()), store.mostAtOnce(); got != 2 || most != 2 {
			t.Errorf("after 115 ms: %d answers, %d batches at once", got, most)
		}
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		got := r.refreshes.take()
		if len(got) != 2 || !got[0].GetRepeated() && !got[1].GetRepeated() {
			t.Errorf("after 315 ms: %v", got)
		}
		if err := r.worker.Ready(); err != nil {
			t.Errorf("nothing has failed yet: %v", err)
		}
		time.Sleep(4 * time.Second)
		synctest.Wait()
		if r.worker.Ready() == nil {
			t.Error("ready, though a shard's store does not answer")
		}
	})
}

// TestAStoreThatIsBackIsSeenSoon: however long it was away, it is asked again within half a second.
func TestAStoreThatIsBackIsSeenSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faulty{Store: memstore.New(), faults: faults{join: errAway}}
		r := run(t, store)
		time.Sleep(21200 * time.Millisecond)
		store.have(faults{})
		time.Sleep(600 * time.Millisecond)
		if err := r.worker.Ready(); errors.Is(err, errAway) {
			t.Error(err)
		}
	})
}

// TestADeadNodeHoldsUpNoClock: a node of a Redis Cluster that never answers has a third of the
// shards. The clock is on another node, and is looked at as often as ever; the shards of others are
// probed.
func TestADeadNodeHoldsUpNoClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, last, longest := time.Now(), time.Now(), time.Duration(0)
		probed := make(map[uint32]bool)
		var mu sync.Mutex
		store := &faulty{Store: memstore.New()}
		store.clock = func() int64 {
			mu.Lock()
			defer mu.Unlock()
			longest, last = max(longest, time.Since(last)), time.Now()
			return last.UnixNano()
		}
		store.hangs = func(shard uint32) bool {
			mu.Lock()
			defer mu.Unlock()
			if time.Since(began) > time.Minute {
				probed[shard] = true
			}
			return shard < 85
		}
		run(t, store, func(o *aggregate.Options) { o.Shards = 256 })
		time.Sleep(2 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if longest > 600*time.Millisecond {
			t.Errorf("no look at the clock for %v", longest)
		}
		if len(probed) != 256 {
			t.Errorf("%d of 256 shards were probed in a minute", len(probed))
		}
	})
}
