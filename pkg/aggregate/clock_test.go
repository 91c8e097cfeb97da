package aggregate_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/offpath-io/offpath/internal/testing/membus"
	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
	"github.com/offpath-io/offpath/pkg/events"
)

// TestASlowStoreSetsNoWrongTime: an aggregator that starts while the store takes a second to answer
// is never further off than it says: what it needs to know it learns from another one, or it says
// that it may be half a second off, until a better look corrects it at once.
func TestASlowStoreSetsNoWrongTime(t *testing.T) {
	for _, alone := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			n, store := newNetwork(t, membus.Faults{Delay: time.Millisecond}), &faulty{Store: memstore.New()}
			var takes atomic.Int64
			store.clock = func() int64 { // an hour ahead; so late an answer is off by half of what it takes
				defer time.Sleep(time.Duration(takes.Load()))
				return time.Now().Add(time.Hour).UnixNano()
			}
			if !alone {
				n.start(aggregate.Options{Store: store})
				time.Sleep(5 * time.Second)
			}
			takes.Store(second)
			w, answers, welcomed := n.start(aggregate.Options{Store: store}), newAnswers(t), 0
			for i := range 150 {
				time.Sleep(100 * time.Millisecond)
				if i == 100 {
					takes.Store(ms)
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
		store := &faulty{Store: memstore.New(), faults: faults{join: errAway}}
		r := run(t, store, func(o *aggregate.Options) { o.Log = slog.New(slowLog{o.Log.Handler()}) })
		time.Sleep(time.Second)
		store.have(faults{})
		time.Sleep(10 * time.Second)
		if off := -time.Until(r.worker.Now()); off != 0 {
			t.Errorf("it is %v off", off)
		}
	})
}

// TestAWrongClock: the fleet's time is the store's, however wrong this machine's own clock is.
func TestAWrongClock(t *testing.T) {
	for _, ahead := range []time.Duration{-time.Minute, 40 * time.Second, 400 * 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			store := &faulty{Store: memstore.New()}
			store.clock = func() int64 { return time.Now().UnixNano() }
			r := run(t, store, func(o *aggregate.Options) {
				o.Now = func() time.Time { return time.Now().Add(ahead) }
			})
			time.Sleep(10 * time.Second)
			if off := -time.Until(r.worker.Now()); off.Abs() > time.Millisecond {
				t.Errorf("started %v ahead, it is %v off", ahead, off)
			}
		})
	}
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

// TestAnOffsetThatIsNotKept: the log says so, now and then, and that the fleet's time goes on when
// the offset is on record.
func TestAnOffsetThatIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var step atomic.Int64
		store := &faulty{Store: memstore.New(), faults: faults{keep: errors.New("no room")}}
		store.clock = func() int64 { return time.Now().UnixNano() + step.Load() }
		var log bytes.Buffer
		logged := func(text string) int {
			synctest.Wait()
			return strings.Count(log.String(), text)
		}
		newNetwork(t, membus.Faults{}).start(aggregate.Options{Store: store, Log: logTo(&log)})
		time.Sleep(5 * time.Second)
		step.Store(int64(-time.Minute))
		time.Sleep(20 * time.Second)
		refused, goesOn := logged("cannot record the fleet's time"), logged("goes on without a step")
		if refused < 1 || refused > 2 || goesOn > 0 {
			t.Errorf("refused %d times, goes on %d times:\n%s", refused, goesOn, &log)
		}
		store.have(faults{})
		time.Sleep(20 * time.Second)
		if n := logged("goes on without a step"); n != 1 {
			t.Errorf("goes on %d times:\n%s", n, &log)
		}
	})
}
