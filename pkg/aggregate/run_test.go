package aggregate_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
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

func newLine() *line { return &line{ready: make(chan struct{}), hangUp: make(chan error)} }

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
	t      *testing.T
	worker *aggregate.Worker
	line   *line
	stop   context.CancelFunc
	ended  chan error
	asked  bool // whether the test has seen how Run ended
	log    *bytes.Buffer

	mu      sync.Mutex
	answers []*events.Refresh
}

func run(t *testing.T, store aggregate.Store, change ...func(*aggregate.Options)) *running {
	t.Helper()
	r := &running{t: t, line: newLine(), ended: make(chan error, 1), log: new(bytes.Buffer)}
	o := aggregate.Options{Store: store, Bus: r.line, Log: slog.New(slog.NewTextHandler(r.log, nil))}
	for _, c := range change {
		c(&o)
	}
	var err error
	if r.worker, err = aggregate.New(o); err != nil {
		t.Fatal(err)
	}
	var ctx context.Context
	ctx, r.stop = context.WithCancel(t.Context())
	go func() { r.ended <- r.worker.Run(ctx) }()
	t.Cleanup(r.end)
	return r
}

func (r *running) send(m *events.Report) {
	r.t.Helper()
	<-r.line.ready
	r.line.handle(events.KindReport, encode(r.t, m), func(data []byte) error {
		m, err := events.DecodeRefresh(data)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.answers = append(r.answers, m)
		return err
	})
}

func (r *running) take() []*events.Refresh {
	r.mu.Lock()
	defer r.mu.Unlock()
	answers := r.answers
	r.answers = nil
	return answers
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

func TestRunAnswersWithinTheGatherTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, memstore.New())
		for i := range uint64(10) {
			now := time.Now().UnixNano()
			r.send(report(1, i+1, perSecond(now), own{"a", 0, 1}))
			time.Sleep(2 * time.Millisecond)
			synctest.Wait()
			if got := r.take(); len(got) != 1 || got[0].GetSequence() != i+1 {
				t.Fatalf("report %d: answers %v", i+1, got)
			}
			time.Sleep(time.Duration(i) * time.Second)
		}
		if err := r.worker.Ready(); err != nil {
			t.Error(err)
		}
	})
}

func TestRunWaitsForTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faulty{Store: memstore.New(), faults: faults{join: errors.New("connection refused")}}
		r := run(t, store)
		ready := func(why string, after time.Duration, want bool) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if err := r.worker.Ready(); (err == nil) != want {
				t.Errorf("%s: ready: %v", why, err)
			}
		}
		ready("without a store", time.Minute, false)
		store.have(faults{})
		ready("with it", 3*time.Second, true)
		store.have(faults{join: errors.New("connection reset")})
		ready("without it again", time.Minute, false)
		r.send(report(1, 1, perSecond(time.Now().UnixNano()), own{"a", 0, 1})) // shards are known: carry on
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if len(r.take()) != 1 {
			t.Error("no answer")
		}
		r.end() // though it waits
		if n := strings.Count(r.log.String(), "waiting for the store"); n != 2 {
			t.Errorf("logged %d times:\n%s", n, r.log)
		}
	})
}

// The log says why the store is away: again when there is another reason, which is what the
// operator has to mend then; not at every try, though each names another port, and not often when
// reasons take turns.
func TestTheLogSaysWhyTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		port := 0
		refused := func(why string) faults {
			port++
			return faults{join: fmt.Errorf("write tcp 127.0.0.1:%d: %w", port, errors.New(why))}
		}
		store := &faulty{Store: memstore.New(), faults: refused("connection reset")}
		r := run(t, store)
		logged := func() int {
			synctest.Wait()
			return strings.Count(r.log.String(), "waiting for the store")
		}
		for range 60 {
			time.Sleep(time.Second)
			store.have(refused("connection reset"))
		}
		if n := logged(); n != 1 {
			t.Errorf("one reason was logged %d times:\n%s", n, r.log)
		}
		store.have(refused("unknown certificate authority"))
		time.Sleep(3 * time.Second)
		if n := logged(); n != 2 || !strings.Contains(r.log.String(), "unknown certificate authority") {
			t.Errorf("two reasons were logged %d times:\n%s", n, r.log)
		}
		for i := range 60 {
			time.Sleep(time.Second)
			store.have(refused([]string{"connection reset", "no route"}[i/2%2]))
		}
		if n := logged(); n < 4 || n > 2+6 {
			t.Errorf("reasons that took turns for a minute were logged %d times:\n%s", n-2, r.log)
		}
	})
}

func TestRunRefusesAnotherNumberOfShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		if _, err := store.Join(t.Context(), 3); err != nil {
			t.Fatal(err)
		}
		r := run(t, store, func(o *aggregate.Options) { o.Shards = 4 })
		if err := r.result(); !errors.Is(err, aggregate.ErrShards) || !strings.Contains(err.Error(), "4 asked for, 3 recorded") {
			t.Error(err)
		}

		// Also in mid-run, after a loss of data and another worker that was faster.
		r = run(t, store)
		synctest.Wait()
		store.Lose()
		if _, err := store.Join(t.Context(), 5); err != nil {
			t.Fatal(err)
		}
		if err := r.result(); !errors.Is(err, aggregate.ErrShards) {
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

// A worker that is told to stop answers what it has taken, and what is in a fold.
func TestStopAnswersWhatWasReceived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slow{Store: memstore.New(), takes: time.Second}
		r := run(t, store)
		now := time.Now().UnixNano()
		r.send(report(1, 1, perSecond(now), own{"a", 0, 9}))
		time.Sleep(10 * time.Millisecond) // in a fold by now
		r.send(report(2, 1, perSecond(now), own{"a", 0, 1}))
		r.send(report(3, 1, perSecond(now), own{"a", 0, 1}))
		r.end()
		if !r.line.stopped.Load() {
			t.Error("still serving")
		}
		if got := r.take(); len(got) != 3 {
			t.Errorf("%d answers, want 3", len(got))
		}
		if took := time.Duration(time.Now().UnixNano() - now); took > 3*time.Second || len(r.line.alarms) == 0 {
			t.Errorf("it took %v, and sent %d alarms", took, len(r.line.alarms))
		}
	})
}

func TestStopDoesNotWaitForADeadStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slow{Store: memstore.New(), takes: time.Hour}
		r := run(t, store, func(o *aggregate.Options) { o.Timeout = time.Minute })
		r.send(report(1, 1, perSecond(time.Now().UnixNano()), own{"a", 0, 9}))
		time.Sleep(10 * time.Millisecond)
		from := time.Now()
		r.end()
		if took := time.Since(from); took > 6*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// Two folds of a shard may be under way at once, of different checkers, and a shard whose store
// node hangs holds up no other.
func TestTwoFoldsOfAShardAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slow{Store: memstore.New(), takes: 100 * time.Millisecond, hangs: 1}
		r := run(t, store, func(o *aggregate.Options) { o.Shards = 2 })
		now := time.Now().UnixNano()
		send := func(epoch, sequence uint64, shard uint32) {
			m := report(epoch, sequence, perSecond(now), own{"a", 0, 1})
			m.Shards, m.Shard = 2, shard
			r.send(m)
		}
		<-r.line.ready
		synctest.Wait() // all hands sleep
		send(9, 1, 1)   // hangs
		send(1, 1, 0)   // first fold: from 2 ms to 102 ms
		time.Sleep(10 * time.Millisecond)
		send(1, 1, 0) // a repeat, which has to wait for it
		send(2, 1, 0) // second fold: from 12 ms to 112 ms
		time.Sleep(10 * time.Millisecond)
		send(3, 1, 0) // third fold, when the first is done
		time.Sleep(95 * time.Millisecond)
		synctest.Wait()
		if got, most := len(r.take()), store.most(); got != 2 || most != 2 {
			t.Errorf("after 115 ms: %d answers, %d folds at once", got, most)
		}
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		got := r.take()
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
