package aggregate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
)

// faultyMemory fails as it is asked to.
type faultyMemory struct {
	memstore.Memory
	fails atomic.Pointer[func(context.Context) error]
}

func (m *faultyMemory) Merge(ctx context.Context, states []storage.State) ([]storage.State, error) {
	if fails := m.fails.Load(); fails != nil {
		if err := (*fails)(ctx); err != nil {
			return nil, err
		}
	}
	return m.Memory.Merge(ctx, states)
}

// A worker that starts waits for its memory: counting before could hide a loss. But it does not
// wait for ever, nor for one that says that it keeps nothing; and then it learns and tells what it
// can as soon as that works.
func TestAWorkerWaitsForItsMemory(t *testing.T) {
	for _, tt := range []struct {
		fails     error
		back      time.Duration // when it answers
		readyAt   time.Duration // about, from below
		wantsLoss bool          // of a store that was flushed while there was no worker
	}{
		{nil, 0, 0, true},
		{errors.New("no leader"), 3 * time.Second, 3 * time.Second, true},
		{errors.New("no leader"), time.Minute, 10 * time.Second, false},
		{fmt.Errorf("no JetStream: %w", aggregate.ErrNoMemory), time.Minute, 0, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			memory, store := new(faultyMemory), memstore.New()
			kept := func(o *aggregate.Options) { o.Memory = memory }
			r := run(t, store, kept)
			r.send(report(1, 1, perSecond(time.Now().UnixNano()), own{"a", 0, 1}))
			r.stop()
			if err := r.result(); err != nil { // it tells the memory all
				t.Fatal(err)
			}
			before := r.refreshes.only()
			store.Lose()
			time.Sleep(time.Millisecond) // a generation is a time

			memory.fails.Store(new(func(context.Context) error { return tt.fails }))
			time.AfterFunc(tt.back, func() { memory.fails.Store(nil) })
			begin := time.Now()
			r = run(t, store, kept)
			if time.Sleep(time.Millisecond); tt.readyAt > 0 && r.worker.Ready() == nil {
				t.Error("it is ready at once")
			}
			r.send(report(1, 2, perSecond(time.Now().UnixNano()), own{"a", 0, 1}))
			if took := time.Since(begin); took < tt.readyAt || took > tt.readyAt+2*time.Second {
				t.Errorf("%v: it serves after %v, want %v", tt.fails, took, tt.readyAt)
			}
			time.Sleep(2 * time.Minute)
			if err := r.worker.Ready(); err != nil {
				t.Error(err)
			}
			after := r.refreshes.only()
			if after.GetGeneration() <= before.GetGeneration() || (r.worker.Stats().Losses == 1) != tt.wantsLoss {
				t.Errorf("%v: %v, before it was %v; %+v", tt.fails, after, before, r.worker.Stats())
			}
			all, err := memory.Merge(t.Context(), nil)
			if err != nil || len(all) != 1 || all[0].Generation != after.GetGeneration() {
				t.Errorf("%v: the memory has %v, %v", tt.fails, all, err)
			}
			r.end()
			if n := strings.Count(r.log.String(), "not kept"); (n == 1) != (tt.fails != nil) {
				t.Errorf("%v: logged %d times:\n%s", tt.fails, n, r.log)
			}
		})
	}
}

// A worker that is told to stop while it waits for its memory does not blame that.
func TestAStoppedWorkerDoesNotBlameItsMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Bool
		memory := new(faultyMemory)
		memory.fails.Store(new(func(ctx context.Context) error {
			if !asked.Swap(true) {
				return nil
			}
			<-ctx.Done() // it does not answer, once it has been asked
			return ctx.Err()
		}))
		r := run(t, memstore.New(), func(o *aggregate.Options) { o.Memory, o.Timeout = memory, time.Minute })
		time.Sleep(10 * time.Second)
		r.end()
		if strings.Contains(r.log.String(), "canceled") {
			t.Error(r.log)
		}
	})
}

// What the memory keeps of a generation in the far future is no reason to take the store there,
// from where no checker could follow.
func TestMemoriesOfTheFutureAreIgnored(t *testing.T) {
	memory := new(memstore.Memory)
	store := memstore.New()
	d := newFixture(t, store, func(o *aggregate.Options) { o.Memory = memory })
	before := d.exchange(start, report(1, 1, perSecond(start), own{"a", 0, 1}))
	if _, err := memory.Merge(t.Context(), []storage.State{{Generation: 1 << 51}}); err != nil {
		t.Fatal(err)
	}
	d.step(start + 2*second)
	if after := d.exchange(start+2*second, report(1, 2, perSecond(start), own{"a", 0, 1})); after.GetGeneration() != before.GetGeneration() {
		t.Errorf("generation %d, before it was %d", after.GetGeneration(), before.GetGeneration())
	}
}
