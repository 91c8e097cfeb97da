package aggregate_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
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

// distant is a store with a clock an hour ahead, the answers of which take their time: so a look at
// the clock is off by half of that.
type distant struct {
	*memstore.Store
	takes atomic.Int64
}

func (s *distant) Join(ctx context.Context, shards int) (storage.Fleet, error) {
	fleet, err := s.Store.Join(ctx, shards)
	fleet.Time = time.Now().Add(time.Hour)
	time.Sleep(time.Duration(s.takes.Load()))
	return fleet, err
}

// TestASlowStoreSetsNoWrongTime: an aggregator that starts while the store takes a second to answer
// is never further off than it says: what it needs to know it learns from another one, or it says
// that it may be half a second off, until a better look corrects it at once.
func TestASlowStoreSetsNoWrongTime(t *testing.T) {
	for _, alone := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			bus := membus.New(membus.Options{Faults: membus.Faults{Delay: time.Millisecond}})
			store, ended := &distant{Store: memstore.New()}, make(chan error, 3)
			go func() { ended <- bus.Run(ctx) }()
			start := func() *aggregate.Worker {
				w := newWorker(t, aggregate.Options{Store: store, Bus: bus.Worker()}, nil)
				go func() { ended <- w.Run(ctx) }()
				return w
			}
			running := 2
			if !alone {
				running++
				start()
				time.Sleep(5 * time.Second)
			}
			store.takes.Store(second)
			w, answers, welcomed := start(), newAnswers(t), 0
			for i := range 150 {
				time.Sleep(100 * time.Millisecond)
				if i == 100 {
					store.takes.Store(ms)
				}
				now := time.Now()
				w.Receive(now.UnixNano(), events.KindHello, encode(t, &events.Hello{Epoch: 1}), answers.welcomes.reply)
				for _, m := range answers.welcomes.take() {
					welcomed++
					off := time.Duration(m.Time - now.Add(time.Hour).UnixNano()).Abs()
					most := 5 * time.Millisecond
					if alone && i < 130 {
						most = 510 * time.Millisecond
					}
					if said := time.Duration(m.Error); off > said+time.Millisecond || said > most {
						t.Fatalf("alone %v, after %v: %v off, it says %v", alone, time.Duration(i+1)*100*time.Millisecond, off, said)
					}
				}
			}
			if welcomed < 100 {
				t.Errorf("alone %v: %d of 150 hellos answered", alone, welcomed)
			}
			stop()
			for range running {
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// slowLog takes a while for each message.
type slowLog struct{ slog.Handler }

func (h slowLog) Handle(context.Context, slog.Record) error {
	time.Sleep(time.Second)
	return nil
}

// TestASlowLogSetsNoWrongTime: where the store has no clock, this machine's is the fleet's, even if
// the worker is held up right after the store has answered.
func TestASlowLogSetsNoWrongTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		store := &faulty{Store: memstore.New()}
		store.have(faults{join: errors.New("away")})
		w := newWorker(t, aggregate.Options{
			Store: store, Bus: &silent{}, Log: slog.New(slowLog{slog.NewTextHandler(io.Discard, nil)}),
		}, nil)
		ended := make(chan error)
		go func() { ended <- w.Run(ctx) }()
		time.Sleep(time.Second)
		store.have(faults{})
		time.Sleep(10 * time.Second)
		if off := -time.Until(w.Now()); off != 0 {
			t.Errorf("it is %v off", off)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestWithoutMembers: NATS forbids aggregators to hear each other. Each follows the store's time
// all the same, leaves what is on record to a fleet that has a keeper, and counts the checkers.
func TestWithoutMembers(t *testing.T) {
	const kept = time.Hour
	store := &faulty{Store: memstore.New()}
	d := coldFixture(t, store)
	if err := store.KeepOffset(t.Context(), 0, kept); err != nil {
		t.Fatal(err)
	}
	drift := func() int64 { return (d.now - start) / 10_000 }
	store.clock = func() int64 { return d.now + drift() }
	offset := func() time.Duration {
		fleet, err := store.Join(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		return fleet.Offset
	}
	d.bus.hear = nil
	for d.now < start+600*second {
		d.pass(max(d.now, start) + 2*second)
		for epoch := range uint64(3) {
			welcome := d.greet(d.now, &events.Hello{Epoch: epoch + 1})
			if d.now < start+10*second {
				continue
			}
			if off := welcome.GetTime() - d.now - drift() - int64(kept); max(off, -off) > 2*ms {
				t.Fatalf("after %d s the time is %d off", (d.now-start)/second, off)
			}
			if got := welcome.GetCheckers(); got != 3 {
				t.Fatalf("after %d s: %d checkers, want 3", (d.now-start)/second, got)
			}
		}
	}
	if got := offset(); got != kept {
		t.Errorf("while it hears nobody, %v are on record", got)
	}
	d.bus.hear = d.hear
	d.pass(d.now + 100*second)
	if got := kept - offset(); got < time.Millisecond || got > 3*time.Millisecond {
		t.Errorf("in 100 s in which it hears itself, the offset returns by %v, want 2 ms", got)
	}
}

// unrecorded is a store that may keep no offset.
type unrecorded struct {
	*faulty
	refuses atomic.Bool
}

func (s *unrecorded) KeepOffset(ctx context.Context, was, offset time.Duration) error {
	if s.refuses.Load() {
		return errors.New("no room")
	}
	return s.Store.KeepOffset(ctx, was, offset)
}

// TestAnOffsetThatIsNotKept: the log says so, now and then, and that the fleet's time goes on when
// the offset is on record.
func TestAnOffsetThatIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var step atomic.Int64
		store := &unrecorded{faulty: &faulty{Store: memstore.New()}}
		store.clock = func() int64 { return time.Now().UnixNano() + step.Load() }
		store.refuses.Store(true)
		var log bytes.Buffer
		logged := func(text string) int {
			synctest.Wait()
			return strings.Count(log.String(), text)
		}
		bus := membus.New(membus.Options{})
		ctx, stop := context.WithCancel(t.Context())
		var ends sync.WaitGroup
		defer ends.Wait()
		defer stop()
		ends.Go(func() { _ = bus.Run(ctx) })
		w := newWorker(t, aggregate.Options{Store: store, Bus: bus.Worker(), Log: slog.New(slog.NewTextHandler(&log, nil))}, nil)
		ends.Go(func() { _ = w.Run(ctx) })
		time.Sleep(5 * time.Second)
		step.Store(int64(-time.Minute))
		time.Sleep(20 * time.Second)
		refused, goesOn := logged("cannot record the fleet's time"), logged("goes on without a step")
		if refused < 1 || refused > 2 || goesOn > 0 {
			t.Errorf("refused %d times, goes on %d times:\n%s", refused, goesOn, &log)
		}
		store.refuses.Store(false)
		time.Sleep(20 * time.Second)
		if n := logged("goes on without a step"); n != 1 {
			t.Errorf("goes on %d times:\n%s", n, &log)
		}
	})
}
